"""The queue asks what is worth most, nothing twice, and nothing that people have answered."""

import csv

import numpy as np
import pytest

import holotype
from holotype.results.discovery import Discovery, write_features
from holotype.results.review_queue import (
    DOUBTFUL,
    QUEUE_COLUMNS,
    QUEUE_FILE,
    SUREST,
    questions,
    rank_by_gain,
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
    """Images at right angles tell nothing of each other."""
    assert asked(found, why=SUREST) == [19, 29]
    assert asked(found, why=DOUBTFUL) == [i for i in range(29) if i != 19]
    assert [len(asked(found, most=most)) for most in (0, 3)] == [2, 5]


def test_what_is_nearly_alike_is_asked_once(found) -> None:
    alike = FEATURES.copy()
    alike[1] = alike[0] + 0.1 * alike[1]  # nearly the first image
    alike[10] = alike[19]  # as good as the surest of its category
    order = asked(found, alike, DOUBTFUL)
    assert order[0] in (0, 1)  # an answer serves both
    assert {*order[-2:]} == {({0, 1} - {order[0]}).pop(), 10}
    assert asked(found, None, DOUBTFUL)[:2] == [0, 1]


def slow_gains(
    x: np.ndarray, doubt: np.ndarray, rows: list[int], answered: list[int], most: int
) -> tuple[list[int], list[float]]:
    """The equation, one image at a time; w is half the median of the squared distance to the fifth neighbour."""
    centred = x - x[rows].mean(axis=0)
    u = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    far = [[float(((u[i] - u[j]) ** 2).sum()) for j in rows] for i in rows]
    w = 0.5 * float(np.median([sorted(row)[5] for row in far]))

    def likeness(i: int, j: int) -> float:
        return float(np.exp(-((u[i] - u[j]) ** 2).sum() / w))

    left = {j: doubt[j] * np.prod([1 - likeness(j, a) for a in answered]) for j in rows}
    picked, gains = [], []
    for _ in range(most):
        gain = {i: sum(likeness(i, j) * left[j] for j in rows) for i in rows if i not in picked}
        best = max(gain, key=lambda i: gain[i])
        picked.append(best)
        gains.append(gain[best])
        left = {j: left[j] * (1 - likeness(best, j)) for j in rows}
    return picked, gains


def test_the_answer_that_takes_away_most_doubt_comes_first() -> None:
    random = np.random.default_rng(0)
    x = (np.eye(6)[np.arange(60) % 6] + 0.3 * random.normal(size=(60, 6))).astype(np.float32)
    doubt, rows, answered = random.random(60), list(range(50)), [55, 57]
    picked, gains = rank_by_gain(x, doubt, np.array(rows), np.array(answered), 12)
    slow, expected = slow_gains(x.astype(float), doubt, rows, answered, 12)
    assert picked == slow
    assert gains == pytest.approx(expected, rel=1e-4)
    assert gains == sorted(gains, reverse=True)
    none = x.copy()
    none[picked[0]] = np.nan
    assert picked[0] not in rank_by_gain(none, doubt, np.array(rows), np.array(answered), 50)[0]
    assert rank_by_gain(x, doubt, np.array([], dtype=int), np.array(answered), 12) == ([], [])


def test_of_many_images_some_are_candidates(monkeypatch) -> None:
    monkeypatch.setattr("holotype.results.review_queue.CANDIDATES", 20)
    x = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    picked, _ = rank_by_gain(x, np.ones(300), np.arange(250), np.arange(250, 300), 40)
    assert len(set(picked)) == 20


def test_a_burst_is_asked_about_once(found) -> None:
    group = [""] * 30
    group[19] = group[29] = "torn"  # the surest of both new categories
    group[0] = group[1] = group[2] = "three"
    group[10], group[15], found.images.loc[15, "note"] = "answered", "answered", "confirmed by hand"
    found.images["group"] = group
    assert asked(found)[:1] == [29]
    order = asked(found, why=DOUBTFUL)
    assert len({0, 1, 2} & {*order}) == 1
    assert not {10, 15, 19} & {*order}
    found.images.loc[15, "note"] = ""
    assert asked(found)[:2] == [19, 28]


def test_nobody_is_asked_what_was_said_already(found) -> None:
    found.images.loc[0, "label"] = "a"
    found.images.loc[[1, 15], "note"] = ["moved by hand", "confirmed by hand"]
    found.images.loc[20, ["note", "category_id", "category"]] = ["rejected", "", ""]
    found.images.loc[21, ["category_id", "category"]] = ""  # could not be read
    assert asked(found, why=SUREST) == [29]  # new-01 has an answer
    assert asked(found, why=DOUBTFUL) == [i for i in range(2, 29) if i not in (15, 20, 21)]
    found.images["probability"] = float("nan")
    assert asked(found) == []


def test_the_file_says_what_to_ask(found, tmp_path) -> None:
    found = found.called({"new-01": "=owls"})
    found.save(tmp_path)
    write_features(tmp_path, FEATURES)
    write_queue(tmp_path)
    rows = list(csv.DictReader((tmp_path / QUEUE_FILE).open(encoding="utf-8-sig")))
    assert tuple(rows[0]) == QUEUE_COLUMNS
    assert [row["number"] for row in rows] == [str(i + 1) for i in range(30)]
    assert rows[0]["category"] == "'=owls"  # no spreadsheet takes it for a formula
    assert rows[1]["question"] == "What is this? new-02 is made of images like it."
    assert rows[2]["question"] == "Is this a? If not, what is it?"
    assert [q.path for q in holotype.questions(found, FEATURES)] == [row["path"] for row in rows]
