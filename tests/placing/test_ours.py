"""A file that was written from a run is replaced; one that somebody made or changed is not."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from holotype.errors import InputError
from holotype.placing.ours import FILE, check_own, is_known, write_own


@pytest.fixture
def run(tmp_path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def writer(text: str):
    return lambda part: part.write_text(text)


def test_ones_own_is_replaced_again_and_again(run, tmp_path) -> None:
    file = tmp_path / "out" / "a.txt"
    assert not is_known(run, file)
    for text in ("one", "two", "three"):
        write_own(run, file, writer(text))
        assert file.read_text() == text
    assert is_known(run, file)


def test_what_was_changed_stays(run, tmp_path) -> None:
    file = tmp_path / "a.txt"
    write_own(run, file, writer("one"))
    file.write_text("mine")
    with pytest.raises(InputError, match="was changed since"):
        write_own(run, file, writer("two"))
    assert file.read_text() == "mine"
    write_own(run, file, writer("mine and two"), changed=True)
    assert file.read_text() == "mine and two"
    write_own(run, file, writer("three"))


def test_a_command_that_stops_before_the_end_does_not_lock_one_out(run, tmp_path, monkeypatch) -> None:
    """The digest is noted before the file has its name; the one before counts as well."""
    file = tmp_path / "a.txt"
    write_own(run, file, writer("one"))

    replace = os.replace

    def stop(here: Path, there: Path) -> None:
        if Path(there) == file:
            raise KeyboardInterrupt
        replace(here, there)

    with monkeypatch.context() as patch:
        patch.setattr("holotype.machine.files.os.replace", stop)
        with pytest.raises(KeyboardInterrupt):
            write_own(run, file, writer("two"))
    assert file.read_text() == "one"
    write_own(run, file, writer("two"))
    assert file.read_text() == "two"


def test_links_and_folders_are_not_replaced(run, tmp_path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        check_own(run, tmp_path / "folder")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is there already"):
        check_own(run, tmp_path / "link")


def test_a_list_that_cannot_be_read_makes_nothing_ours(run, tmp_path) -> None:
    file = tmp_path / "a.txt"
    write_own(run, file, writer("one"))
    (run / FILE).write_text("[]")
    with pytest.raises(InputError):
        check_own(run, file)


@pytest.mark.skipif(os.name != "posix", reason="folders are closed otherwise there")
def test_a_run_that_cannot_be_written_to_is_said(run, tmp_path, monkeypatch, caplog) -> None:
    def closed(*_: object) -> None:
        raise InputError("closed") from PermissionError(errno.EACCES, "closed")

    monkeypatch.setattr("holotype.placing.ours.write_text", closed)
    with caplog.at_level(logging.WARNING):
        write_own(run, tmp_path / "a.txt", writer("one"))
    assert (tmp_path / "a.txt").read_text() == "one"
    assert "will not be known as its own" in caplog.text


def test_a_fault_of_the_disk_makes_no_stranger_of_a_file(run, tmp_path, monkeypatch) -> None:
    """The list comes first: a file that it does not know would be refused by the same command."""

    def fail(*_: object) -> None:
        raise InputError("the disk fails") from OSError(errno.EIO, "the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr("holotype.placing.ours.write_text", fail)
        with pytest.raises(InputError, match="the disk fails"):
            write_own(run, tmp_path / "a.txt", writer("one"))
    assert not (tmp_path / "a.txt").exists()
    write_own(run, tmp_path / "a.txt", writer("one"))
    assert (tmp_path / "a.txt").read_text() == "one"
