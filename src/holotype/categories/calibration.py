"""How likely each image is in the right category: a probability that can be taken at its word.

The method's own score cannot: a network is sure of what it was trained on. So a second opinion is asked that took no
part in training. From the features of the frozen backbone, a linear discriminant learns the categories as they stand
from nine tenths of the images and judges the last tenth; the folds take turns. What a known class looks like is told by
its labelled images alone, since others may have strayed into it; what a new category looks like, by all of its images,
each of which counts, the second time, as much as the first opinion of it was worth. The answer for image x and
category c is

    p(c | x) = softmax_c (log n_c - |(u - m_c) W|^2 / 2) / T,

u: the centred feature at length 1, m_c: the mean of the n_c images of category c, W W^T = S^-1 of the shrunk scatter
within categories. How far to trust it is learned from the labelled images: T is the temperature at which the labels of
images that were held out are likeliest. For new categories, of which nobody has seen a label, it is the one at which
this holds for a discriminant that has seen no label either: known classes, treated as if they were new. Where these
have fewer such images than new categories have, that judge is worse than the one of new categories, and counts the less
(how_like). A new category that is too wide for one class (breadth.py) is trusted as far as its largest class may reach.
No hidden label plays a part. docs/confidence.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from holotype.categories.breadth import largest_share
from holotype.data.bursts import first_frames

FOLDS = 10
SHRINK = 0.3
"""Least weight of the identity in S; with few images N of many dimensions D it is D / (N + D)."""
FEW = 20
"""Labelled images below which T cannot be told; so it is if fewer than two classes have two of them."""
LEARN_FROM, JUDGE_BY = 20_000, 5_000
"""Images that the discriminant learns from, and labelled ones that T is chosen by, at most."""
TEMPERATURES = (0.2, 100.0)
LEAST = 0.01
"""Least weight of an image in the second opinion."""
ALONE = 5
"""Labelled images from which they speak for their class alone."""
POINTS = 20
"""Of the curve from the method's own scores to probabilities."""
CHUNK = 8192
"""Images looked at together: a million of them are never copied at once."""


@dataclass(frozen=True)
class Calibrated:
    """What `calibrate` found."""

    probability: np.ndarray
    """(N,) that an image is right where it was placed, as if it had no label; NaN for one that is in no category."""
    labelled: int
    """Labelled images that the trust was learned from; 0 where there were too few."""
    words: str
    """For the reader of a table: what the probability was learned from, or why it is none."""


def calibrate(
    embedded: np.ndarray, category: np.ndarray, target: np.ndarray, k: int, unit: np.ndarray | None = None
) -> Calibrated:
    """The second opinion of every image.

    embedded: (N, D) features of the frozen backbone. category: (N,) below k, -1 = in none. target: (N,) index of the
    class that an image is labelled with, -1 = it has no label. unit: (N,) equal for the frames of one burst: it counts
    once, and none of its frames is judged by what was learned from another one.
    """
    placed = np.asarray(category).astype(np.int64)
    target = np.where(placed >= 0, target, -1)
    opinion = Opinion(embedded, placed, k, unit)
    asked = opinion.once(target)
    told, labels = enough(asked), np.bincount(asked[asked >= 0], minlength=k)
    strangers = (target < 0) & np.append(labels >= ALONE, False)[placed]
    probability, heat = np.ones(len(placed)), np.ones(k)
    for _ in range(2):
        weight = np.where(target >= 0, 1.0, np.maximum(np.nan_to_num(probability), LEAST))
        opinion.learn(np.where(strangers, 0.0, weight))
        heat[:] = opinion.temperature(opinion.once(placed))
        if told:  # labels may say that it is less sure than it seems, never that it is surer
            heat = np.maximum(heat, opinion.temperature(asked))
        probability = opinion.own(heat)
    n = int((asked >= 0).sum())
    if told:
        blind = Opinion(embedded, placed, k, unit)
        blind.learn(np.where(target >= 0, 0.0, np.maximum(np.nan_to_num(probability), LEAST)))
        like = how_like(opinion.once(placed), target, labels > 0)
        new = heat * np.maximum(blind.temperature(asked) / heat, 1.0) ** like
        taught = opinion.taught
        share = largest_share(opinion.unit(taught), placed[taught], target[taught], k)
        probability = opinion.own(np.where(labels > 0, heat, new)) * np.append(share, np.nan)[placed]
    return Calibrated(probability, n if told else 0, in_words(n, told))


def how_like(placed: np.ndarray, target: np.ndarray, known: np.ndarray) -> float:
    """How far known classes without their labels are like new categories, from 0 to 1: the root of the ratio of their
    images, since what is learned from n images is as sure as the root of n. known: (K,) bool."""
    free = np.bincount(placed[(placed >= 0) & (target < 0)], minlength=len(known))
    new = free[~known & (free > 0)]
    return float(np.sqrt(min(np.median(free[known]) / np.median(new), 1.0))) if len(new) else 1.0


def curve(said: np.ndarray, opinion: Calibrated) -> tuple[tuple[float, float], ...]:
    """(score, probability) in rising order: what a method's own scores `said` (N,) are worth, in POINTS equal parts.

    Images that come later have no second opinion; their score is read off this curve. NaN = leave it out.
    """
    there = np.flatnonzero(np.isfinite(said) & np.isfinite(opinion.probability))
    rows = there[np.argsort(said[there], kind="stable")]
    parts = [part for part in np.array_split(rows, POINTS) if len(part)]
    x = np.maximum.accumulate([0.0, *(said[part].mean() for part in parts)])[1:]
    y = np.maximum.accumulate([0.0, *(opinion.probability[part].mean() for part in parts)])[1:]
    return tuple((round(float(a), 6), round(float(b), 6)) for a, b in zip(x, y, strict=True))


def read_off(said: np.ndarray, points: Sequence[Sequence[float]]) -> np.ndarray:
    """The probabilities that go with scores (N,) by a curve; the scores themselves where there is none."""
    if not points:
        return said
    x, y = np.array(points, dtype=float).T
    return np.where(np.isfinite(said), np.interp(said, x, y), np.nan).astype(said.dtype)


def enough(target: np.ndarray) -> bool:
    """Are there labelled images to judge the opinion by? target: (N,), -1 = no label."""
    sizes = np.bincount(target[target >= 0])
    return bool(sizes.sum() >= FEW and (sizes >= 2).sum() >= 2)


def in_words(labelled: int, told: bool) -> str:
    if told:
        return (
            f"The probability of an image is calibrated on {labelled:,} labelled images, each judged as if it had "
            "no label."
        )
    return (
        f"There are too few labelled images to calibrate the probability ({labelled:,}; at least {FEW} are needed, two "
        "each of two classes): it says which images are less sure than others, not how many of them are right."
    )


class Judge(NamedTuple):
    """What one fold was taught by the others."""

    whiten: np.ndarray
    """(D, D): W."""
    means: np.ndarray
    """(K, D): m_c W."""
    size: np.ndarray
    """(K,): log n_c, -inf for a category of which it has seen nothing."""

    def scores(self, u: np.ndarray) -> np.ndarray:
        """(n, D) -> (n, K): the logits of p(c | x) but for T."""
        x = u @ self.whiten
        square = (x**2).sum(axis=1)[:, None] - 2 * x @ self.means.T + (self.means**2).sum(axis=1)
        return self.size - square / 2


class Opinion:
    """A linear discriminant per fold, which judges the images of its fold and has seen none of them."""

    def __init__(
        self, embedded: np.ndarray, placed: np.ndarray, k: int, unit: np.ndarray | None = None
    ) -> None:
        """unit: (N,) equal for the frames of one burst, which lie in one fold, and of which the first is learned from;
        None where there are none."""
        self.embedded, self.placed, self.k = embedded, placed, k
        random = np.random.default_rng(0)
        self.rows = rows = first_frames(unit, np.flatnonzero(placed >= 0))
        self.taught = np.sort(random.permutation(rows)[:LEARN_FROM])
        self.fold = folds(placed, k, random)
        if unit is not None:
            own = np.full(int(unit.max(initial=-1)) + 1, -1)
            own[unit[rows]] = self.fold[rows]
            self.fold = np.where(placed >= 0, own[unit], -1)
        self.middle = np.asarray(embedded[self.taught], np.float64).mean(axis=0) if len(rows) else 0.0
        self.judges: list[Judge] = []

    def once(self, values: np.ndarray) -> np.ndarray:
        """(N,) the values of the images that count, -1 for the other frames of their bursts."""
        found = np.full(len(values), -1)
        found[self.rows] = values[self.rows]
        return found

    def learn(self, weight: np.ndarray) -> None:
        """weight: (N,) how much each image counts."""
        u, c, w = self.unit(self.taught), self.placed[self.taught], weight[self.taught]
        fold = self.fold[self.taught]
        self.judges = [teach(u[fold != f], c[fold != f], w[fold != f], self.k) for f in range(FOLDS)]

    def unit(self, rows: np.ndarray) -> np.ndarray:
        """(n, D) centred features at length 1."""
        x = np.asarray(self.embedded[rows], np.float64) - self.middle
        return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))

    def scores(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows and their scores (n, K), in parts."""
        for fold, judge in enumerate(self.judges):
            own = rows[self.fold[rows] == fold]
            for first in range(0, len(own), CHUNK):
                part = own[first : first + CHUNK]
                yield part, judge.scores(self.unit(part))

    def temperature(self, of: np.ndarray) -> float:
        """T at which the categories `of` (N,) are likeliest; -1 = leave the image out."""
        from scipy.optimize import minimize_scalar  # takes a third of a second to import

        rows = np.sort(np.random.default_rng(1).permutation(np.flatnonzero(of >= 0))[:JUDGE_BY])
        parts = [(scores, of[part]) for part, scores in self.scores(rows)]
        if not parts:
            return 1.0
        scores, wanted = (np.concatenate(column) for column in zip(*parts, strict=True))
        seen = np.isfinite(scores[np.arange(len(wanted)), wanted])

        def surprise(log_heat: float) -> float:
            p = own_share(scores[seen] / np.exp(log_heat), wanted[seen])
            return float(-np.log(np.maximum(p, 1e-12)).mean()) if len(p) else 0.0

        low, high = np.log(TEMPERATURES)
        return float(np.exp(minimize_scalar(surprise, bounds=(low, high), method="bounded").x))

    def own(self, heat: np.ndarray) -> np.ndarray:
        """(N,) p(own category | x); NaN where an image is in none. heat: (K,) T for the images of each category."""
        found = np.full(len(self.placed), np.nan)
        for part, scores in self.scores(np.flatnonzero(self.placed >= 0)):
            own = self.placed[part]
            found[part] = own_share(scores / heat[own][:, None], own)
        return found


def folds(placed: np.ndarray, k: int, random: np.random.Generator) -> np.ndarray:
    """(N,) fold of each image: every category is spread evenly; -1 for images in none."""
    fold = np.full(len(placed), -1)
    order = np.argsort(placed, kind="stable")
    borders = np.searchsorted(placed[order], np.arange(k + 1))
    for c in range(k):
        rows = order[borders[c] : borders[c + 1]]
        fold[rows] = (random.permutation(len(rows)) + random.integers(FOLDS)) % FOLDS
    return fold


def teach(u: np.ndarray, category: np.ndarray, weight: np.ndarray, k: int) -> Judge:
    """u: (n, D), category (n,) below k, weight (n,)."""
    dim = u.shape[1]
    n = np.bincount(category, weights=weight, minlength=k)
    total = np.zeros((k, dim))
    np.add.at(total, category, u * weight[:, None])
    mean = total / np.maximum(n, 1e-12)[:, None]
    rest = (u - mean[category]) * np.sqrt(weight)[:, None]
    mass = max(float(weight.sum()), 1e-12)
    covariance, share = rest.T @ rest / mass, max(SHRINK, dim / (int((weight > 0).sum()) + dim))
    variance = max(float(np.trace(covariance)) / dim, 1e-6)
    shrunk = (1 - share) * covariance + share * variance * np.eye(dim)
    whiten = np.linalg.cholesky(np.linalg.inv(shrunk))
    with np.errstate(divide="ignore"):
        return Judge(whiten, mean @ whiten, np.log(n / mass))


def own_share(logits: np.ndarray, own: Sequence[int] | np.ndarray) -> np.ndarray:
    """(n,) softmax of logits (n, K) at `own`; 0 where nothing is known of that category."""
    top = logits.max(axis=1, keepdims=True)
    rise = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
    return np.asarray(rise[np.arange(len(rise)), own] / np.maximum(rise.sum(axis=1), 1e-300))
