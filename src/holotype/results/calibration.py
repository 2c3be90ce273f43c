"""How likely each image is in the right category: a probability that can be taken at its word.

The method's own score cannot: a network is sure of what it was trained on. So a second opinion is asked that took no
part in training (lda.py). How far to trust it is learned from the labelled images: its temperature is the one at
which the labels of images that were held out are likeliest. For new categories, of which nobody has seen a label, it is
the one at which this holds for a discriminant that has seen no label either: known classes, treated as if they were
new. Where these have fewer such images than new categories have, that judge is worse than the one of new categories,
and counts the less (shrinkage). A new category that is too wide for one class is trusted as far as its
largest class may reach. Where labels are too few, the temperature is the one at which the placements by each training
and partition are likeliest: where they disagree, the opinion cannot be sure. What the trainings say counts as much as
the opinion. Where a rehearsal was made on hidden labels (discovery/rehearsal.py), both together are raised to the power
at which their mean is what came true there. No truth that the user has not said plays a part.
docs/confidence.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from holotype.results.lda import (
    EVALUATE_ROWS,
    FEW_ROWS,
    CrossFitLDA,
    Scorer,
    can_calibrate,
    own_class_share,
    sample_weight,
)
from holotype.results.purity import largest_share

CURVE_POINTS = 20
"""Of the curve from scores to probabilities."""
WORTH = 50
"""Hidden labels that count as much as what the probabilities say of themselves."""
POWERS = (0.1, 10.0)


class HiddenLabels(NamedTuple):
    """Of known classes, or of classes that were hidden as a whole, in a rehearsal."""

    right: float
    """Share that was placed right."""
    n: int


@dataclass(frozen=True)
class CalibratedScores:
    """What `calibrate` found."""

    probability: np.ndarray
    """(N,) that an image is right where it was placed, as if it had no label; NaN for one that is in no category."""
    labelled: int
    """Labelled images that the trust was learned from; 0 where there were too few."""
    partitions: int
    """Trainings and partitions that it was learned from instead; 0 where labels were enough, or one placed all."""
    words: str
    """For the reader of a table: what the probability was learned from, or why it is none."""
    opinion: CrossFitLDA
    """As it was formed."""


def calibrate(
    embedded: np.ndarray,
    category: np.ndarray,
    target: np.ndarray,
    k: int,
    unit: np.ndarray | None = None,
    votes: Scorer | None = None,
    rehearsed: Sequence[HiddenLabels] = (),
) -> CalibratedScores:
    """The second opinion of every image.

    embedded: (N, D) features of the frozen backbone. category: (N,) below k, -1 = in none. target: (N,) index of the
    class that an image is labelled with, -1 = it has no label. unit: (N,) equal for the frames of one burst: it counts
    once, and none of its frames is judged by what was learned from another one. votes: what the trainings say that have
    placed the images. rehearsed: how they fared on hidden labels of known classes, and of hidden classes.
    """
    placed = np.asarray(category).astype(np.int64)
    target = np.where(placed >= 0, target, -1)
    opinion = CrossFitLDA(embedded, placed, k, unit)
    asked = opinion.once(target)
    first = opinion.form(target)
    n, told = int((asked >= 0).sum()), can_calibrate(asked)
    partitions = 0
    if not told and votes is not None:
        others = [opinion.once(np.where(target < 0, one, -1)) for one in votes.placements()]
        if partitions := len(others):
            opinion.heat = max(opinion.heat, opinion.temperature(*others))
    heat = opinion.heat
    trust, share, power = np.full(k, heat), np.ones(k), np.ones(k)
    if told:
        labels = np.bincount(asked[asked >= 0], minlength=k)
        blind = CrossFitLDA(embedded, placed, k, unit)
        blind.learn(np.where(target >= 0, 0.0, sample_weight(first)))
        like = shrinkage(opinion.once(placed), target, labels > 0)
        new = heat * max(blind.temperature(asked) / heat, 1.0) ** like
        trust = np.where(labels > 0, heat, new)
        taught = opinion.taught
        share = largest_share(opinion.unit(taught), placed[taught], target[taught], k)
        open_rows = opinion.rows[target[opinion.rows] < 0]
        for test, own in zip(rehearsed, (labels > 0, labels == 0), strict=False):
            power[own] = matching_power(opinion, open_rows[own[placed[open_rows]]], trust, votes, share, test)
    probability = opinion.own(trust, votes, power) * np.append(share, np.nan)[placed]
    # nothing was seen of a category but the image that is asked about
    probability[np.append(np.bincount(opinion.once(placed) + 1, minlength=k + 1)[1:], 0)[placed] == 1] = (
        np.nan
    )
    words = calibration_text(n, told, partitions)
    return CalibratedScores(probability, n if told else 0, partitions, words, opinion)


def matching_power(
    opinion: CrossFitLDA,
    rows: np.ndarray,
    trust: np.ndarray,
    votes: Scorer | None,
    share: np.ndarray,
    test: HiddenLabels,
) -> float:
    """The power of the opinions on some images at which the mean probability is what hidden labels of their kind say,
    as far as there are enough of these."""
    from scipy.optimize import minimize_scalar  # takes a third of a second to import

    rows = np.sort(np.random.default_rng(2).permutation(rows)[:EVALUATE_ROWS])
    if not len(rows) or not test.n:
        return 1.0
    part, logits = (
        np.concatenate(column) for column in zip(*opinion.pooled(rows, trust, votes), strict=True)
    )
    own = opinion.placed[part]

    def mean(power: float) -> float:
        return float((own_class_share(power * logits, own) * share[own]).mean())

    goal = (test.n * test.right + WORTH * mean(1.0)) / (test.n + WORTH)
    low, high = np.log(POWERS)
    found = minimize_scalar(lambda log: (mean(np.exp(log)) - goal) ** 2, bounds=(low, high), method="bounded")
    return float(np.exp(found.x))


def shrinkage(placed: np.ndarray, target: np.ndarray, known: np.ndarray) -> float:
    """How far known classes without their labels are like new categories, from 0 to 1: the root of the ratio of their
    images, since what is learned from n images is as sure as the root of n. known: (K,) bool."""
    free = np.bincount(placed[(placed >= 0) & (target < 0)], minlength=len(known))
    new = free[~known & (free > 0)]
    return float(np.sqrt(min(np.median(free[known]) / np.median(new), 1.0))) if len(new) else 1.0


def calibration_curve(said: np.ndarray, probability: np.ndarray) -> tuple[tuple[float, float], ...]:
    """(score, probability) in rising order: what scores `said` (N,) are worth, in POINTS equal parts.

    probability: (N,) calibrated. The score of an image that comes later is read off this curve. NaN = leave it out.
    """
    there = np.flatnonzero(np.isfinite(said) & np.isfinite(probability))
    rows = there[np.argsort(said[there], kind="stable")]
    parts = [part for part in np.array_split(rows, CURVE_POINTS) if len(part)]
    x = np.maximum.accumulate([0.0, *(said[part].mean() for part in parts)])[1:]
    y = np.maximum.accumulate([0.0, *(probability[part].mean() for part in parts)])[1:]
    return tuple((round(float(a), 6), round(float(b), 6)) for a, b in zip(x, y, strict=True))


def interpolate(said: np.ndarray, points: Sequence[Sequence[float]]) -> np.ndarray:
    """The probabilities that go with scores (N,) by a curve; the scores themselves where there is none."""
    if not points:
        return said
    x, y = np.array(points, dtype=float).T
    return np.where(np.isfinite(said), np.interp(said, x, y), np.nan).astype(said.dtype)


def calibration_text(labelled: int, enough: bool, partitions: int = 0) -> str:
    if enough:
        return f"Probabilities are calibrated on {labelled:,} labelled images, each judged as if it had no label."
    if partitions:
        return (
            f"There are too few labelled images to calibrate the probability ({labelled:,}; at least {FEW_ROWS} are "
            f"needed), so it says how far the {partitions} partitions that voted agree."
        )
    return (
        f"There are too few labelled images to calibrate the probability ({labelled:,}; at least {FEW_ROWS} are "
        "needed, two each of two classes): it says which images are less sure than others, not how many are right."
    )
