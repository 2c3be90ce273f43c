"""Cross-fitted shrinkage LDA on frozen features, and its linear form for new images.

Of |(u - m_c) W|^2 only the part that differs between categories matters, and it is linear in u:

    p(c | x) = softmax_c (A_c u + b_c),    A_c = m_c W W^T / T,    b_c = (log n_c - |m_c W|^2 / 2) / T.

Such an image lies in the category c for which

    q_c = (v_c + p_c) / 2

is largest, v_c being what the model says, in the place of votes (weighing.py). A model knows the images that it was
trained on better than others, and the frozen features know them all alike. docs/place-new-images.md has the figures.

A linear discriminant learns the categories as they stand from the features of the frozen backbone: from nine tenths of
the images, and judges the last tenth; the folds take turns. What a known class looks like is told by its labelled
images alone, since others may have strayed into it; what a new category looks like, by all of its images, each of which
counts, the second time, as much as the first opinion of it was worth. The answer for image x and category c is

    p(c | x) = softmax_c (log n_c - |(u - m_c) W|^2 / 2) / T,

u: the centred feature at length 1, m_c: the mean of the n_c images of category c, W W^T = S^-1 of the shrunk scatter
within categories. T is the temperature at which the labels of images that were held out are likeliest. No hidden label
plays a part. calibration.py makes probabilities of it, weighing.py gives it a say, and kept_opinion.py is what is left
of it for images that come later.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from holotype.data.table import first_frames


@dataclass(frozen=True)
class LinearHead:
    """Of K categories, by the features of the frozen backbone in D dimensions."""

    middle: np.ndarray
    """(D,) float32: the mean of the features, which is taken away before they are brought to length 1."""
    slope: np.ndarray
    """(K, D) float32: A."""
    offset: np.ndarray
    """(K,) float32: b; -inf for a category of which nothing was seen."""

    def shares(self, embedded: np.ndarray) -> np.ndarray:
        """(n, K) p(c | x) of images by their features (n, D) of the frozen backbone."""
        return softmax(center_rows(embedded, self.middle) @ self.slope.T + self.offset)


def center_rows(embedded: np.ndarray, middle: np.ndarray) -> np.ndarray:
    """(n, D) float64: features less their mean, at length 1."""
    x = np.asarray(embedded, np.float64) - middle
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


def softmax(logits: np.ndarray) -> np.ndarray:
    """(n, K) softmax of logits (n, K); 0 for a category of which nothing is known, whose logit is -inf."""
    top = logits.max(axis=1, keepdims=True)
    rise = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
    return np.asarray(rise / np.maximum(rise.sum(axis=1, keepdims=True), 1e-300))


FOLDS = 10
SHRINKAGE = 0.3
"""Least weight of the identity in S; with few images N of many dimensions D it is D / (N + D)."""
FEW_ROWS = 20
"""Labelled images below which T cannot be told; so it is if fewer than two classes have two of them."""
TRAIN_ROWS, EVALUATE_ROWS = 20_000, 5_000
"""Images that the discriminant learns from, and labelled ones that T is chosen by, at most."""
TEMPERATURES = (0.2, 100.0)
NO_LDA = 1e-9
"""Sum of weights below which a category has not been seen: what differences of sums leave of it."""
MIN_ROWS = 0.01
"""Least weight of an image in the second opinion."""
SINGLE_CLASS_WEIGHT = 5
"""Labelled images from which they speak for their class alone."""
FLOOR = 0.1
"""f: what a category without a vote has left."""
LDA_CHUNK = 8192
"""Images looked at together: a million of them are never copied at once."""


class Scorer(Protocol):
    """Whoever else has a say: the votes of several trainings (agreement.py), or what one says (runs/predict.py)."""

    def shares(self, images: np.ndarray) -> np.ndarray:
        """(n, K) what they say of some images; NaN = nothing."""


def can_calibrate(target: np.ndarray) -> bool:
    """Are there labelled images to judge the opinion by? target: (N,), -1 = no label."""
    sizes = np.bincount(target[target >= 0])
    return bool(sizes.sum() >= FEW_ROWS and (sizes >= 2).sum() >= 2)


class LDA(NamedTuple):
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


class CrossFitLDA:
    """A linear discriminant per fold, which judges the images of its fold and has seen none of them."""

    def __init__(
        self, embedded: np.ndarray, placed: np.ndarray, k: int, unit: np.ndarray | None = None
    ) -> None:
        """unit: (N,) equal for the frames of one burst, which lie in one fold, and of which the first is learned from;
        None where there are none."""
        self.embedded, self.placed, self.k, dim = embedded, placed, k, embedded.shape[1]
        random = np.random.default_rng(0)
        self.rows = rows = first_frames(unit, np.flatnonzero(placed >= 0))
        self.taught = np.sort(random.permutation(rows)[:TRAIN_ROWS])
        self.fold = assign_folds(placed, k, random)
        if unit is not None:
            own = np.full(int(unit.max(initial=-1)) + 1, -1)
            own[unit[rows]] = self.fold[rows]
            self.fold = np.where(placed >= 0, own[unit], -1)
        self.middle = np.zeros(dim)
        if len(rows):
            self.middle = np.asarray(embedded[self.taught], np.float64).mean(axis=0)
        self.heat = 1.0  # T, once it is formed
        self.whole = LDAStats.of(np.empty((0, dim)), placed[:0], np.empty(0), k)
        self.judges: list[LDA] = []

    def once(self, values: np.ndarray) -> np.ndarray:
        """(N,) the values of the images that count, -1 for the other frames of their bursts."""
        found = np.full(len(values), -1)
        found[self.rows] = values[self.rows]
        return found

    def form(self, target: np.ndarray) -> np.ndarray:
        """Learn twice, the second time from what the first opinion was worth: (N,) p(own category | x).

        target: (N,) index of the class that an image is labelled with, -1 = it has no label.
        """
        asked = self.once(target)
        labels = np.bincount(asked[asked >= 0], minlength=self.k)
        strangers = (target < 0) & np.append(labels >= SINGLE_CLASS_WEIGHT, False)[self.placed]
        probability = np.ones(len(self.placed))
        for _ in range(2):
            weight = np.where(strangers, 0.0, np.where(target >= 0, 1.0, sample_weight(probability)))
            self.learn(weight)
            self.heat = self.temperature(self.once(self.placed))
            if can_calibrate(
                asked
            ):  # labels may say that it is less sure than it seems, never that it is surer
                self.heat = max(self.heat, self.temperature(asked))
            probability = self.own(np.full(self.k, self.heat))
        return probability

    def learn(self, weight: np.ndarray) -> None:
        """weight: (N,) how much each image counts."""
        u, c, w = self.unit(self.taught), self.placed[self.taught], weight[self.taught]
        fold = self.fold[self.taught]
        each = [LDAStats.of(u[fold == f], c[fold == f], w[fold == f], self.k) for f in range(FOLDS)]
        self.whole = functools.reduce(LDAStats.plus, each)
        self.judges = [self.whole.plus(one, -1).judge() for one in each]

    def kept(self) -> LinearHead:
        """For images that come later, taught by all folds."""
        judge = self.whole.judge()
        slope = judge.means @ judge.whiten.T / self.heat
        offset = (judge.size - (judge.means**2).sum(axis=1) / 2) / self.heat
        return LinearHead(*(np.asarray(part, np.float32) for part in (self.middle, slope, offset)))

    def unit(self, rows: np.ndarray) -> np.ndarray:
        """(n, D) centred features at length 1."""
        return center_rows(self.embedded[rows], self.middle)

    def scores(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows and their scores (n, K), in parts."""
        for fold, judge in enumerate(self.judges):
            own = rows[self.fold[rows] == fold]
            for first in range(0, len(own), LDA_CHUNK):
                part = own[first : first + LDA_CHUNK]
                yield part, judge.scores(self.unit(part))

    def temperature(self, of: np.ndarray) -> float:
        """T at which the categories `of` (N,) are likeliest; -1 = leave the image out."""
        from scipy.optimize import minimize_scalar  # takes a third of a second to import

        rows = np.sort(np.random.default_rng(1).permutation(np.flatnonzero(of >= 0))[:EVALUATE_ROWS])
        parts = [(scores, of[part]) for part, scores in self.scores(rows)]
        if not parts:
            return 1.0
        scores, wanted = (np.concatenate(column) for column in zip(*parts, strict=True))
        seen = np.isfinite(scores[np.arange(len(wanted)), wanted])

        def surprise(log_heat: float) -> float:
            p = own_class_share(scores[seen] / np.exp(log_heat), wanted[seen])
            return float(-np.log(np.maximum(p, 1e-12)).mean()) if len(p) else 0.0

        low, high = np.log(TEMPERATURES)
        return float(np.exp(minimize_scalar(surprise, bounds=(low, high), method="bounded").x))

    def own(self, heat: np.ndarray, votes: Scorer | None = None) -> np.ndarray:
        """(N,) p(own category | x); NaN where an image is in none. heat: (K,) T for the images of each category. votes:
        of trainings, which count as much (see pool)."""
        found = np.full(len(self.placed), np.nan)
        for part, scores in self.scores(np.flatnonzero(self.placed >= 0)):
            own = self.placed[part]
            logits = scores / heat[own][:, None]
            pooled = logits if votes is None else log_pool(logits, votes.shares(part))
            found[part] = own_class_share(pooled, own)
        return found


def log_pool(logits: np.ndarray, votes: np.ndarray) -> np.ndarray:
    """(n, K) logits of the logarithmic pool of two opinions, sqrt((v_c + f) p_c) but for a factor. votes: (n, K), NaN =
    nobody has voted, and p stands."""
    return np.where(np.isnan(votes), logits, (logits + np.log(votes + FLOOR)) / 2)


def sample_weight(probability: np.ndarray) -> np.ndarray:
    """(N,) how much an image without a label counts. probability: (N,), NaN = in no category."""
    return np.maximum(np.nan_to_num(probability), MIN_ROWS)


def assign_folds(placed: np.ndarray, k: int, random: np.random.Generator) -> np.ndarray:
    """(N,) fold of each image: every category is spread evenly; -1 for images in none."""
    fold = np.full(len(placed), -1)
    order = np.argsort(placed, kind="stable")
    borders = np.searchsorted(placed[order], np.arange(k + 1))
    for c in range(k):
        rows = order[borders[c] : borders[c + 1]]
        fold[rows] = (random.permutation(len(rows)) + random.integers(FOLDS)) % FOLDS
    return fold


class LDAStats(NamedTuple):
    """Sums over images from which a judge is made. Those of all folds but one are those of all less its own, so that
    each image is multiplied once and not nine times."""

    n: np.ndarray
    """(K,) sum of the weights of each category."""
    total: np.ndarray
    """(K, D) of the weighed features of each category."""
    square: np.ndarray
    """(D, D) of the weighed products of the features."""
    seen: int
    """Images that have a weight."""

    @classmethod
    def of(cls, u: np.ndarray, category: np.ndarray, weight: np.ndarray, k: int) -> LDAStats:
        """u: (n, D), category (n,) below k, weight (n,)."""
        weighed, total = u * weight[:, None], np.zeros((k, u.shape[1]))
        order = np.argsort(category, kind="stable")
        there, first = np.unique(category[order], return_index=True)
        if len(there):
            total[there] = np.add.reduceat(weighed[order], first)
        n = np.bincount(category, weights=weight, minlength=k)
        return cls(n, total, weighed.T @ u, int((weight > 0).sum()))

    def plus(self, other: LDAStats, sign: int = 1) -> LDAStats:
        sums = self.n + sign * other.n, self.total + sign * other.total, self.square + sign * other.square
        return LDAStats(*sums, self.seen + sign * other.seen)

    def judge(self) -> LDA:
        n = np.where(self.n > NO_LDA, self.n, 0.0)
        mean = self.total / np.maximum(n, NO_LDA)[:, None] * (n > 0)[:, None]
        dim, mass = len(self.square), max(float(n.sum()), NO_LDA)
        covariance = (self.square - (mean * n[:, None]).T @ mean) / mass
        share = max(SHRINKAGE, dim / (self.seen + dim))
        variance = max(float(np.trace(covariance)) / dim, 1e-6)
        shrunk = (1 - share) * covariance + share * variance * np.eye(dim)
        whiten = np.linalg.cholesky(np.linalg.inv(shrunk))
        with np.errstate(divide="ignore"):
            return LDA(whiten, mean @ whiten, np.log(n / mass))


def own_class_share(logits: np.ndarray, own: Sequence[int] | np.ndarray) -> np.ndarray:
    """(n,) the share of the category `own` of each."""
    return np.asarray(softmax(logits)[np.arange(len(logits)), own])
