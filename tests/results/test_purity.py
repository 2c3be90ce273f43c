"""Purity with its interval, words that mean the same everywhere, and a spot check that keeps its promise."""

import math

import numpy as np
import pytest
from scipy.stats import hypergeom

from holotype.results.discovery import Category
from holotype.results.purity import (
    category_spread,
    check_text,
    estimate_purity,
    largest_share,
    purity_sentence,
    purity_text,
    sample_size_hint,
    set_purity,
)


def test_the_estimate_is_the_mean_and_what_people_said_is_right() -> None:
    p, nobody = np.array([0.5, 0.7, 0.9, 0.1]), np.zeros(4, dtype=bool)
    found = estimate_purity(p, nobody)
    assert found.share == pytest.approx(0.55)
    assert (found.low, found.high) == (0.25, 1.0)  # of four images
    many = estimate_purity(np.full(1600, 0.55), np.zeros(1600, dtype=bool))
    fewer = estimate_purity(np.full(900, 0.55), np.zeros(900, dtype=bool))
    assert 0.2 < many.low < 0.4 < 0.7 < many.high < 0.9
    assert (many.low, many.high) == pytest.approx((fewer.low, fewer.high), abs=0.005)
    half = estimate_purity(p, np.array([False, False, False, True]))
    assert half.share == pytest.approx((0.5 + 0.7 + 0.9 + 1) / 4)
    assert half.low > 0.25
    assert estimate_purity(p, ~nobody) == (1, 1, 1)
    assert math.isnan(estimate_purity(np.array([np.nan]), nobody[:1]).share)
    assert math.isnan(estimate_purity(np.zeros(0), nobody[:0]).share)
    for share in (0.0, 0.001, 0.5, 0.999, 1.0):
        found = estimate_purity(np.full(30, share), np.zeros(30, dtype=bool))
        assert 0 <= found.low <= found.share <= found.high <= 1


def test_words_have_one_meaning() -> None:
    assert [purity_text(x) for x in (1, 0.9, 0.89, 0.7, 0.69, 0, math.nan)] == [
        *("uniform", "uniform", "fairly uniform", "fairly uniform", "a mixed group", "a mixed group", "")
    ]


@pytest.mark.parametrize("n", [1, 5, 9, 10, 11, 29, 50, 99, 100, 101, 1000, 100_000])
def test_a_spot_check_keeps_its_promise(n) -> None:
    """With one right image too few for the claim, a check that finds nothing is rarer than 1 in 20, and one image
    fewer to look at would not do."""
    looked, wrong = sample_size_hint(n), n - math.floor(0.9 * n + 1e-9)
    assert 1 <= looked <= min(n, 29)
    assert hypergeom.pmf(0, n, wrong, looked) <= 0.05
    if looked > 1:
        assert hypergeom.pmf(0, n, wrong, looked - 1) > 0.05


def test_of_very_many_one_looks_at_29() -> None:
    assert [sample_size_hint(n) for n in (0, 5, 9, 1_000_000)] == [0, 5, 9, 29]
    assert "Look at all 9" in check_text(9)
    assert "Look at 29 of its 100,000 images, drawn at random" in check_text(100_000)
    assert check_text(0) == ""


def test_categories_get_their_purity() -> None:
    known, new, empty = categories = [
        Category("a", "a", "known", 2),
        Category("new-01", "x", "novel", 40),
        Category("e", "e", "known", 0),
    ]
    ids = ["a", "a", "", *["new-01"] * 40]
    set_purity(categories, ids, np.array([0.2, 0.4, 0.9, *[0.8] * 40]), np.array([True, *[False] * 42]))
    assert (known.purity, new.purity) == pytest.approx((0.7, 0.8))
    assert math.isnan(empty.purity)
    assert purity_sentence(new).startswith("About 80 % of its images are right (")
    assert "Look at 21 of its 40 images" in purity_sentence(new)
    assert purity_sentence(empty) == ""


def world(seed: int = 0, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit features of six classes, their class, and labels of half of the first three."""
    random = np.random.default_rng(seed)
    truth = np.repeat(np.arange(6), n)
    x = 3 * random.normal(size=(6, 32))[truth] + random.normal(size=(6 * n, 32))
    target = np.where((truth < 3) & (random.random(6 * n) < 0.5), truth, -1)
    return x / np.linalg.norm(x, axis=1, keepdims=True), truth, target


@pytest.mark.parametrize("seed", range(3))
def test_several_classes_in_one_category_are_seen(seed) -> None:
    u, truth, target = world(seed)
    assert largest_share(u, truth, target, 6) == pytest.approx(np.ones(6), abs=0.03)
    three = largest_share(u, np.where(truth >= 3, 3, truth), target, 6)[3]
    two = largest_share(u, np.where(truth == 4, 3, truth), target, 6)[3]
    strangers = np.where((truth == 4) & (np.arange(len(truth)) % 6 == 0), 3, truth)
    few = largest_share(u, strangers, target, 6)[3]
    assert 0.2 < three < 0.5
    assert three < two < 0.8
    assert two < few <= 1
    assert largest_share(u, np.where(truth >= 3, 0, truth), target, 6)[0] == 1  # labels say what it is


def test_without_two_classes_to_compare_with_nothing_is_said() -> None:
    u, truth, target = world()
    merged = np.where(truth >= 3, 3, truth)
    assert largest_share(u, merged, np.where(target == 0, 0, -1), 6).tolist() == [1] * 6
    noise = np.random.default_rng(1).normal(size=(360, 32))
    alike = noise / np.linalg.norm(noise, axis=1, keepdims=True)  # two of a class are as far apart as any two
    assert largest_share(alike, merged, target, 6).tolist() == [1] * 6


def test_the_spread_is_the_slow_loop() -> None:
    u, truth, _ = world(n=7)
    group = np.where(truth == 2, -1, truth)
    mean, wide, n = category_spread(u, group, 7)
    for c in (0, 1, 3):
        rows = u[group == c]
        pairs = [((a - b) ** 2).sum() for i, a in enumerate(rows) for b in rows[:i]]
        assert wide[c] == pytest.approx(np.mean(pairs))
        assert mean[c] == pytest.approx(rows.mean(axis=0))
    assert n.tolist() == [7, 7, 0, 7, 7, 7, 0]
    assert (wide[2], wide[6]) == (0, 0)
