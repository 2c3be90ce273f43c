"""Cross-fitted shrinkage LDA on frozen features, and its linear form for new images.

Of |(u - m_c) W|^2 only the part that differs between categories matters, and it is linear in u:

    p(c | x) = softmax_c (A_c u + b_c),    A_c = m_c W W^T / T,    b_c = (log n_c - |m_c W|^2 / 2) / T.

Such an image lies in the category c for which

    q_c = (v_c + p_c) / 2

is largest, v_c being what the model says, in the place of votes (ensemble.py). A model knows the images that it was
trained on better than others, and the frozen features know them all alike. docs/place-new-images.md has the figures.

A linear discriminant learns the categories as they stand from the features of the frozen backbone: from nine tenths of
the images, and judges the last tenth; the folds take turns. What a known class looks like is told by its labelled
images alone, since others may have strayed into it; what a new category looks like, by all of its images, each of which
counts, the second time, as much as the first opinion of it was worth. The answer for image x and category c is

    p(c | x) = softmax_c (log n_c - |(u - m_c) W|^2 / 2) / T,

u: the centred feature at length 1, m_c: the mean of the n_c images of category c, W W^T = S^-1 of the shrunk scatter
within categories. T is the temperature at which the labels of images that were held out are likeliest. No hidden label
plays a part. calibration.py makes probabilities of it, ensemble.py gives it a say, and `CorrectedModel` is what is left
of it for images that come later.

The Mahalanobis test of a new image (`Centroids`):

A new image *fits nothing* if it lies further from every centre than 99 % of the images that the categories were made
of lie from the nearest one. Far is measured in units of the scatter within categories (Mahalanobis),

    d^2 = min_c (u - m_c)^T S^-1 (u - m_c) / (1 + 1 / n_c),

u: the feature at length 1, m_c: the mean of the n_c images of category c, S: the covariance of u - m_c over all
categories, shrunk towards a multiple of the identity. A step in a direction in which images of one category never
differ is then a long one, which a cosine does not see. The probability is no help: pictures of noise get high ones
(docs/place-new-images.md has the numbers, and how this rule was chosen).

A category that no image was in has vanished: what a method puts there goes to the nearest centre instead, and
never fits.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from holotype.data.table import first_frames

FAR_QUANTILE = 0.01
"""Share of the images at hand that lie further from all centres than the limit."""
SHRINKAGE = 0.3
"""Least weight of the identity in S; with few images N of many dimensions D it is D / (N + D)."""
SMALLEST = 1e-6
"""Least variance of a direction, for images that are all the same."""
STEPS = np.linspace(0, 1, 101)
"""Shares at which the cosines of a category are kept, for the typicality of new images."""
CHUNK = 8192
"""Images looked at together: a million of them are never copied at once."""


@dataclass
class Centroids:
    """K categories in D dimensions; those without an image have n = 0 and a mean of zeros."""

    mean: np.ndarray
    """(K, D) float32: m_c."""
    n: np.ndarray
    """(K,) int64: n_c."""
    cosine: np.ndarray
    """(K, 101) float32, rising: quantiles of the cosine of a category's images with its centre."""
    whiten: np.ndarray
    """(D, D) float32: W with W W^T = S^-1, so that d is the length of (u - m_c) W."""
    limit: np.ndarray
    """() float32: images with a larger d fit nothing; infinite where no category has two images."""

    @classmethod
    def measure(cls, features: np.ndarray, category: np.ndarray, k: int) -> Centroids:
        """features (N, D), category (N,) below k; images with -1 or with NaN do not count."""
        mean, n = category_means(features, category, k)
        centre, dim = unit_rows(mean), features.shape[1]
        near, scatter = np.full(len(features), np.nan, dtype=np.float32), np.zeros((dim, dim))
        for rows, u in placed_chunks(features, category):
            c = category[rows]
            near[rows] = (u * centre[c]).sum(axis=1)
            scatter += (rest := (u - mean[c]).astype(np.float64)).T @ rest
        cosine = np.zeros((k, len(STEPS)), dtype=np.float32)
        for present in np.flatnonzero(n):
            cosine[present] = np.quantile(near[(category == present) & np.isfinite(near)], STEPS)
        total = int(n.sum())
        whiten = whitening(scatter / max(total, 1), total).astype(np.float32)
        found = cls(mean, n, cosine, whiten, np.array(np.inf, dtype=np.float32))
        chunks = ((u, category[rows]) for rows, u in placed_chunks(features, category))
        spread = [found.distance(u, c)[n[c] > 1] for u, c in chunks]
        if sum(len(part) for part in spread):
            found.limit = np.array(np.quantile(np.concatenate(spread), 1 - FAR_QUANTILE), dtype=np.float32)
        return found

    def distance(self, u: np.ndarray, part_of: np.ndarray | None = None) -> np.ndarray:
        """d (N,) of unit features u (N, D). part_of (N,): the category of images that the means were made of."""
        used = np.flatnonzero(self.n)
        if not len(used):
            return np.full(len(u), np.inf, dtype=np.float32)
        x, m = u @ self.whiten, self.mean[used] @ self.whiten
        square = np.maximum((x**2).sum(axis=1)[:, None] - 2 * x @ m.T + (m**2).sum(axis=1), 0)
        n = self.n[used]
        square /= 1 + 1 / n
        if part_of is not None:
            # an image lies nearer to a mean that it is a part of: by 1 - 1/n instead of 1 + 1/n
            own = np.searchsorted(used, part_of), np.arange(len(u))
            square[own[1], own[0]] *= ((n + 1) / np.maximum(n - 1, 1))[own[0]]
        return np.sqrt(square.min(axis=1))

    def judge(self, features: np.ndarray, category: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """category (N,) with vanished ones replaced, typicality (N,) in [0, 1], fits (N,) bool.

        typicality: the share of the category's images that are no nearer to its centre (in cosine) than this one.
        """
        u, category, centre = unit_rows(features), category.copy(), unit_rows(self.mean)
        vanished = self.n[category] == 0
        if vanished.any() and self.n.any():
            category[vanished] = np.where(self.n > 0, u[vanished] @ centre.T, -np.inf).argmax(axis=1)
        near = (u * centre[category]).sum(axis=1)
        typicality = np.empty(len(near), dtype=np.float32)
        for c in np.unique(category):
            own = category == c
            typicality[own] = np.searchsorted(self.cosine[c], near[own], side="right") / len(STEPS)
        return category, typicality, (self.distance(u) <= self.limit) & ~vanished


def category_means(features: np.ndarray, category: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean unit features m_c (K, D) float32 of the categories, and their numbers of images n_c (K,); images
    with -1 or with NaN do not count."""
    total, n = np.zeros((k, features.shape[1])), np.zeros(k, dtype=np.int64)
    for rows, u in placed_chunks(features, category):
        np.add.at(total, category[rows], u)
        n += np.bincount(category[rows], minlength=k)
    return (total / np.maximum(n, 1)[:, None]).astype(np.float32), n


def whitening(covariance: np.ndarray, n: int) -> np.ndarray:
    """Return W (D, D) with W W^T = S^-1 of the shrunk covariance (D, D) of n images."""
    dim = len(covariance)
    weight = max(SHRINKAGE, dim / (n + dim))
    variance = max(float(np.trace(covariance)) / dim, SMALLEST)
    shrunk = (1 - weight) * covariance + weight * variance * np.eye(dim)
    return np.asarray(np.linalg.cholesky(np.linalg.inv(shrunk)))


def placed_chunks(features: np.ndarray, category: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows of images that were placed, and their unit features in float32, a chunk at a time."""
    for first in range(0, len(features), CHUNK):
        part = np.asarray(features[first : first + CHUNK], dtype=np.float32)
        inside = np.flatnonzero((category[first : first + CHUNK] >= 0) & finite_rows(part))
        yield first + inside, unit_rows(part[inside])


def finite_rows(features: np.ndarray) -> np.ndarray:
    """(N,) bool: does the row hold numbers only?"""
    return np.isfinite(np.sum(features, axis=1, dtype=np.float32))


def unit_rows(x: np.ndarray) -> np.ndarray:
    """Rows at length 1, in float32 or float64; rows of zeros stay."""
    x = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))


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
    return unit_rows(np.asarray(embedded, np.float64) - middle)


def softmax(logits: np.ndarray) -> np.ndarray:
    """(n, K) softmax of logits (n, K); 0 for a category of which nothing is known, whose logit is -inf."""
    top = logits.max(axis=1, keepdims=True)
    rise = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
    return np.asarray(rise / np.maximum(rise.sum(axis=1, keepdims=True), 1e-300))


FOLDS = 10
FEW_ROWS = 20
"""Labelled images below which T cannot be told; so it is if fewer than two classes have two of them."""
TRAIN_ROWS, EVALUATE_ROWS = 20_000, 5_000
"""Images that the discriminant learns from, and labelled ones that T is chosen by, at most."""
TEMPERATURES = (0.2, 100.0)
MIN_WEIGHT_SUM = 1e-9
"""Sum of weights below which a category has not been seen: what differences of sums leave of it."""
MIN_ROWS = 0.01
"""Least weight of an image in the second opinion."""
MIN_LABELLED = 5
"""Labelled images from which they speak for their class alone."""
FLOOR = 0.1
"""f: what a category without a vote has left."""


class Scorer(Protocol):
    """Whoever else has a say: the votes of several trainings (ensemble.py), or what one says (runs/predict.py)."""

    def shares(self, images: np.ndarray) -> np.ndarray:
        """(n, K) what they say of some images; NaN = nothing."""

    def placements(self) -> np.ndarray:
        """(S, N) where each of several places the images, -1 = nowhere; S is 0 where one says all."""


def can_calibrate(target: np.ndarray) -> bool:
    """Are there labelled images to judge the opinion by? target: (N,), -1 = no label."""
    sizes = np.bincount(target[target >= 0])
    return bool(sizes.sum() >= FEW_ROWS and (sizes >= 2).sum() >= 2)


class LDA(NamedTuple):
    """What one fold was taught by the others."""

    slope: np.ndarray
    """(K, D): S^-1 m_c."""
    offset: np.ndarray
    """(K,): log n_c - |m_c W|^2 / 2, -inf for a category of which it has seen nothing."""

    def scores(self, u: np.ndarray) -> np.ndarray:
        """(n, D) -> (n, K): the logits of p(c | x) but for T and for what all categories share."""
        return np.asarray(u @ self.slope.T + self.offset)


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
        strangers = (target < 0) & np.append(labels >= MIN_LABELLED, False)[self.placed]
        probability = np.ones(len(self.placed))
        for _ in range(2):
            weight = np.where(strangers, 0.0, np.where(target >= 0, 1.0, sample_weight(probability)))
            self.learn(weight)
            self.heat = self.temperature(self.once(self.placed))
            if can_calibrate(asked):  # labels may say that it is less sure than it seems, never surer
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
        slope, offset = (part / self.heat for part in self.whole.judge())
        return LinearHead(*(np.asarray(part, np.float32) for part in (self.middle, slope, offset)))

    def unit(self, rows: np.ndarray) -> np.ndarray:
        """(n, D) centred features at length 1."""
        return center_rows(self.embedded[rows], self.middle)

    def scores(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows and their scores (n, K), in parts."""
        for fold, judge in enumerate(self.judges):
            own = rows[self.fold[rows] == fold]
            for first in range(0, len(own), CHUNK):
                part = own[first : first + CHUNK]
                yield part, judge.scores(self.unit(part))

    def temperature(self, *placements: np.ndarray) -> float:
        """T at which the categories that placements, (N,) each, say are likeliest; -1 = leave the image out."""
        from scipy.optimize import minimize_scalar  # takes a third of a second to import

        category = np.stack(placements)
        placed = np.flatnonzero((category >= 0).any(axis=0))
        rows = np.sort(np.random.default_rng(1).permutation(placed)[:EVALUATE_ROWS])
        each = [(scores, one) for part, scores in self.scores(rows) for one in category[:, part]]
        parts = [(scores[one >= 0], one[one >= 0]) for scores, one in each]
        if not parts:
            return 1.0
        scores, wanted = (np.concatenate(column) for column in zip(*parts, strict=True))
        seen = np.isfinite(scores[np.arange(len(wanted)), wanted])

        def surprise(log_heat: float) -> float:
            p = own_class_share(scores[seen] / np.exp(log_heat), wanted[seen])
            return float(-np.log(np.maximum(p, 1e-12)).mean()) if len(p) else 0.0

        low, high = np.log(TEMPERATURES)
        return float(np.exp(minimize_scalar(surprise, bounds=(low, high), method="bounded").x))

    def own(
        self, heat: np.ndarray, votes: Scorer | None = None, power: np.ndarray | None = None
    ) -> np.ndarray:
        """(N,) p(own category | x); NaN where an image is in none. heat, power: (K,) of `pooled`. votes: of trainings,
        which count as much."""
        found = np.full(len(self.placed), np.nan)
        for part, logits in self.pooled(np.flatnonzero(self.placed >= 0), heat, votes, power):
            found[part] = own_class_share(logits, self.placed[part])
        return found

    def pooled(
        self, rows: np.ndarray, heat: np.ndarray, votes: Scorer | None, power: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield rows and the logits (n, K) of both opinions, in parts. heat: (K,) T for the images of each category.
        power: (K,) that raises their shares, 1 by default."""
        for part, scores in self.scores(rows):
            own = self.placed[part]
            logits = scores / heat[own][:, None]
            both = logits if votes is None else log_pool(logits, votes.shares(part))
            yield part, both if power is None else both * power[own][:, None]


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
        n = np.where(self.n > MIN_WEIGHT_SUM, self.n, 0.0)
        mean = self.total / np.maximum(n, MIN_WEIGHT_SUM)[:, None] * (n > 0)[:, None]
        mass = max(float(n.sum()), MIN_WEIGHT_SUM)
        whiten = whitening((self.square - (mean * n[:, None]).T @ mean) / mass, self.seen)
        means = mean @ whiten
        with np.errstate(divide="ignore"):
            return LDA(means @ whiten.T, np.log(n / mass) - (means**2).sum(axis=1) / 2)


def own_class_share(logits: np.ndarray, own: Sequence[int] | np.ndarray) -> np.ndarray:
    """(n,) the share of the category `own` of each."""
    return np.asarray(softmax(logits)[np.arange(len(logits)), own])
