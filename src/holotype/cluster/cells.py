"""Cells of a collection that is too large for memory: centres found on few rows, and the nearest centre of every row.

The cell of a row is the same whatever rows it is looked at with. A product of matrices rounds otherwise in another
shape, so that it only says which centres may be the nearest; where there are several, distances decide that are
computed row by row, with twice the digits.
"""

from __future__ import annotations

import numpy as np
import torch

from holotype.clustering.kmeans import CHUNK, kmeans

MAX_ITER = 25
"""Of k-means. Any centres cut a collection into cells; better ones only cut it more evenly."""
ROUNDING = 2.0**-24


def unit_rows(feature: np.ndarray) -> np.ndarray:
    """(n, D) -> the same at length 1, float32; rows of zeros stay so."""
    x = feature.astype(np.float64)
    return (x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), 1e-12)).astype(np.float32)


def find_centres(x: np.ndarray, n: int, seed: int) -> np.ndarray:
    """(n, D) float32 centres of k-means on some rows, in an order of their own; all rows where they are fewer."""
    if len(x) <= n:
        return x
    generator = torch.Generator().manual_seed(seed)
    found = kmeans(torch.from_numpy(x), n, n_init=1, max_iter=MAX_ITER, generator=generator)
    return np.asarray(found.centres.numpy(), dtype=np.float32)


def nearest_centres(x: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n,) the nearest centre of each row, the first of several, and (n,) float64 its squared distance.

    x: (n, D) float32 of length 1 at most, and so are centres (C, D).
    """
    cell = np.empty(len(x), dtype=np.int64)
    step = max(1, CHUNK // len(centres))
    for first in range(0, len(x), step):
        rows = slice(first, first + step)
        cell[rows] = _nearest(x[rows], centres)
    return cell, _distance(x, centres[cell])


def _nearest(x: np.ndarray, centres: np.ndarray) -> np.ndarray:
    score = (centres * centres).sum(-1) - 2 * (
        x @ centres.T
    )  # squared distance, less what is the same in a row
    best = score.min(1, keepdims=True)
    # twice what D products of two numbers below 1, and a handful of sums, can be off by
    rivals = score <= best + 2 * (2 * x.shape[1] + 8) * ROUNDING
    cell = score.argmin(1)
    several = np.flatnonzero(rivals.sum(1) > 1)
    row, rival = np.nonzero(rivals[several])
    exact = _distance(x[several[row]], centres[rival])
    order = np.lexsort((rival, exact, row))
    _, first = np.unique(row[order], return_index=True)
    cell[several] = rival[order][first]
    return np.asarray(cell)


def _distance(x: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(n,) squared distance of two rows each, the same for a pair wherever it stands."""
    apart = x.astype(np.float64) - other
    return np.asarray((apart * apart).sum(-1))
