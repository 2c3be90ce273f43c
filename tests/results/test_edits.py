"""Edits survive their file, whatever a spreadsheet did to it, and the log takes each of them once."""

from __future__ import annotations

import os
import sys
import tempfile
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotype.cli import main
from holotype.data.csv import escape_formula, unescape_formula
from holotype.errors import InputError
from holotype.results.edits import EDIT_COLUMNS, Edit, append_edits, edits_csv, read_edits, read_log
from report.made import make_discovery

TIME = "2026-01-02T03:04:05.678Z"
ODD = [
    *("=cmd()", "-x", "+1", "@a", "'=x", "''", 'a "b", c', "two\nlines", "two\rlines", "\rx", "two\r\nlines"),
    *("<script>", "Käfer ✓", " spaces "),
]


def rename(value: str, run: str = "run-made-1", id: str = "new-01") -> Edit:
    return Edit(run, TIME, "rename", "", id, value)


def test_odd_values_come_back_as_they_were(tmp_path):
    edits = [rename(value) for value in ODD]
    file = tmp_path / "edits.csv"
    file.write_bytes(edits_csv(edits).encode())
    assert read_edits(file) == edits


@given(st.text())
def test_no_cell_looks_like_a_formula_and_all_come_back(cell):
    assert not escape_formula(cell).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert unescape_formula(escape_formula(cell)) == cell


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_any_text_survives_the_file(words):
    edits = [Edit(word, word, "rename", word, word, word) for word in words]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "edits.csv").write_bytes(edits_csv(edits).encode())
        assert read_edits(Path(folder) / "edits.csv") == edits


def test_a_spreadsheet_may_have_saved_it(tmp_path):
    """Semicolons, a byte order mark, carriage returns, empty lines, other columns."""
    file = tmp_path / "edits.csv"
    text = ";".join((*EDIT_COLUMNS, "mine")) + f"\r\nrun-1;{TIME};rename;;new-01;Hawk;x\r\n;;;;;;\r\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_edits(file) == [Edit("run-1", TIME, "rename", "", "new-01", "Hawk")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n", "has no column 'run_id'"),
        (b"", "has no column 'run_id'"),
        (",".join(EDIT_COLUMNS).encode() + b"\nr,t,delete,,c,v\n", "line 2: there is no action 'delete'"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (",".join(EDIT_COLUMNS).encode() + b"\nr,t,rename,,new-01,Owl, snowy\n", "line 2, has more cells"),
    ],
)
def test_what_is_not_an_edits_file_is_one_sentence(content, words, tmp_path):
    (tmp_path / "edits.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_edits(tmp_path / "edits.csv")
    with pytest.raises(InputError, match="is not a file"):
        read_edits(tmp_path / "nothing.csv")


# -- the version of the format ------------------------------------------------------------------------


def with_format(tmp_path: Path, version: str | None) -> Path:
    head, line = ",".join(EDIT_COLUMNS), f"run-made-1,{TIME},rename,,new-01,Hawk"
    rows = [head, line] if version is None else [f"{head},format", f"{line},{version}"]
    (tmp_path / "edits.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path / "edits.csv"


def test_every_line_carries_the_format():
    head, line, _ = edits_csv([rename("Hawk")]).split("\n")
    assert head.split(",") == [*EDIT_COLUMNS, "digest", "format"]
    assert line.split(",")[-1] == "2"


@pytest.mark.parametrize("version", [None, "", "1", " 1 ", "2"])
def test_a_file_without_a_format_is_of_the_first(version, tmp_path):
    assert read_edits(with_format(tmp_path, version)) == [rename("Hawk")]


@pytest.mark.parametrize("version", ["3", "0", "1.5", "one"])
def test_another_format_is_one_sentence_and_nothing_is_logged(version, tmp_path, capsys):
    make_discovery(tmp_path / "pictures", 20).save(tmp_path / "run")
    file = with_format(tmp_path, version)
    assert main(["report", str(tmp_path / "run"), "--edits", str(file)]) == 2
    said = capsys.readouterr().err
    assert f"line 2, is of format '{version}', and this version of Holotype reads format 2" in said
    assert "Traceback" not in said
    assert not (tmp_path / "run" / "edits.csv").exists()


def test_a_log_that_a_spreadsheet_has_saved_is_added_to(tmp_path):
    with_format(tmp_path, None)
    assert append_edits(tmp_path, [rename("Hawk"), rename("Owl")]) == [rename("Owl")]
    assert (tmp_path / "edits.csv").read_text() == edits_csv([rename("Hawk"), rename("Owl")])


def test_a_line_of_the_log_may_be_changed_by_hand(tmp_path):
    append_edits(tmp_path, [rename("Hawk")])
    file = tmp_path / "edits.csv"
    file.write_text(file.read_text().replace("Hawk", "Owl"))
    assert read_log(tmp_path) == [rename("Owl")]


def test_edits_of_another_run_are_refused_and_the_log_is_untouched(tmp_path):
    make_discovery(tmp_path, 20).save(tmp_path)
    with pytest.raises(InputError, match=r"made in the report of run 'other', but .* holds run 'run-made-1'"):
        append_edits(tmp_path, [rename("Hawk", run="other")])
    assert not (tmp_path / "edits.csv").exists()


def logged(folder: Path, *edits: Edit) -> bytes:
    append_edits(folder, edits)
    return (folder / "edits.csv").read_bytes()


def test_lines_are_added_and_nothing_is_written_anew(tmp_path):
    before = logged(tmp_path, rename("Hawk"))
    file = os.stat(tmp_path / "edits.csv").st_ino
    assert logged(tmp_path, rename("Owl")).startswith(before)
    assert os.stat(tmp_path / "edits.csv").st_ino == file


def test_a_disk_that_fails_is_one_sentence(tmp_path, monkeypatch):
    before = logged(tmp_path, rename("Hawk"))

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("holotype.results.edits.os.fsync", fail)
    with pytest.raises(InputError, match="No space left"):
        append_edits(tmp_path, [rename("Owl")])
    assert (tmp_path / "edits.csv").read_bytes().startswith(before)


def test_an_edit_is_the_same_wherever_its_image_lies(tmp_path):
    first = Edit("run-made-1", TIME, "reject", "/then/a.png", digest="d1")
    append_edits(tmp_path, [first])
    moved = Edit("run-made-1", TIME, "reject", "/now/a.png", digest="d1")
    other = Edit("run-made-1", TIME, "reject", "/now/a.png", digest="d2")
    assert append_edits(tmp_path, [moved, other]) == [other]


@pytest.mark.parametrize("last", [rename("Käfer"), rename('two\nlines, "and" more'), rename("", id="new-02")])
def test_a_line_that_a_kill_has_torn_is_told_and_dropped_wherever_it_was(last, tmp_path, caplog):
    whole = logged(tmp_path, rename("Hawk"))
    with_last = logged(tmp_path, last)
    for length in range(len(with_last)):
        (tmp_path / "edits.csv").write_bytes(with_last[:length])
        expected = [rename("Hawk")] if length >= len(whole) - 1 else []
        expected += [last] if length == len(with_last) - 1 else []  # but for the end of its line it is whole
        assert read_log(tmp_path) == expected, length
    (tmp_path / "edits.csv").write_bytes(with_last[:-3])
    caplog.clear()
    assert append_edits(tmp_path, [last]) == [last]
    assert "ended in the middle of a line" in caplog.text
    assert (tmp_path / "edits.csv").read_bytes() == with_last
    (tmp_path / "edits.csv").write_bytes(with_last[:-1])
    append_edits(tmp_path, [rename("Owl")])
    assert read_log(tmp_path) == [rename("Hawk"), last, rename("Owl")]


# -- two at once --------------------------------------------------------------------------------------


def append_many(folder: str, who: str, start: Barrier) -> None:
    """In a process of its own: fifty edits, one after the other."""
    start.wait()
    for number in range(50):
        append_edits(Path(folder), [rename(f"{who} {number}")])


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fcntl")
def test_two_processes_lose_no_edit(tmp_path):
    context = get_context("spawn")
    start = context.Barrier(2)
    both = [context.Process(target=append_many, args=(str(tmp_path), who, start)) for who in ("a", "b")]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    values = [edit.value for edit in read_log(tmp_path)]
    assert sorted(values) == sorted(f"{who} {number}" for who in "ab" for number in range(50))
    for who in "ab":  # each in its order
        assert [v for v in values if v.startswith(who)] == [f"{who} {number}" for number in range(50)]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"The log of edits in .* cannot be written"):
        append_edits(tmp_path / "file", [rename("Hawk")])
