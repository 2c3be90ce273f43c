"""The queue asks what is worth most, nothing twice, and nothing that people have answered."""

from __future__ import annotations

import csv
from collections import Counter

import numpy as np

import holotype
from holotype.results.discovery import Discovery, write_features
from holotype.results.review_queue import (
    MIN_GAIN,
    PER_CATEGORY,
    QUEUE_COLUMNS,
    QUEUE_FILE,
    SIMILAR,
    SUREST_SHARE,
    questions,
    write_queue,
)
from tests.discovery.made_round import made_discovery

PATHS = [f"{i:02d}.png" for i in range(30)]
GROUPS = {"a": list(range(10)), "new-01": list(range(10, 20)), "new-02": list(range(20, 30))}


def found() -> Discovery:
    """Ten images in each of three categories; probabilities rise with the number of the image."""
    discovery = made_discovery("r-1", GROUPS, paths=PATHS)
    discovery.images["probability"] = np.linspace(0.2, 0.9, 30)
    return discovery


def features() -> np.ndarray:
    return np.eye(30, dtype=np.float32)


def test_first_the_surest_of_each_new_category_then_the_least_sure() -> None:
    asked = questions(found(), features())
    assert [(q.path, q.why) for q in asked] == [
        *(("19.png", SUREST_SHARE), ("29.png", SUREST_SHARE)),
        *((path, MIN_GAIN) for path in ("00.png", "01.png", "10.png", "11.png", "20.png", "21.png")),
    ]
    assert max(Counter(q.category_id for q in asked if q.why == MIN_GAIN).values()) == PER_CATEGORY
    assert [len(questions(found(), features(), most)) for most in (0, 3)] == [2, 5]


def test_what_is_nearly_alike_is_asked_once() -> None:
    alike = features()
    alike[1] = alike[0] + 0.1 * alike[1]  # nearly the first image
    alike[2] = alike[0] + 0.9 * alike[2]
    alike[10] = alike[19]  # as good as the surest of its category
    assert alike[0] @ alike[1] / np.linalg.norm(alike[1]) > SIMILAR
    paths = [q.path for q in questions(found(), alike) if q.why == MIN_GAIN]
    assert paths == ["00.png", "02.png", "11.png", "12.png", "20.png", "21.png"]
    assert [q.path for q in questions(found()) if q.why == MIN_GAIN][:2] == ["00.png", "01.png"]


def test_a_burst_is_asked_about_once() -> None:
    discovery = found()
    group = [""] * 30
    group[19] = group[29] = "torn"  # the surest of both new categories
    group[0] = group[1] = group[2] = "three"
    group[10], group[15], discovery.images.loc[15, "note"] = "answered", "answered", "confirmed by hand"
    discovery.images["group"] = group
    asked = [q.path for q in questions(discovery, features())]
    assert asked == ["29.png", "00.png", "03.png", "11.png", "12.png", "20.png", "21.png"]
    discovery.images.loc[15, "note"] = ""
    assert [q.path for q in questions(discovery, features())][:2] == ["19.png", "28.png"]


def test_nobody_is_asked_what_was_said_already() -> None:
    discovery = found()
    discovery.images.loc[0, "label"] = "a"
    discovery.images.loc[[1, 15], "note"] = ["moved by hand", "confirmed by hand"]
    discovery.images.loc[20, ["note", "category_id", "category"]] = ["rejected", "", ""]
    discovery.images.loc[21, ["category_id", "category"]] = ""  # could not be read
    asked = questions(discovery, features())
    assert [q.path for q in asked if q.why == SUREST_SHARE] == ["29.png"]  # new-01 has an answer
    assert [q.path for q in asked if q.why == MIN_GAIN] == [
        "02.png",
        "03.png",
        "10.png",
        "11.png",
        "22.png",
        "23.png",
    ]


def test_a_queue_without_probabilities_is_empty() -> None:
    discovery = found()
    discovery.images["probability"] = float("nan")
    assert questions(discovery, features()) == []


def test_the_file_says_what_to_ask(tmp_path) -> None:
    discovery = found().called({"new-01": "=owls"})
    discovery.save(tmp_path)
    write_features(tmp_path, features())
    write_queue(tmp_path)
    rows = list(csv.DictReader((tmp_path / QUEUE_FILE).open(encoding="utf-8")))
    assert tuple(rows[0]) == QUEUE_COLUMNS
    assert [row["number"] for row in rows] == [str(i + 1) for i in range(8)]
    assert rows[0]["category"] == "'=owls"  # no spreadsheet takes it for a formula
    assert rows[1]["question"] == "What is this? new-02 is made of images like it."
    assert rows[2]["question"] == "Is this a? If not, what is it?"
    assert [q.path for q in holotype.questions(discovery, features())] == [row["path"] for row in rows]
