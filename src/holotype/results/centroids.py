"""Centroids of the categories, their scatter, and the Mahalanobis test of a new image.

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

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

FAR_QUANTILE = 0.01
"""Share of the images at hand that lie further from all centres than the limit."""
COVARIANCE_SHRINKAGE = 0.3
"""Least weight of the identity in S; with few images N of many dimensions D it is D / (N + D)."""
SMALLEST = 1e-6
"""Least variance of a direction, for images that are all the same."""
STEPS = np.linspace(0, 1, 101)
"""Shares at which the cosines of a category are kept, for the typicality of new images."""
CENTROID_CHUNK = 8192
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
        whiten = _whiten(scatter, int(n.sum()))
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


def _whiten(scatter: np.ndarray, n: int) -> np.ndarray:
    """W of the sum of squares (D, D) of n images."""
    dim = len(scatter)
    covariance, weight = scatter / max(n, 1), max(COVARIANCE_SHRINKAGE, dim / (n + dim))
    variance = max(float(np.trace(covariance)) / dim, SMALLEST)
    shrunk = (1 - weight) * covariance + weight * variance * np.eye(dim)
    return np.linalg.cholesky(np.linalg.inv(shrunk)).astype(np.float32)


def placed_chunks(features: np.ndarray, category: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows of images that were placed, and their unit features in float32, a chunk at a time."""
    for first in range(0, len(features), CENTROID_CHUNK):
        part = np.asarray(features[first : first + CENTROID_CHUNK], dtype=np.float32)
        inside = np.flatnonzero((category[first : first + CENTROID_CHUNK] >= 0) & finite_rows(part))
        yield first + inside, unit_rows(part[inside])


def finite_rows(features: np.ndarray) -> np.ndarray:
    """(N,) bool: does the row hold numbers only?"""
    return np.isfinite(np.sum(features, axis=1, dtype=np.float32))


def unit_rows(x: np.ndarray) -> np.ndarray:
    """Rows at length 1, in float32 or float64; rows of zeros stay."""
    x = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))
