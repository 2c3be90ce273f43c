"""Trainings of two methods against as many of one: what is drawn, and what the page says of it."""

from __future__ import annotations

import json
from pathlib import Path

import mixed_trainings
import numpy as np
from mixed_trainings import RECORD, main, measure, table
from tests.benchmarks.test_folder_methods import Y, made

TOP = Path(__file__).resolve().parents[2]


def keep(work: Path, method: str, category: np.ndarray) -> None:
    """Nine trainings that say the same."""
    (work / "said").mkdir(exist_ok=True)
    said = np.stack([category] * 9).astype(np.int16)
    np.savez(
        work / "said" / f"made0+{method}.npz",
        category=said,
        probability=np.full(said.shape, 0.9, np.float16),
        k=4,
    )


def test_each_method_speaks_alone_and_both_in_turn(tmp_path: Path) -> None:
    keep(tmp_path, "rpc", Y)
    keep(tmp_path, "uno", np.where(Y == 3, 2, Y))  # one class of four is lost
    found = measure(made(), tmp_path)
    assert [found[str(n)]["rpc"] for n in (1, 2, 9)] == [100.0] * 3
    assert [found[str(n)]["uno"] for n in (1, 2, 9)] == [66.67] * 3
    assert "mixed" not in found["1"]
    assert found["3"]["mixed"] == 100.0  # two against one
    assert found.keys() == {"1", "2", "3", "5", "9"}


def test_what_was_not_trained_is_named(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(mixed_trainings, "find_collection", lambda word, roots, work: made())
    assert main(["made0", "--work", str(tmp_path), "--out", str(tmp_path / "none.json")]) == 2
    assert "made0+rpc.npz is not there; train it with benchmarks/folder_methods.py" in capsys.readouterr().err


def test_the_page_has_the_tables_of_the_records() -> None:
    page = (TOP / "docs" / "studies" / "31-folder-methods.md").read_text()
    chosen, confirmed = (
        json.loads((TOP / RECORD).with_name(name).read_text())["rows"]
        for name in ("mixed.json", "confirmed.json")
    )
    assert (len(chosen), len(confirmed)) == (19, 12)
    assert not chosen.keys() & confirmed.keys()
    assert table(chosen) in page
    assert table(confirmed) in page
    assert "thirteen" not in table(confirmed)


def test_the_table_counts_those_that_chose_nothing_apart() -> None:
    def row(rpc: float, mixed: float) -> dict:
        return {
            str(n): {"rpc": rpc, "uno": 60.0} | ({"mixed": mixed} if n > 1 else {}) for n in (1, 2, 3, 5, 9)
        }

    lines = table({"cub4": row(50, 51), "cub7": row(50, 53), "cub8": row(50, 55)}).splitlines()
    assert lines[2] == "| 1 | 50.0 | 60.0 |  |  |  |"
    assert lines[3].startswith("| 2 | 50.0 | 60.0 | 53.0 | +3.0 (")
    assert lines[3].endswith("3 of 3 | +4.0 (-8.7 to 16.7), 2 of 2 |")
