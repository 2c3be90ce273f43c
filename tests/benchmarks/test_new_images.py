"""Images that come after a discovery: which they are, who judges them, and what counts as right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from new_images import RECORD, WAYS, divide, judge, scored, table
from tests.benchmarks.test_folder_methods import Y, made

TOP = Path(__file__).resolve().parents[2]


def test_labelled_images_are_there_and_a_third_of_the_others_comes_later() -> None:
    there, later = divide(made())
    labelled = np.flatnonzero(made().table.labelled)
    assert set(labelled) <= set(there)
    assert sorted([*there, *later]) == list(range(40))
    assert len(later) == int(0.35 * 30)
    assert divide(made())[1].tolist() == later.tolist()


def test_the_judge_knows_categories_by_the_images_that_are_there() -> None:
    random = np.random.default_rng(0)
    x = np.eye(4, 6)[Y] + 0.1 * random.normal(size=(40, 6))
    there, later = divide(made())
    said = judge(x[there], Y[there], x[later], 5)
    assert said.argmax(axis=1).tolist() == Y[later].tolist()
    assert said.sum(axis=1) == pytest.approx(1)
    assert (said[:, 4] == 0).all()  # of which there is no image


def test_a_category_stands_for_what_it_is_among_the_images_that_are_there() -> None:
    """Two new classes are swapped in number, which is no mistake; a category that nobody had is."""
    there, later = divide(made())
    swapped = np.where(Y == 2, 3, np.where(Y == 3, 2, Y))
    ways = {"model": swapped[later], "frozen": np.where(Y[later] == 3, 4, swapped[later])}
    row = scored(made(), there, later, swapped[there], ways)
    assert (row["there"], row["model"]) == (100.0, 100.0)
    assert row["frozen"] == pytest.approx(100 * (Y[later] != 3).mean(), abs=0.01)


def test_the_page_has_the_table_of_the_record() -> None:
    rows = json.loads((TOP / RECORD).read_text())["rows"]
    assert table(rows) in (TOP / "docs" / "place-new-images.md").read_text()
    for row in rows.values():
        assert set(WAYS) < row.keys()
        assert row["made"]["commit"]
