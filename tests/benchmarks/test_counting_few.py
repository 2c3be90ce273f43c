"""Collections of a few known classes: how they are drawn, and what the page says of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from count_problems import few_known
from counting_few import main, table

TOP = Path(__file__).resolve().parents[2]
RECORD = TOP / "experiments" / "results" / "counting" / "few.json"
TRUTH = np.repeat([f"c{i:02d}" for i in range(30)], 40)


@pytest.mark.parametrize("known", [1, 3])
def test_problems_are_small_and_say_the_truth(known: int) -> None:
    for problem in few_known("made", TRUTH, known, range(20)):
        classes, sizes = np.unique(TRUTH[problem.rows], return_counts=True)
        assert problem.k == len(classes)
        assert known < problem.k <= 3 * known + 2
        assert len(set(sizes)) == 1
        assert 15 <= sizes[0] <= 40
        assert problem.known == known
        labelled = np.bincount(problem.label[problem.label >= 0])
        assert len(set(labelled)) == 1
        assert 4 <= labelled[0] <= sizes[0] // 2
        assert len(set(TRUTH[problem.rows[problem.label >= 0]])) == known


def test_the_same_number_is_the_same_problem() -> None:
    (one,), (other,) = (list(few_known("made", TRUTH, 2, [7])) for _ in range(2))
    assert (one.rows == other.rows).all()


def test_the_table_is_by_the_number_of_known_classes() -> None:
    def problem(known: int, k: int, estimate: int, low: int, high: int) -> dict:
        return {"known": known, "k": k, "estimate": estimate, "low": low, "high": high}

    lines = table([problem(2, 4, 2, 2, 2), problem(2, 4, 5, 3, 12), problem(3, 10, 10, 8, 8)]).splitlines()
    assert lines[2] == "| 2 | 2 | 38 % | -12 % | 50 % | 50 % | ± 50 % |"
    assert lines[3] == "| 3 | 1 | 0 % | +0 % | 0 % | 0 % | ± 0 % |"


def test_the_page_has_the_table_of_the_record() -> None:
    problems = json.loads(RECORD.read_text())["problems"]
    assert table(problems) in (TOP / "docs" / "how-many.md").read_text()


def test_without_a_file_to_write_a_sentence_says_so(capsys) -> None:
    assert main(["--datasets", "cub"]) == 2
    assert "Name the file to write" in capsys.readouterr().err
