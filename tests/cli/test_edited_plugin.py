"""A plug-in that is edited is another method: its old runs are not gone on from, and their scores not given back."""

from __future__ import annotations

import importlib
import sys

import pytest

METHOD = "from holotype.methods.simgcd import SimGCD\nimport edited_part\n\n\nclass Mine(SimGCD):\n    pass\n"


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Write edited_method.py and what it imports, as if another process were to import them."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def write(part: str) -> None:
        (tmp_path / "edited_method.py").write_text(METHOD)
        (tmp_path / "edited_part.py").write_text(part)
        for name in ("edited_method", "edited_part"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        importlib.invalidate_caches()

    write("weight = 1\n")
    return write


def test_a_run_of_other_code_is_neither_given_back_nor_gone_on_with(
    holotype, edit, tmp_path, squares_folder, tiny_flags
) -> None:
    run = tmp_path / "run"
    words = ("train", "edited_method:Mine", squares_folder / "squares.csv", *tiny_flags, "--out", run)
    assert holotype(*words).code == 0
    for stopped in (False, True):
        if stopped:
            (run / "scores.json").unlink()
        before = {path: path.read_bytes() for path in run.iterdir()}
        edit("weight = 2\n")
        outcome = holotype(*words)
        assert outcome.code == 2
        assert "edited_method:Mine" in outcome.err
        assert str(run) in outcome.err
        assert {path: path.read_bytes() for path in run.iterdir()} == before
    edit("weight = 1\n")
    assert holotype(*words).code == 0
    assert (run / "scores.json").exists()


def test_a_sweep_makes_the_run_anew_and_its_table_has_the_code_of_today(
    holotype, edit, squares_folder, tiny_flags
) -> None:
    flags = dict(zip(tiny_flags[:-1:2], tiny_flags[1:-1:2], strict=True))
    sets = [word for key, value in flags.items() for word in ("--set", f"{key[2:]}={value}")]
    words = ("bench", "--methods", "edited_method:Mine", "--datasets", squares_folder / "squares.csv")
    words = (*words, "--seeds", 1, "--no-progress", *sets)
    for part in ("weight = 1\n", "weight = 2\n"):
        edit(part)
        assert holotype(*words, "--table-only").code == 2
        outcome = holotype(*words)
        assert outcome.code == 0, outcome.err
        assert "done before" not in outcome.err
    assert "done before" in holotype(*words).err
    rows = [line for line in holotype(*words, "--table-only").out.splitlines() if "squares" in line]
    assert len(rows) == 1
