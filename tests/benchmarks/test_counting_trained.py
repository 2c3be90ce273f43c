"""Counting on trained features: labels that training has seen take no part in the count."""

from __future__ import annotations

import json
from pathlib import Path

import counting_trained
import numpy as np
import pytest
from count_problems import whole
from counting_trained import ANSWERS, answer, halves, problems_of, table_of

from holotype.data.sources import load_table
from holotype.data.table import Table


@pytest.fixture
def squares(squares_folder) -> Table:
    return load_table(squares_folder / "squares.csv")


def test_halves_share_no_image_and_lose_none() -> None:
    label = np.array([0, 0, 0, 1, 1, -1, -1, 2])
    seen, unseen = halves(label)
    assert not ((seen >= 0) & (unseen >= 0)).any()
    assert np.array_equal(np.maximum(seen, unseen), label)
    assert np.bincount(seen[seen >= 0]).tolist() == [2, 1, 1]


def test_small_data_sets_are_problems_themselves(squares: Table) -> None:
    (problem,) = problems_of("squares", squares, 3)
    assert problem.name == "squares"
    assert problem.k == len(set(squares.truth))


def test_every_answer_is_there_and_told(squares: Table, tiny_backbone_file, monkeypatch) -> None:
    monkeypatch.setattr(counting_trained, "BACKBONE", str(tiny_backbone_file))
    monkeypatch.setattr(counting_trained, "STEPS", 2)
    monkeypatch.setattr(counting_trained, "BATCH", 16)
    truth, label = (np.asarray(column).astype(str) for column in (squares.truth, squares.label))
    problem = whole("squares", truth, label)
    # features that know the truth: the frozen answer is then right (or one more, as always where few classes are known)
    place = {name: i for i, name in enumerate(sorted(set(truth)))}
    noise = np.random.default_rng(0).normal(0, 0.01, (len(truth), len(place)))
    frozen = (np.eye(len(place))[[place[name] for name in truth]] + noise).astype(np.float32)
    line = answer(squares, frozen, problem, "cpu")
    assert line["k"] == len(place)
    assert line["frozen"] in (len(place), len(place) + 1)
    assert all(line[key] >= problem.known for key in ("frozen half", "trained half"))
    assert 1 <= line["used"] <= round(counting_trained.MORE * line["frozen"])
    told = table_of([line])
    assert told.splitlines()[0].count("|") == 5 + len(ANSWERS)
    assert "| squares | 64 |" in told


def test_the_page_shows_what_was_recorded() -> None:
    top = Path(__file__).parents[2]
    record = json.loads((top / "experiments" / "results" / "counting" / "trained.json").read_text())
    shown = table_of(record["problems"]).splitlines()[2:]  # the page has longer words in its head
    assert "\n".join(shown) in (top / "docs" / "how-many.md").read_text()
