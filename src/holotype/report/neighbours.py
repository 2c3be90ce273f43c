"""For each image of the report those that look most like it, for "more like this".

The lists are part of the page, so their size has a limit: with many images they are shorter, and with too many there
are none, which the page says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

EACH = 12
"""Images in a list."""
FEWEST = 4
"""A shorter list is not worth its room."""
ROOM = 240_000
"""Numbers in all lists together; about 1.4 MB."""


def alike(rows: np.ndarray, features: np.ndarray | None, total: int) -> dict[str, Any]:
    """What the page knows of likeness, for the n images that it shows.

    rows: (n,) rows of the images in the collection of `total` images. features: (total, D); NaN rows for unread images.
    Returns each: length k of a list; list: n * k numbers of images, the nearest first, -1 = none; why there are none.
    """
    n = len(rows)
    if features is None or len(features) != total:
        return _without(
            "The features of this run were not kept, so this report does not know which images are alike."
        )
    each = min(EACH, ROOM // max(1, n))
    if each < FEWEST:
        return _without(
            f"This report shows {n:,} images, and has no room for lists of similar ones above {ROOM // FEWEST:,}."
        )
    nearest = np.full((n, each), -1, dtype=np.int64)
    own = np.asarray(features[rows], np.float32)
    known = np.flatnonzero(np.isfinite(own).all(axis=1))
    found = _nearest(own[known], min(each, len(known) - 1))
    nearest[known, : found.shape[1]] = known[found]
    return {"each": each, "list": nearest.ravel().tolist(), "why": ""}


def _nearest(features: np.ndarray, k: int) -> np.ndarray:
    """(m, D) -> (m, k) rows of the k others with the largest cosine, best first."""
    if k < 1:
        return np.empty((len(features), 0), np.int64)
    import torch

    from holotype.clustering.knn import nearest_neighbours

    _, rows = nearest_neighbours(torch.from_numpy(features), k)
    found: np.ndarray = rows.numpy()
    return found


def _without(why: str) -> dict[str, Any]:
    return {"each": 0, "list": [], "why": why}
