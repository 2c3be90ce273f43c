"""How many images of a category are right: an estimate with an interval, what it is called, and how to check it.

The estimate is the mean of the probabilities of its images; what a person has said counts as right. It is as sure as
a look at WORTH of its images would make it: probabilities that are right on the whole are not so in every category.
The interval holds the truth in four categories out of five. docs/confidence.md has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from holotype.categories.found import Category

WORTH = 2.9
"""Images one would have to look at to know as much as the estimate knows."""
INSIDE = 0.8
"""Share of the categories whose true purity the interval should hold."""
UNIFORM, FAIRLY = 0.9, 0.7
"""Purity from which a category is called uniform, and fairly uniform; below it is mixed."""
WANTED, SURE = 0.9, 0.95
"""The spot check: how sure one can be that more than this share is right."""


@dataclass(frozen=True)
class Purity:
    """Share of a category's images that are right: the estimate, and where the truth may lie."""

    share: float
    low: float
    high: float


def estimate(probability: np.ndarray, told: np.ndarray) -> Purity:
    """probability: (n,) of the images of a category; told: (n,) bool, those of which a person has said what they show.

    NaN where nothing is known of any image.
    """
    p = np.where(told, 1.0, probability)
    p = p[np.isfinite(p)]
    if not len(p):
        return Purity(math.nan, math.nan, math.nan)
    share, open_share = float(p.mean()), float(1 - told.mean())
    if open_share == 0:
        return Purity(1.0, 1.0, 1.0)
    of_open = (share - (1 - open_share)) / open_share
    low, high = (1 - open_share + open_share * end for end in interval(of_open))
    return Purity(share, min(low, share), max(high, share))


def interval(share: float) -> tuple[float, float]:
    """Where the truth lies with INSIDE certainty if `share` is the mean of a Beta distribution worth WORTH looks."""
    from scipy.stats import beta  # takes a while to import

    share = min(max(share, 1e-3), 1 - 1e-3)
    ends = beta.ppf([(1 - INSIDE) / 2, (1 + INSIDE) / 2], share * WORTH, (1 - share) * WORTH)
    return float(ends[0]), float(ends[1])


def in_words(purity: float) -> str:
    """What a category is called; the words mean the same in every run. "" where nothing is known."""
    if not math.isfinite(purity):
        return ""
    return "uniform" if purity >= UNIFORM else "fairly uniform" if purity >= FAIRLY else "a mixed group"


# -- the spot check -----------------------------------------------------------------------------------


def look_at(n: int, wanted: float = WANTED, sure: float = SURE) -> int:
    """How many of n images to look at, drawn blindly: if all are right, one can be `sure` that more than the `wanted`
    share of the n is. Exact (hypergeometric): 29 of very many, all of nine."""
    wrong = n - math.floor(wanted * n + 1e-9)
    """Fewest wrong images with which the claim would be false."""
    missed, looked = 1.0, 0
    while looked < n and missed > 1 - sure:
        missed *= (n - wrong - looked) / (n - looked)
        looked += 1
    return looked


def at_least(n: int, looked: int, wrong: int, sure: float = SURE) -> float:
    """Share of n images that one can be `sure` is right at least, after `wrong` of `looked` were not. Exact."""
    if not 0 <= wrong <= looked <= n or not n:
        return math.nan
    from scipy.stats import hypergeom

    low, high = (
        wrong,
        n - (looked - wrong),
    )  # of all n, so many are wrong; the chance to find so few falls with it
    while low < high:
        middle = (low + high + 1) // 2
        likely = hypergeom.cdf(wrong, n, middle, looked) > 1 - sure
        low, high = (middle, high) if likely else (low, middle - 1)
    return 1 - low / n


def draw(paths: Iterable[str], n: int, seed: int = 0) -> list[str]:
    """n of the images, drawn at random: a spot check of the typical ones would say nothing of the others."""
    every = sorted(paths)
    rows = np.random.default_rng(seed).permutation(len(every))[:n]
    return [every[row] for row in rows]


def told(category: Category) -> str:
    """The purity of a category and how to check it, in two sentences; "" where nothing is known."""
    if not math.isfinite(category.purity):
        return ""
    share, low, high = (round(100 * v) for v in (category.purity, category.purity_low, category.purity_high))
    return (
        f"About {share} % of its images are right ({low} to {high} %). {check_in_words(category.n)}".strip()
    )


def check_in_words(n: int) -> str:
    """The spot check of a category of n images as a sentence."""
    looked = look_at(n)
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
        found = estimate(probability[rows[category.id]], told[rows[category.id]])
        category.purity, category.purity_low, category.purity_high = found.share, found.low, found.high
