"""Files are the old content or the new one, never a part."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holotype.errors import InputError
from holotype.utils import atomic, locks
from holotype.utils.atomic import (
    atomic_folder,
    atomic_path,
    atomic_write,
    clean_partial,
    clean_partial_tree,
    write_output,
    write_text,
)

WRITERS, TIMES = 4, 50
START = "import os, signal, sys; from pathlib import Path\nfrom holotype.utils.atomic import *\n"
WRITER = "for time in range(int(sys.argv[2])): write_text(Path(sys.argv[1]), sys.argv[3] * 20_000)"
KILLED = """
def die(part):
    part.write_text("half of it")
    os.kill(os.getpid(), signal.SIGKILL)
atomic_write(Path(sys.argv[1]), die)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def part_of(folder: Path, name: str, digit: str = "0") -> Path:
    return folder / f".{name}.{digit * 16}.part"


@pytest.mark.parametrize(
    ("error", "raised"),
    [(ValueError("in the middle"), ValueError), (OSError(errno.ENOSPC, "No space left"), InputError)],
)
def test_a_failure_leaves_the_old_content_and_no_litter(tmp_path, error, raised):
    file = tmp_path / "a.txt"
    write_text(file, "old")

    def fails(part):
        part.write_text("ne")
        raise error

    with pytest.raises(raised, match=str(error.args[-1])):
        atomic_write(file, fails)
    assert file.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("name", ["deep/er/a", "a" * 250, "é" * 125])
def test_any_name_that_a_file_can_have_can_be_written_and_an_impossible_place_is_said(tmp_path, name):
    write_text(tmp_path / name, "new")
    assert (tmp_path / name).read_text() == "new"
    with pytest.raises(InputError, match="could not be written"):
        write_text(tmp_path / name / "a.txt", "new")


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_many_processes_may_write_one_file(tmp_path):
    file = tmp_path / "a.txt"
    command = [sys.executable, "-c", START + WRITER, str(file), str(TIMES)]
    running = [subprocess.Popen([*command, letter], stderr=subprocess.PIPE) for letter in "abcd"[:WRITERS]]
    said = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * WRITERS, said
    assert file.read_text() in {letter * 20_000 for letter in "abcd"}
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
def test_nothing_is_written_through_a_link_and_files_have_the_users_mode(tmp_path, monkeypatch):
    """Neither through one at the name itself nor one planted at the name of the part."""
    precious, folder = tmp_path / "precious.txt", tmp_path / "run"
    precious.write_text("mine")
    folder.mkdir()
    guesses = iter(["0" * 16, "1" * 16])
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda n: next(guesses))
    for link in (part_of(folder, "a.txt"), folder / ".a.txt.part", folder / "a.txt"):
        link.symlink_to(precious)
    before = os.umask(0o027)
    try:
        write_text(folder / "a.txt", "new")
    finally:
        os.umask(before)
    assert (precious.read_text(), (folder / "a.txt").read_text()) == ("mine", "new")
    assert not (folder / "a.txt").is_symlink()
    assert stat.S_IMODE((folder / "a.txt").stat().st_mode) == 0o640


@pytest.mark.skipif(os.name != "posix", reason="there is no such kill")
def test_what_a_killed_process_left_is_swept_away(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    assert subprocess.run([sys.executable, "-c", START + KILLED, str(file)], check=False).returncode < 0
    assert len(names(tmp_path)) == 2
    write_text(tmp_path / "b.txt", "new")
    assert names(tmp_path) == ["a.txt", "b.txt"]
    assert file.read_text() == "old"


def test_what_is_being_written_and_parts_of_others_are_not_swept_away(tmp_path):
    others = [".film.mkv.part", "a.0123456789abcdef.part", ".a.part", ".a.0123456789ABCDEF.part"]
    for name in others:
        (tmp_path / name).write_text("")
    with atomic_path(tmp_path / "a.txt") as part:
        clean_partial(tmp_path, again=True)
        part.write_text("new")
    assert names(tmp_path) == sorted([*others, "a.txt"])
    assert (tmp_path / "a.txt").read_text() == "new"


def test_without_locks_old_parts_go_and_one_swept_before_its_lock_is_made_anew(tmp_path, monkeypatch):
    def refuse(descriptor: int) -> bool:
        raise locks.NoLocks("none here")

    monkeypatch.setattr(atomic, "try_lock", refuse)
    fresh, old = (part_of(tmp_path, "a.txt", digit) for digit in "ab")
    fresh.write_text("")
    old.write_text("")
    os.utime(old, (0, 0))
    clean_partial(tmp_path, again=True)
    assert names(tmp_path) == [fresh.name]
    write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    # somebody sweeps in the moment between the making of the file and its lock
    (tmp_path / "a.txt").unlink()
    fresh.unlink(missing_ok=True)
    seen = []

    def swept_first(descriptor: int) -> bool:
        if not seen:
            (part,) = tmp_path.iterdir()
            seen.append(part.name)
            part.unlink()
        return True

    monkeypatch.setattr(atomic, "try_lock", swept_first)
    write_text(tmp_path / "a.txt", "new")
    assert seen
    assert (tmp_path / "a.txt").read_text() == "new"


def test_what_was_left_deep_in_a_run_goes_and_what_links_point_to_stays(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run, run / "rounds" / "1" / "corrected", other):
        folder.mkdir(parents=True, exist_ok=True)
        part_of(folder, "scores.json").write_text("half")
        (folder / "scores.json").write_text("whole")
    left, linked = part_of(run, "images"), part_of(run, "images", "1")
    left.mkdir()
    (left / "a.png").write_text("")
    for link in (run / "link", linked):
        link.symlink_to(other, target_is_directory=True)
    clean_partial_tree(run)
    assert list(run.rglob("*.part")) == [linked]
    assert len(list(run.rglob("scores.json"))) >= 2
    assert names(other) == [part_of(other, "scores.json").name, "scores.json"]


def test_a_folder_is_whole_of_two_who_make_one_the_first_does_and_it_is_replaced_where_that_is_wanted(
    tmp_path,
):
    with atomic_folder(tmp_path / "images") as mine, atomic_folder(tmp_path / "images") as theirs:
        (mine / "mine.png").write_text("")
        (theirs / "theirs.png").write_text("")
        clean_partial(tmp_path, again=True)
        assert not (tmp_path / "images").exists()
    with pytest.raises(ValueError, match="half"), atomic_folder(tmp_path / "more"):
        raise ValueError("half")
    assert names(tmp_path) == ["images"]
    assert names(tmp_path / "images") == ["theirs.png"]
    with atomic_folder(tmp_path / "images", replace=True) as part:
        (part / "new.png").write_text("")
        assert names(tmp_path / "images") == ["theirs.png"]
    assert names(tmp_path / "images") == ["new.png"]
    # a kill between the two renames
    os.rename(tmp_path / "images", atomic._name_before(tmp_path / "images"))
    with pytest.raises(ValueError, match="half"), atomic_folder(tmp_path / "images", replace=True):
        raise ValueError("half")
    assert (names(tmp_path), names(tmp_path / "images")) == (["images"], ["new.png"])


def test_a_file_that_a_user_names_is_replaced_with_overwrite_alone(tmp_path):
    def write(part):
        part.write_text("new")

    file, link, later = tmp_path / "a.txt", tmp_path / "link", tmp_path / "later"
    write_output(file, write)
    file.write_text("mine")
    link.symlink_to(file)
    (tmp_path / "folder").mkdir()
    for taken in (file, link):
        with pytest.raises(InputError, match="--overwrite"):
            write_output(taken, write)
    with pytest.raises(InputError, match="--overwrite"):  # one that somebody makes meanwhile stays
        write_output(later, lambda part: later.write_text("mine"))
    assert (file.read_text(), later.read_text()) == ("mine", "mine")
    write_output(file, write, overwrite=True)
    assert file.read_text() == "new"
    with pytest.raises(InputError, match="is not a file"):
        write_output(tmp_path / "folder", write, overwrite=True)
    assert names(tmp_path) == ["a.txt", "folder", "later", "link"]
