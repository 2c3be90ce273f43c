"""Reading a number off a curve: curves drawn by hand, whose answers are plain to see."""

from __future__ import annotations

import math

import numpy as np
import pytest

from holotype.clustering.k_curve import CountEstimate, CountPoint, read_curve, smoothed, standard_error
from holotype.errors import InputError

GRID = [5, 6, 7, 8, 10, 12, 14, 17, 20, 24]


def points(accuracy, silhouette=None, spread: float = 0.0) -> list[CountPoint]:
    """A curve on GRID; accuracy and silhouette are functions of K."""
    fall = silhouette or (lambda k: 1 / k)
    return [CountPoint(k, accuracy(k), fall(k), 0.5, spread) for k in GRID]


def hill(k: float) -> float:
    """Highest at 10, half of it gone at 30."""
    return 0.6 - 0.25 * math.log(k / 10) ** 2


def test_the_peak_lies_in_the_range() -> None:
    found = read_curve(points(hill), 5, 300, 24)
    assert found.low < 10 < found.high
    assert 9 <= found.best <= 11
    assert f"{found.low} to {found.high} categories" in found.words
    assert f"most likely {found.best}" in found.words


def test_more_labels_make_a_narrower_range() -> None:
    widths = []
    for n in (50, 300, 5000):
        found = read_curve(points(hill), 5, n, 24)
        widths.append(found.high - found.low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > widths[-1]


def test_runs_that_disagree_make_a_wider_range() -> None:
    sure, unsure = (read_curve(points(hill, spread=s), 5, 2000, 24) for s in (0.0, 0.1))
    assert unsure.high - unsure.low > sure.high - sure.low


def test_noise_does_not_move_the_answer_far() -> None:
    """Single lucky points are smoothed away."""
    noise = dict(zip(GRID, [0, 0.02, -0.02, 0.01, -0.02, 0.01, 0.02, -0.01, 0.02, 0], strict=True))
    found = read_curve(points(lambda k: hill(k) + noise[k]), 5, 300, 24)
    assert found.low <= 10 <= found.high
    assert 7 <= found.best <= 13


def test_a_sharp_peak_is_believed() -> None:
    """With many labels and runs that agree, one point that stands out is no noise."""
    found = read_curve(points(lambda k: 1.0 if k == 12 else 0.7), 5, 5000, 24)
    assert (found.low, found.best, found.high) == (12, 12, 12)
    assert found.words.startswith("12 categories")


def test_the_silhouette_decides_where_labels_cannot() -> None:
    flat = points(lambda k: 0.8, lambda k: 0.5 - 0.3 * abs(math.log(k / 14)))
    assert read_curve(flat, 5, 300, 24).best == 14
    assert "is highest at 14 and decides" in read_curve(flat, 5, 300, 24).words
    falling = read_curve(points(hill, lambda k: 1 / k), 5, 300, 24)
    assert "falls from 5 and does not decide" in falling.words
    contrary = read_curve(points(hill, lambda k: 0.5 - 0.3 * abs(math.log(k / 20))), 5, 3000, 24)
    assert (contrary.best, contrary.high) == (20, 20)
    assert contrary.low < 10
    assert "the range covers both" in contrary.words


def test_ends_of_the_search_are_told() -> None:
    nothing_new = read_curve(points(lambda k: 0.9 - 0.05 * (k - 5)), 5, 1000, 24)
    assert nothing_new.best == 5
    assert "perhaps nothing beyond the 5 known classes" in nothing_new.words
    open_end = read_curve(points(lambda k: 0.1 + 0.03 * k), 5, 1000, 24)
    assert (open_end.best, open_end.high) == (24, 24)
    assert "The search ended at 24" in open_end.words
    assert "ended" not in read_curve(points(lambda k: 0.1 + 0.03 * k), 5, 1000, 100).words


def test_without_labels() -> None:
    curve = points(lambda k: math.nan, lambda k: 0.5 - 0.2 * abs(math.log(k / 12)))
    found = read_curve(curve, 0, 0, 24)
    assert found.best == 12
    assert found.low < 12 < found.high
    assert found.by == "silhouette"
    one = [CountPoint(1, math.nan, math.nan, 1.0)]
    assert read_curve(one, 0, 0, 1).best == 1


def test_a_silhouette_without_a_clear_peak_leaves_more_open() -> None:
    """It falls slowly: up to 10 it is within a tenth of that at 5, and the range goes further to both sides."""
    found = read_curve(points(lambda k: math.nan, lambda k: 0.50 - 0.01 * (k - 5)), 1, 5, 24)
    assert (found.low, found.high) == (4, 12)
    assert found.best == 8  # halfway from 5 to 10
    assert "at 5, and within 10% of it up to 10" in found.words


def test_smoothing_keeps_straight_lines() -> None:
    """Local linear regression reproduces what is linear in log K, up to the ends."""
    k = np.arange(5, 25)
    line = smoothed(points(hill), [2 + 3 * math.log(k) for k in GRID], k)
    np.testing.assert_allclose(line, 2 + 3 * np.log(k), rtol=1e-6)


def test_standard_error() -> None:
    assert standard_error(0.5, 100, 0.0) == pytest.approx(0.05)
    assert standard_error(0.5, 100, 0.2) == pytest.approx(math.hypot(0.05, 0.1))
    assert standard_error(1.0, 8, 0.0) == pytest.approx(math.sqrt(0.9 * 0.1 / 8))


def test_a_damaged_estimate_is_refused() -> None:
    for content in ({}, {"points": [{"k": 3, "colour": 1}]}, {"points": 3}):
        with pytest.raises(InputError, match="cannot be read"):
            CountEstimate.from_dict(content)
