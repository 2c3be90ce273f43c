"""The queue asks what is worth most, nothing twice, and nothing that people have answered."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import holotype
from holotype.results.discovery import Discovery, write_features
from holotype.results.review_queue import (
    LEAST_SURE,
    QUEUE_COLUMNS,
    QUEUE_FILE,
    SIMILAR,
    SUREST,
    questions,
    write_queue,
)
from tests.discovery.made_round import made_discovery

FEATURES = np.eye(30, dtype=np.float32)


@pytest.fixture
def found() -> Discovery:
    """Ten images in each of three categories; probabilities rise with the number of the image."""
    groups = {"a": list(range(10)), "new-01": list(range(10, 20)), "new-02": list(range(20, 30))}
    discovery = made_discovery("r-1", groups, paths=[f"{i:02d}.png" for i in range(30)])
    discovery.images["probability"] = np.linspace(0.2, 0.9, 30)
    return discovery


def asked(found: Discovery, features: np.ndarray | None = FEATURES, why: str = "", **more) -> list[int]:
    return [int(q.path[:2]) for q in questions(found, features, **more) if why in q.why]


def test_first_the_surest_of_each_new_category_then_the_least_sure(found) -> None:
    assert asked(found, why=SUREST) == [19, 29]
    assert asked(found) == [19, 29, 0, 1, 10, 11, 20, 21]  # at most two of a category
    assert [len(asked(found, most=most)) for most in (0, 3)] == [2, 5]


def test_what_is_nearly_alike_is_asked_once(found) -> None:
    alike = FEATURES.copy()
    alike[1] = alike[0] + 0.1 * alike[1]  # nearly the first image
    alike[2] = alike[0] + 0.9 * alike[2]
    alike[10] = alike[19]  # as good as the surest of its category
    assert alike[0] @ alike[1] / np.linalg.norm(alike[1]) > SIMILAR
    assert asked(found, alike, LEAST_SURE) == [0, 2, 11, 12, 20, 21]
    assert asked(found, None, LEAST_SURE)[:2] == [0, 1]


def test_a_burst_is_asked_about_once(found) -> None:
    group = [""] * 30
    group[19] = group[29] = "torn"  # the surest of both new categories
    group[0] = group[1] = group[2] = "three"
    group[10], group[15], found.images.loc[15, "note"] = "answered", "answered", "confirmed by hand"
    found.images["group"] = group
    assert asked(found) == [29, 0, 3, 11, 12, 20, 21]
    found.images.loc[15, "note"] = ""
    assert asked(found)[:2] == [19, 28]


def test_nobody_is_asked_what_was_said_already(found) -> None:
    found.images.loc[0, "label"] = "a"
    found.images.loc[[1, 15], "note"] = ["moved by hand", "confirmed by hand"]
    found.images.loc[20, ["note", "category_id", "category"]] = ["rejected", "", ""]
    found.images.loc[21, ["category_id", "category"]] = ""  # could not be read
    assert asked(found, why=SUREST) == [29]  # new-01 has an answer
    assert asked(found, why=LEAST_SURE) == [2, 3, 10, 11, 22, 23]
    found.images["probability"] = float("nan")
    assert asked(found) == []


def test_the_file_says_what_to_ask(found, tmp_path) -> None:
    found = found.called({"new-01": "=owls"})
    found.save(tmp_path)
    write_features(tmp_path, FEATURES)
    write_queue(tmp_path)
    rows = list(csv.DictReader((tmp_path / QUEUE_FILE).open(encoding="utf-8-sig")))
    assert tuple(rows[0]) == QUEUE_COLUMNS
    assert [row["number"] for row in rows] == [str(i + 1) for i in range(8)]
    assert rows[0]["category"] == "'=owls"  # no spreadsheet takes it for a formula
    assert rows[1]["question"] == "What is this? new-02 is made of images like it."
    assert rows[2]["question"] == "Is this a? If not, what is it?"
    assert [q.path for q in holotype.questions(found, FEATURES)] == [row["path"] for row in rows]
