"""Images that come after a discovery: which they are, who judges them, and what counts as right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from new_images import CHOSE, ONE, RECORD, WAYS, Case, divide, measure, table, table_of_one
from tests.benchmarks.test_folder_methods import Y, made

TOP = Path(__file__).resolve().parents[2]
FIRST = {"cub": 43, "cifar": 43, "sample": 23}
"""Of the six collections of each kind that the rule names."""


def test_labelled_images_are_there_and_a_third_of_the_others_comes_later() -> None:
    there, later = divide(made())
    labelled = np.flatnonzero(made().table.labelled)
    assert set(labelled) <= set(there)
    assert sorted([*there, *later]) == list(range(40))
    assert len(later) == int(0.35 * 30)
    assert divide(made())[1].tolist() == later.tolist()


def case(wrong: int = 0) -> Case:
    """Four classes far apart; the discovery calls the two new ones otherwise, and the model errs on each image whose
    row is a multiple of `wrong`."""
    there, later = divide(made())
    swapped = np.where(Y == 2, 3, np.where(Y == 3, 2, Y))
    said = np.where(np.arange(40) % wrong == 0, (swapped + 1) % 4, swapped) if wrong else swapped
    word = 0.6 * np.eye(4)[said] + 0.1
    embedded = np.eye(4, 6)[Y] + 0.1 * np.random.default_rng(0).normal(size=(40, 6))
    return Case(made(), there, later, swapped[there], word[there], word[later], embedded)


def test_a_category_stands_for_what_it_is_among_the_images_that_are_there() -> None:
    """Two new classes are swapped in number, which is no mistake."""
    row = measure(case())
    assert {row[name] for name in ("there", *WAYS, *ONE)} == {100.0}


def test_where_the_model_errs_the_opinion_puts_it_right() -> None:
    row, one = measure(case(wrong=5)), case(wrong=5)
    assert row["there"] == row["frozen"] == row["both"] == 100
    assert row["model"] == pytest.approx(100 * (one.later % 5 != 0).mean(), abs=0.01)
    assert row["one there"] < row["one weighed"]
    assert 0 <= row["both error"] <= 1


def test_the_opinion_of_an_image_that_is_there_is_of_those_that_have_not_learned_from_it() -> None:
    of = case()
    opinion = of.opinion(of.category)
    both = of.beside(opinion)
    for part, scores in opinion.scores(np.arange(len(of.there))):
        p = np.exp(scores / opinion.heat)
        expected = (of.word_there[part] + p / p.sum(axis=1, keepdims=True)) / 2
        np.testing.assert_allclose(both[part], expected)


def test_those_that_chose_are_told_apart() -> None:
    row = dict.fromkeys(("there", *WAYS, *ONE), 50.0) | {"model error": 0.1, "both error": 0.1}
    rows = {
        "cub40": row,
        "cub41": row,
        "cub43": row | {"both": 52.0},
        "cub44": row,
        "sample23": row | {"both": 56.0},
    }
    rows["sample24"] = rows["sample23"]
    lines = table(rows).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == [
        "| those that chose",
        "| all others",
        "| of CUB",
        "| of the sample",
    ]
    assert "+3.5" in lines[1]


def test_the_page_has_the_tables_of_the_record() -> None:
    rows = json.loads((TOP / RECORD).read_text())["rows"]
    page = (TOP / "docs" / "studies" / "33-new-images.md").read_text()
    assert table(rows) in page
    assert table_of_one(rows) in page
    assert set(rows) == set(CHOSE) | {
        f"{kind}{n}" for kind, first in FIRST.items() for n in range(first, first + 6)
    }
    assert all(row["made"]["commit"] for row in rows.values())
