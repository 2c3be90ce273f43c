"""Sums over seeds are those of the book."""

from __future__ import annotations

import numpy as np
import pytest
from corrections_table import interval, line, markdown, summarise, told_line
from scipy.stats import ttest_rel

FIRST, SECOND = [50.0, 52.0, 54.0, 49.0, 51.0], [53.0, 51.0, 58.0, 52.0, 55.0]


def row(name: str, seed: int, first: float, second: float) -> dict:
    return {
        "collection": name,
        "seed": seed,
        "images": 1000,
        "corrections": 80,
        "untouched": {"round 1": first, "corrected": first + 1, "round 2": second, "others": first - 1},
    }


def rows(name: str, shift: float = 0.0) -> list[dict]:
    return [row(name, seed, a + shift, b) for seed, (a, b) in enumerate(zip(FIRST, SECOND, strict=True))]


def test_the_difference_is_paired() -> None:
    one = summarise(rows("x"))["x"]
    assert one["difference"] == pytest.approx(2.6)
    assert one["over others"] == pytest.approx(3.6)
    book = ttest_rel(SECOND, FIRST).confidence_interval(0.95)
    assert one["difference, interval"] == pytest.approx([book.low, book.high], abs=0.01)
    assert (one["rise"], one["pairs"]) == (4, 5)
    assert one["round 1"] == pytest.approx([np.mean(FIRST), np.std(FIRST, ddof=1) / np.sqrt(5)], abs=1e-3)
    assert interval([1.0]) is None


def test_the_mean_is_over_the_seeds_that_all_have() -> None:
    told = summarise([*rows("x"), *rows("y", 4.0)[:4]])
    assert list(told) == ["x", "y", "mean"]
    four = np.array(SECOND[:4]) - np.array(FIRST[:4])
    assert told["mean"]["difference"] == pytest.approx(np.mean(four) - 2, abs=1e-3)
    assert (told["mean"]["rise"], told["mean"]["pairs"]) == (4, 9)
    assert "mean" not in summarise(rows("x"))
    assert summarise([]) == {}


def test_a_table_has_a_row_for_each_collection_and_their_mean() -> None:
    lines = markdown([*rows("x"), *rows("y", 4.0)]).splitlines()
    assert len(lines) == 5
    assert "| x | 1,000 | 80 | 51.2 ± 0.9 | 52.2 ± 0.9 | 53.8 ± 1.2 | 50.2 ± 0.9 | +2.6 | (" in lines[2]
    assert lines[4].startswith("| mean |  | 80 | ")
    assert "| 4 of 10 |" in lines[4]


def test_lines_tell_what_was_done() -> None:
    full = row("x", 3, 50.0, 53.0) | {
        "everything": {"round 1": 48.0, "corrected": 50.0, "round 2": 54.0},
        "k": [11, 12],
        "edits": {"confirm": 20, "move": 20},
        "labels": 58,
        "seconds": [60.2, 50.0],
    }
    said = line(full)
    assert (
        "x seed 3 untouched  50.0 ->  51.0 ->  53.0  everything  48.0 ->  50.0 ->  54.0  k 11 -> 12" in said
    )
    assert "80 corrections (confirm 20 move 20), 58 labels  60 + 50 s" in said
    assert "others 49.0; round 2 - round 1: +3.0 -, 1 of 1 rise" in told_line("x", summarise([full])["x"])
