"""How tight classes are in a feature space, and how far from each other."""

from __future__ import annotations

from typing import Any

import numpy as np


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length 1, in double precision: float16 ones are so only nearly."""
    wide = x.astype(np.float64)
    return wide / np.linalg.norm(wide, axis=1, keepdims=True).clip(min=1e-12)


def tightness(features: np.ndarray, classes: np.ndarray, kind: np.ndarray) -> dict[str, dict[str, Any]]:
    """For known and novel: mean silhouette, and mean cosine of pairs of one class and of different ones.

    Every image is compared with the images of all classes, of its own kind or not. With vectors of length 1 the mean
    cosine to a class is the product with its mean, so that no table of all pairs is needed: for image x of class c
        a = 1 - mean of x y over the other y of c,   b = min over other classes of 1 - mean of x y,
        silhouette = (b - a) / max(a, b), and 0 for the only image of a class.
    """
    x = unit(features)
    names, y = np.unique(classes, return_inverse=True)
    member = np.eye(len(names))[y]
    n = member.sum(0)
    sums = x @ (member.T @ x).T  # (N, C): summed cosines of an image to each class
    others = n[y] - 1
    row = np.arange(len(x))
    same = sums[row, y] - 1.0  # without itself
    apart = 1 - sums / n
    apart[row, y] = np.inf
    a, b = 1 - same / others.clip(min=1), apart.min(1)
    b = np.where(np.isinf(b), a, b)  # where there is no other class
    silhouette = np.where(others == 0, 0.0, (b - a) / np.maximum(np.maximum(a, b), 1e-12))
    other, strangers = sums.sum(1) - sums[row, y], len(x) - n[y]
    found = {}
    for part in ("known", "novel"):
        here = kind == part
        found[part] = {
            "images": int(here.sum()),
            "classes": len(np.unique(y[here])),
            "silhouette": _rounded(silhouette[here].sum(), here.sum()),
            "same_class": _rounded(same[here].sum(), others[here].sum()),
            "other_class": _rounded(other[here].sum(), strangers[here].sum()),
        }
    return found


def _rounded(total: float, count: float) -> float | None:
    """None where there is nothing to take the mean of."""
    return round(float(total / count), 4) if count else None
