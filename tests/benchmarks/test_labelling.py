"""The played annotator answers from the truth, both orders alike, and the queue is worth its name."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from confidence import calibration_error, measure
from labelling import ORDERS, Play, finite, mean_curve, needed, play
from samples import Case, Found

from holotype.categories.calibration import calibrate
from holotype.data.table import Table


def found(seed: int = 0, n: int = 60) -> Found:
    """Six groups that overlap, three of them known; the method has put two of the new ones together."""
    random = np.random.default_rng(seed)
    index = np.repeat(np.arange(6), n)
    truth = np.array([f"class {i}" for i in index], dtype=object)
    embedded = 1.2 * random.normal(size=(6, 16))[index] + 2 * random.normal(size=(len(index), 16))
    label = np.where((index < 3) & (random.random(len(index)) < 0.4), truth, "").astype(object)
    table = Table(
        np.array([f"{i}.png" for i in range(len(index))], dtype=object),
        label,
        tuple(f"class {i}" for i in range(3)),
    )
    near = 1.2 * random.normal(size=(len(index), 6))
    near[np.arange(len(index)), index] += 2.5
    said = np.minimum(near.argmax(axis=1), 4)
    features = np.hstack([embedded, near]).astype(np.float32)
    case = Case("made", table, truth, 5, seed)
    return Found(case, 5, said, np.full(len(index), 0.99), features, embedded.astype(np.float32))


@pytest.mark.parametrize("order", ORDERS)
def test_answers_are_the_truth_and_nobody_is_asked_twice(order) -> None:
    one = Play(found(), order, seed=0)
    steps = one.steps(rounds=3, each=7)
    assert [step.answers for step in steps] == [0, 2, 9, 16]
    assert len(set(one.asked)) == 16
    assert not found().case.table.labelled[one.asked].any()
    truth = found().case.truth
    assert [one.label[row] for row in one.asked] == [truth[row] for row in one.asked]
    named = np.array([one.names.get(int(c), "") for c in steps[-1].category])
    assert (named[one.asked] == truth[one.asked]).all()  # a label has the last word
    assert set(one.names.values()) <= set(truth)


def test_the_first_questions_of_the_queue_are_about_new_categories() -> None:
    one = Play(found(), "queue", seed=0)
    one.steps(rounds=1, each=7)
    assert sorted(found().category[one.asked]) == [3, 4]
    assert len(one.names) == 5


def test_both_orders_begin_alike_and_the_same_seed_gives_the_same(capsys) -> None:
    rows = play(found(), 1, rounds=3, each=6)
    assert rows == play(found(), 1, rounds=3, each=6)
    first = {row["order"]: row["all"] for row in rows if row["answers"] == 0}
    assert first["queue"] == first["random"]
    assert all(0 <= row["untouched"] <= 1 for row in rows)
    json.dumps(rows)


def test_answers_needed_are_read_off_the_curve() -> None:
    def row(order, answers, score, seed=0):
        return {"case": "a", "seed": seed, "order": order, "answers": answers, "all": score}

    random = [row("random", 0, 0.5), row("random", 40, 0.6)]
    fast = [row("queue", 0, 0.5), row("queue", 10, 0.55), row("queue", 20, 0.65)]
    assert needed([*random, *fast], "all") == pytest.approx(
        {"goal": 0.6, "random": 40, "queue": 15, "ratio": 15 / 40}
    )
    never = needed([*random, row("queue", 0, 0.5), row("queue", 40, 0.59)], "all")
    assert finite([never])[0]["queue"] is None
    assert needed([*random, row("queue", 0, 0.7)], "all")["queue"] == 0
    two = [*fast, *(row("queue", a, s, 1) for a, s in ((0, 0.7), (10, 0.75), (20, 0.85)))]
    assert np.array(mean_curve(two, "all")) == pytest.approx(np.array([(0, 0.6), (10, 0.65), (20, 0.75)]))


def test_the_calibration_error_is_that_of_the_book() -> None:
    p = np.array([0.95] * 20 + [0.15] * 20)
    right = np.array([True] * 19 + [False] + [True] * 13 + [False] * 7)
    assert calibration_error(p, right) == pytest.approx(0.5 * 0 + 0.5 * (0.65 - 0.15))


def test_confidence_is_measured_against_the_truth() -> None:
    one, table = found(), found().case.table
    judged = calibrate(one.embedded, one.category, np.where(table.labelled, table.target, -1), one.k)
    probability = np.where(table.labelled, 1.0, judged.probability)
    ids = np.array([*table.known, *(f"new-{i}" for i in range(one.k))], dtype=object)[one.category]
    doubtful = probability < np.quantile(probability, 0.2)
    row = measure(one, pd.DataFrame({"category_id": ids, "probability": probability, "doubtful": doubtful}))
    assert row["error"] < row["own_error"]
    assert row["labelled"] == found().case.table.labelled.sum()
    assert 0 < row["doubtful"] < 0.3
    assert row["mistakes"] > row["doubtful"]
    assert 0 <= row["inside"] <= 1
    json.dumps(row)
