"""Provisional categories: the score against its equation, what is attached, what is created, and repeated calls."""

import math

import numpy as np
import pytest

from holotype.results.open_set import ClassModel, OpenCategories

DIM, KNOWN, NEW, EACH = 10, 8, 3, 30


def world(seed: int = 0, noise: float = 0.4) -> tuple[np.ndarray, np.ndarray]:
    """Eleven classes round unit directions; the last three are nobody's."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(9).normal(size=(KNOWN + NEW, DIM))
    label = np.repeat(np.arange(KNOWN + NEW), EACH)
    return (centres[label] + noise * random.normal(size=(len(label), DIM))).astype(np.float32), label


@pytest.fixture
def model() -> ClassModel:
    x, y = world()
    known = y < KNOWN
    return ClassModel.fit(x[known], y[known], np.arange(known.sum()) % 3 == 0, KNOWN)


def density(x: float, mean: float, variance: float) -> float:
    return -0.5 * ((x - mean) ** 2 / variance + math.log(2 * math.pi * variance))


def test_the_score_is_the_equation(model) -> None:
    random = np.random.default_rng(1)
    x, mean, n = random.normal(size=DIM), random.normal(size=(3, DIM)), np.array([1, 4, 50])
    slow = [
        sum(
            density(x[i], count * b / (count * b + 1) * m[i], 1 + b / (count * b + 1))
            - density(x[i], 0, 1 + b)
            for i, b in enumerate(model.between)
        )
        for m, count in zip(mean, n, strict=True)
    ]
    assert model.scores(x, mean, n) == pytest.approx(slow)
    assert model.scores(x, mean, np.array([1, 0, 50]))[1] == -np.inf


def test_known_images_reach_the_threshold_and_others_open_categories(model) -> None:
    x, y = world(seed=1)
    z = model.coordinates(x)
    opened = OpenCategories.of(z[:0], np.empty(0, np.int64), DIM)
    number = opened.place(model, z[np.random.default_rng(2).permutation(len(z))])
    order = np.random.default_rng(2).permutation(len(z))
    assert (number[y[order] < KNOWN] < 0).mean() > 0.85
    assert (number[y[order] >= KNOWN] >= 0).mean() > 0.85
    large = np.flatnonzero(opened.n >= EACH // 3)
    assert len(large) == NEW
    for one in large:
        assert np.bincount(y[order][number == one]).max() == (number == one).sum()
    np.testing.assert_array_equal(np.bincount(number[number >= 0], minlength=len(opened.n)), opened.n)


def test_images_that_come_later_join_what_is_open(model) -> None:
    x, y = world(seed=1)
    z = model.coordinates(x)[y == KNOWN]
    first = OpenCategories.of(z[:0], np.empty(0, np.int64), DIM)
    before = first.place(model, z[:10])
    assert set(before) == {0}
    again = OpenCategories.of(z[:10], before, DIM)
    np.testing.assert_allclose(again.total, first.total)
    assert set(again.place(model, z[10:])) == {0}
    assert again.n.tolist() == [EACH]


def test_scale_and_unread_images_mean_nothing() -> None:
    x, y = world()
    known = y < KNOWN
    inside, labelled = np.where(np.arange(known.sum()) % 7 == 0, -1, y[known]), np.ones(known.sum(), bool)
    model = ClassModel.fit(x[known], inside, labelled, KNOWN)
    broken = x[known].copy()
    broken[inside < 0] = np.nan
    other = ClassModel.fit(broken, y[known], labelled, KNOWN)
    assert other.threshold == pytest.approx(model.threshold)
    scaled = ClassModel.fit(7 * x[known], inside, labelled, KNOWN)
    assert scaled.threshold == pytest.approx(model.threshold, rel=1e-4)
