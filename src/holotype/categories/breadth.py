"""Is a new category as narrow as one class, or as wide as several?

Where more classes lie in a collection than categories were asked for, some category holds several of them. Nothing
within it is then nearer to another category, so that no image of it looks doubtful; but it is wide. With D the mean
squared distance of two of its images, and from the labelled images D_same (two of one class; the widest class) and
D_other (two of different classes; the mean),

    q = (D_other - D) / (D_other - D_same)

estimates how many pairs of its images are of one class. Of the classes that would explain it, the largest has a share
of (1 + sqrt(2 q - 1)) / 2, or of q below one half.
"""

from __future__ import annotations

import numpy as np

FEWEST = 5
"""Labelled images that a class needs, and images that a category needs, for its width to be measured."""
APART = 0.25
"""Where D_other is not larger than D_same by this share of itself, widths say nothing."""


def largest_share(u: np.ndarray, category: np.ndarray, target: np.ndarray, k: int) -> np.ndarray:
    """(K,) estimated share of the largest class in each category: 1 where it is no wider than a class may be.

    u: (N, D) unit features of the frozen backbone. category: (N,) below k, -1 = in none. target: (N,) class that an
    image is labelled with, -1 = none. Categories with labelled images count as narrow: their labels say what they are.
    """
    share = np.ones(k)
    mean, width, n = spread(u, target, k)
    classes = np.flatnonzero(n >= FEWEST)
    if len(classes) < 2:
        return share
    apart = ((mean[classes, None] - mean[classes]) ** 2).sum(axis=-1)
    apart += (width[classes, None] + width[classes]) / 2
    other, same = float(apart[np.triu_indices(len(classes), 1)].mean()), float(width[classes].max())
    if other - same < APART * other:
        return share
    _, wide, images = spread(u, category, k)
    new = (images >= FEWEST) & (n == 0)
    q = np.clip((other - wide[new]) / (other - same), 0.0, 1.0)
    share[new] = np.where(q < 0.5, q, (1 + np.sqrt(np.maximum(2 * q - 1, 0))) / 2)
    return share


def spread(u: np.ndarray, group: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean (K, D) of each group, mean squared distance (K,) of two of its images, and its size (K,); -1 = in none."""
    n = np.bincount(group[group >= 0], minlength=k)
    mean, square = np.zeros((k, u.shape[1])), np.zeros(k)
    for c in np.flatnonzero(n):
        rows = u[group == c].astype(np.float64)
        mean[c] = rows.mean(axis=0)
        square[c] = ((rows - mean[c]) ** 2).sum()
    return mean, 2 * square / np.maximum(n - 1, 1), n
