"""Purity of a category: estimate with an interval, and whether it is as wide as several classes.

Where more classes lie in a collection than categories were asked for, some category holds several of them. Nothing
within it is then nearer to another category, so that no image of it looks doubtful; but it is wide. With D the mean
squared distance of two of its images, and from the labelled images D_same (two of one class; the widest class) and
D_other (two of different classes; the mean),

    q = (D_other - D) / (D_other - D_same)

estimates how many pairs of its images are of one class. Of the classes that would explain it, the largest has a share
of (1 + sqrt(2 q - 1)) / 2, or of q below one half.

The estimate is the mean of the probabilities of its images; what a person has said counts as right. It is as sure as
a look at WORTH of its images would make it: probabilities that are right on the whole are not so in every category.
The interval holds the truth in four categories out of five. docs/confidence.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from holotype.results.discovery import Category

MIN_IMAGES = 5
"""Labelled images that a class needs, and images that a category needs, for its width to be measured."""
APART_RATIO = 0.25
"""Where D_other is not larger than D_same by this share of itself, widths say nothing."""


def largest_share(u: np.ndarray, category: np.ndarray, target: np.ndarray, k: int) -> np.ndarray:
    """(K,) estimated share of the largest class in each category: 1 where it is no wider than a class may be.

    u: (N, D) unit features of the frozen backbone. category: (N,) below k, -1 = in none. target: (N,) class that an
    image is labelled with, -1 = none. Categories with labelled images count as narrow: their labels say what they are.
    """
    share = np.ones(k)
    mean, width, n = category_spread(u, target, k)
    classes = np.flatnonzero(n >= MIN_IMAGES)
    if len(classes) < 2:
        return share
    apart = ((mean[classes, None] - mean[classes]) ** 2).sum(axis=-1)
    apart += (width[classes, None] + width[classes]) / 2
    other, same = float(apart[np.triu_indices(len(classes), 1)].mean()), float(width[classes].max())
    if other - same < APART_RATIO * other:
        return share
    _, wide, images = category_spread(u, category, k)
    new = (images >= MIN_IMAGES) & (n == 0)
    q = np.clip((other - wide[new]) / (other - same), 0.0, 1.0)
    share[new] = np.where(q < 0.5, q, (1 + np.sqrt(np.maximum(2 * q - 1, 0))) / 2)
    return share


def category_spread(u: np.ndarray, group: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean (K, D) of each group, mean squared distance (K,) of two of its images, and its size (K,); -1 = in none."""
    n = np.bincount(group[group >= 0], minlength=k)
    mean, square = np.zeros((k, u.shape[1])), np.zeros(k)
    for c in np.flatnonzero(n):
        rows = u[group == c].astype(np.float64)
        mean[c] = rows.mean(axis=0)
        square[c] = ((rows - mean[c]) ** 2).sum()
    return mean, 2 * square / np.maximum(n - 1, 1), n


PRIOR_WEIGHT = 5
"""Images one would have to look at to know as much as the estimate knows."""
COVERAGE = 0.8
"""Share of the categories whose true purity the interval should hold."""
UNIFORM_PURITY, FAIRLY_PURE = 0.9, 0.7
"""Purity from which a category is called uniform, and fairly uniform; below it is mixed."""
WANTED_PURITY, SURE_LEVEL = 0.9, 0.95
"""The spot check: how sure one can be that more than this share is right."""


class Purity(NamedTuple):
    """Share of a category's images that are right: the estimate, and where the truth may lie."""

    share: float
    low: float
    high: float


def estimate_purity(probability: np.ndarray, told: np.ndarray) -> Purity:
    """probability: (n,) of the images of a category; told: (n,) bool, those of which a person has said what they show.

    NaN where nothing is known of any image.
    """
    p = np.where(told, 1.0, probability)
    there = np.isfinite(p)
    n, n_open = int(there.sum()), int((there & ~told).sum())
    if not n:
        return Purity(math.nan, math.nan, math.nan)
    share = float(p[there].mean())
    if not n_open:
        return Purity(1.0, 1.0, 1.0)
    right = purity_interval(float(p[there & ~told].mean()), n_open)
    low, high = ((n - n_open + images) / n for images in right)
    return Purity(share, min(low, share), max(high, share))


def purity_interval(share: float, n: int) -> tuple[float, float]:
    """How many of n images are right, at least and at most, with the certainty COVERAGE: quantiles of the beta-binomial
    distribution with mean `share`, of which PRIOR_WEIGHT looks are known."""
    from scipy.special import betaln  # scipy.stats takes half a second to import

    share = min(max(share, 1e-3), 1 - 1e-3)
    a, b, right = share * PRIOR_WEIGHT, (1 - share) * PRIOR_WEIGHT, np.arange(n + 1)
    log_p = betaln(right + a, n - right + b) - betaln(a, b) - betaln(right + 1, n - right + 1) - np.log(n + 1)
    tails = [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2]
    low, high = np.searchsorted(np.exp(log_p).cumsum(), tails).clip(max=n)
    return float(low), float(high)


def purity_text(purity: float) -> str:
    """What a category is called; the words mean the same in every run. "" where nothing is known."""
    if not math.isfinite(purity):
        return ""
    if purity >= UNIFORM_PURITY:
        return "uniform"
    return "fairly uniform" if purity >= FAIRLY_PURE else "a mixed group"


def sample_size_hint(n: int) -> int:
    """Return how many of n images to look at, drawn blindly: if all are right, one can be SURE_LEVEL sure that more
    than the share WANTED_PURITY of the n is. Exact (hypergeometric): 29 of very many, all of nine."""
    wrong = n - math.floor(WANTED_PURITY * n + 1e-9)
    """Fewest wrong images with which the claim would be false."""
    missed, looked = 1.0, 0
    while looked < n and missed > 1 - SURE_LEVEL:
        missed *= (n - wrong - looked) / (n - looked)
        looked += 1
    return looked


def purity_sentence(category: Category) -> str:
    """The purity of a category and how to check it, in two sentences; "" where nothing is known."""
    if not math.isfinite(category.purity):
        return ""
    share, low, high = (round(100 * v) for v in (category.purity, category.purity_low, category.purity_high))
    return f"About {share} % of its images are right ({low} to {high} %). {check_text(category.n)}".strip()


def check_text(n: int) -> str:
    """The spot check of a category of n images as a sentence."""
    looked = sample_size_hint(n)
    if not looked:
        return ""
    if looked == n:
        return f"Look at all {n}: only then do you know whether more than 90 % are right."
    return (
        f"Look at {looked} of its {n:,} images, drawn at random: if all are right, you can be 95 % sure that more than "
        "90 % are."
    )


def set_purity(
    categories: Collection[Category], ids: Sequence[str], probability: np.ndarray, told: np.ndarray
) -> None:
    """Write purity and its interval into categories. ids, probability, told: (N,) of the images, as in `estimate`."""
    rows: dict[str, list[int]] = {category.id: [] for category in categories}
    for row, id in enumerate(ids):
        if id in rows:
            rows[id].append(row)
    for category in categories:
        own = rows[category.id]
        category.purity, category.purity_low, category.purity_high = estimate_purity(
            probability[own], told[own]
        )
