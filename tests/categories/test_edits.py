"""Edits survive their file, whatever a spreadsheet did to it, and the log takes each of them once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotype.categories.edits import (
    COLUMNS,
    Edit,
    append_edits,
    apply_log,
    bare,
    guarded,
    read_edits,
    read_log,
    to_csv,
)
from holotype.errors import InputError
from report.made import make_discovery

TIME = "2026-01-02T03:04:05.678Z"
ODD = ["=cmd()", "-x", "+1", "@a", "'=x", "''", 'a "b", c', "two\nlines", "<script>", "Käfer ✓", " spaces "]


def rename(value: str, run: str = "run-made-1", id: str = "new-01") -> Edit:
    return Edit(run, TIME, "rename", "", id, value)


def test_odd_values_come_back_as_they_were(tmp_path):
    edits = [rename(value) for value in ODD]
    file = tmp_path / "edits.csv"
    file.write_bytes(to_csv(edits).encode())
    assert read_edits(file) == edits


@given(st.text())
def test_no_cell_looks_like_a_formula_and_all_come_back(cell):
    assert not guarded(cell).startswith(("=", "+", "-", "@", "\t", "\r"))
    assert bare(guarded(cell)) == cell


def test_a_spreadsheet_may_have_saved_it(tmp_path):
    """Semicolons, a byte order mark, carriage returns, empty lines, other columns."""
    file = tmp_path / "edits.csv"
    text = ";".join((*COLUMNS, "mine")) + f"\r\nrun-1;{TIME};rename;;new-01;Hawk;x\r\n;;;;;;\r\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_edits(file) == [Edit("run-1", TIME, "rename", "", "new-01", "Hawk")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n", "has no column 'run_id'"),
        (b"", "has no column 'run_id'"),
        (",".join(COLUMNS).encode() + b"\nr,t,delete,,c,v\n", "line 2: there is no action 'delete'"),
        (b"\xff\xfe\x00", "is not UTF-8"),
    ],
)
def test_what_is_not_an_edits_file_is_one_sentence(content, words, tmp_path):
    (tmp_path / "edits.csv").write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_edits(tmp_path / "edits.csv")


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="is not a file"):
        read_edits(tmp_path / "nothing.csv")


def test_the_log_grows_and_holds_each_edit_once(tmp_path):
    first, second = rename("Hawk"), rename("Owl")
    assert read_log(tmp_path) == []
    assert append_edits(tmp_path, [first, first]) == [first]
    before = (tmp_path / "edits.csv").read_text()
    assert append_edits(tmp_path, [first, second]) == [second]
    assert read_log(tmp_path) == [first, second]
    assert (tmp_path / "edits.csv").read_text().startswith(before)


def test_edits_of_another_run_are_refused_and_the_log_is_untouched(tmp_path):
    make_discovery(tmp_path, 20).save(tmp_path)
    with pytest.raises(InputError, match=r"made in the report of run 'other', but .* holds run 'run-made-1'"):
        append_edits(tmp_path, [rename("Hawk", run="other")])
    assert not (tmp_path / "edits.csv").exists()


def test_the_log_is_applied_to_what_the_round_found(tmp_path):
    """Again and again: the folder rounds/1 stays as it was, and the outcome lies in the run folder."""
    found = make_discovery(tmp_path, 40)
    found.facts = replace(found.facts, round=1)
    found.save(tmp_path / "rounds" / "1")
    found.save(tmp_path)
    append_edits(tmp_path, [Edit("run-made-1", TIME, "merge", "", "new-01", "new-02")])
    for _ in range(2):
        outcome = apply_log(tmp_path)
        assert (outcome.count, outcome.problems) == (1, [])
        assert "new-01" not in {c.id for c in outcome.discovery.categories}
    from holotype.categories.found import Discovery

    assert "new-01" in {c.id for c in Discovery.load(tmp_path / "rounds" / "1").categories}
    assert "new-01" not in set(Discovery.load(tmp_path).images["category_id"])
