"""Provisional categories of new images that are in none: attach or create, one image after the other.

The classes of a collection are taken for draws of one world. In coordinates in which images scatter round the mean of
their class with unit variance, class means lie round zero with the variances b_i. How much likelier image x is of a
class with n images of mean m than of one that nobody has seen, is then (PLDA; Ioffe 2006)

    s(x; m, n) = sum_i log N(x_i; n b_i m_i / (n b_i + 1), 1 + b_i / (n b_i + 1)) - log N(x_i; 0, 1 + b_i).

An image opens a category where s is below a threshold for every category, known ones and those that are open; else it
goes where s is largest. The threshold is what 95 % of the labelled images reach, each judged without itself. The b_i
are the eigenvalues of the scatter of the class means, drawn half-way to their mean: of few classes, no direction is
known to say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from holotype.results.lda import category_means, unit_rows, whitening

SHRINKAGE = 0.5
KEPT = 0.95
"""Share of the labelled images that reach the threshold."""
MOST_IMAGES = 5_000
"""Labelled images that the threshold is told by, at most."""


@dataclass(frozen=True)
class ClassModel:
    """The categories of a collection, and the world that they are drawn from."""

    middle: np.ndarray
    """(D,) mean of the features."""
    centre: np.ndarray
    """(D,) mean of the features less that, at length 1."""
    project: np.ndarray
    """(D, D) from there to the coordinates above."""
    between: np.ndarray
    """(D,) b."""
    mean: np.ndarray
    """(K, D) of the categories, in those coordinates."""
    n: np.ndarray
    """(K,) their images."""
    threshold: float

    @classmethod
    def fit(cls, features: np.ndarray, category: np.ndarray, labelled: np.ndarray, k: int) -> ClassModel:
        """Learn from a collection.

        Args:
            features: (N, D), NaN where an image could not be read.
            category: (N,) below k, -1 = in none.
            labelled: (N,) bool, images by which the threshold is told; all where there are none.
            k: Number of categories.
        """
        inside = (category >= 0) & np.isfinite(features).all(axis=1)
        features, category = np.asarray(features[inside], np.float64), category[inside]
        labelled = labelled[inside] if labelled[inside].any() else np.ones(len(category), dtype=bool)
        middle = features.mean(axis=0)
        u = unit_rows(features - middle)
        mean, n = category_means(u, category, k)
        rest = u - mean[category]
        whiten = whitening(rest.T @ rest / len(u), len(u))
        centre = u.mean(axis=0)
        there = mean[n > 0].astype(np.float64) - centre
        scatter = (there @ whiten).T @ (there @ whiten) / max(len(there) - 1, 1)
        values, turn = np.linalg.eigh(scatter - np.eye(len(scatter)) * np.mean(1 / n[n > 0]))
        values = np.maximum(values, 0)
        between = (1 - SHRINKAGE) * values + SHRINKAGE * max(values.mean(), 1e-6)
        project = whiten @ turn
        model = cls(middle, centre, project, between, (mean - centre) @ project, n, 0.0)
        z, rows = (u - centre) @ project, np.flatnonzero(labelled & (n[category] > 1))
        rows = rows[:: -(-len(rows) // MOST_IMAGES) or 1]
        own = [model.without(z[row], int(category[row])).max() for row in rows]
        threshold = float(np.quantile(own, 1 - KEPT)) if len(own) else -np.inf
        return replace(model, threshold=threshold)

    def coordinates(self, features: np.ndarray) -> np.ndarray:
        """(n, D) features -> (n, D) in the coordinates above."""
        return np.asarray(
            (unit_rows(np.asarray(features, np.float64) - self.middle) - self.centre) @ self.project
        )

    def scores(self, x: np.ndarray, mean: np.ndarray, n: np.ndarray) -> np.ndarray:
        """s of coordinates x (D,) for categories with means (K, D) of n (K,) images: (K,); -inf for empty ones."""
        b, count = self.between, np.asarray(n, np.float64)[:, None]
        spread = 1 + b / (count * b + 1)
        square = (x - count * b / (count * b + 1) * mean) ** 2
        like = -0.5 * (square / spread + np.log(spread)).sum(axis=1)
        unseen = -0.5 * (x**2 / (1 + b) + np.log(1 + b)).sum()
        return np.where(np.asarray(n) > 0, like - unseen, -np.inf)

    def without(self, x: np.ndarray, category: int) -> np.ndarray:
        """`scores` for the known categories, as if image x of a category were none of it."""
        mean, n = self.mean.copy(), self.n.astype(np.float64)
        mean[category] = (mean[category] * n[category] - x) / (n[category] - 1)
        n[category] -= 1
        return self.scores(x, mean, n)


@dataclass
class OpenCategories:
    """Provisional categories, by number from 0 in the order in which they were opened."""

    total: np.ndarray
    """(J, D) sum of the coordinates of their images."""
    n: np.ndarray
    """(J,) their images."""

    @classmethod
    def of(cls, x: np.ndarray, number: np.ndarray, dim: int) -> OpenCategories:
        """Return those of images with coordinates x (n, D) that lie in categories `number` (n,)."""
        j = int(number.max(initial=-1)) + 1
        total = np.zeros((j, dim))
        np.add.at(total, number, x)
        return cls(total, np.bincount(number, minlength=j).astype(np.int64))

    def place(self, model: ClassModel, x: np.ndarray) -> np.ndarray:
        """Place images with coordinates x (n, D) one after the other; (n,) the number of their provisional category,
        -1 = they are of a category that was known."""
        first = np.array([self._attach_or_create(model, one) for one in x], dtype=np.int64)
        # those that came early did not know what opened later
        for row in np.flatnonzero(first >= 0):
            self._move(x[row], int(first[row]), -1)
            best, score = self._best(model, x[row])
            known = model.scores(x[row], model.mean, model.n).max(initial=-np.inf)
            now = best if best >= 0 and score >= max(known, model.threshold) else int(first[row])
            self._move(x[row], now, 1)
            first[row] = now
        return first

    def _best(self, model: ClassModel, x: np.ndarray) -> tuple[int, float]:
        if not len(self.n):
            return -1, -np.inf
        scores = model.scores(x, self.total / np.maximum(self.n, 1)[:, None], self.n)
        best = int(scores.argmax())
        return (best, float(scores[best])) if np.isfinite(scores[best]) else (-1, -np.inf)

    def _attach_or_create(self, model: ClassModel, x: np.ndarray) -> int:
        known = float(model.scores(x, model.mean, model.n).max(initial=-np.inf))
        best, score = self._best(model, x)
        if known >= model.threshold and known >= score:
            return -1
        if score < model.threshold:
            self.total, self.n = np.vstack([self.total, np.zeros(x.shape)]), np.append(self.n, 0)
            best = len(self.n) - 1
        self._move(x, best, 1)
        return best

    def _move(self, x: np.ndarray, number: int, sign: int) -> None:
        self.total[number] += sign * x
        self.n[number] += sign
