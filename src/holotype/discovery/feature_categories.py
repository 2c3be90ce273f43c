"""Categories of features in memory: k-means that keeps labelled rows in their class, on centred rows of length 1."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from PIL import Image

from holotype.clustering.estimate_k import estimate_count
from holotype.clustering.kmeans import kmeans, semi_supervised_centres
from holotype.data.samplers import keyed_generator
from holotype.errors import InputError
from holotype.results.discovery import IMAGE_TABLE_COLUMNS, Category, Discovery, category_name
from holotype.results.lda import center_rows, softmax

TEMPERATURE = 0.1
"""That turns cosines into probabilities, as in the methods."""
STARTS = 10
DOUBTFUL = 0.5


def is_image_list(X: Any) -> bool:
    """Return whether X is a list of images, or else rows of features."""
    if isinstance(X, np.ndarray) and not (X.ndim == 1 and X.dtype.kind in "OUS"):
        return X.ndim in (3, 4)
    if isinstance(X, str | os.PathLike | Image.Image):
        return True  # and refused as such
    if isinstance(X, pd.DataFrame) or hasattr(X, "nnz") or not hasattr(X, "__iter__"):
        return False
    first = next(iter(X), "")
    return isinstance(first, str | os.PathLike | Image.Image) or getattr(first, "ndim", 0) >= 2


@dataclass
class FeatureCategories:
    """K categories of rows of features."""

    known: tuple[str, ...]
    ids: tuple[str, ...]
    """Of the categories, known classes first."""
    middle: np.ndarray
    """(D,) mean of the rows of `fit`."""
    centres: np.ndarray
    """(K, D) at length 1."""

    @classmethod
    def fit(
        cls, x: np.ndarray, label: Sequence[str], k: int | Literal["auto"], seed: int
    ) -> FeatureCategories:
        """Find the categories of the rows x (N, D). label: of each, "" = none."""
        known = tuple(sorted(set(label) - {""}))
        index = {name: number for number, name in enumerate(known)}
        target = torch.tensor([index.get(name, -1) for name in label])
        middle = x.mean(axis=0)
        rows = torch.from_numpy(center_rows(x, middle))
        if k == "auto" and (target >= 0).all():
            k = len(known)
        elif k == "auto":
            k = estimate_count(rows.float(), target, len(known), seed=seed).best
        if not max(len(known), 1) <= k <= len(x):
            raise InputError(f"k is {k}; give a number from {max(len(known), 1)} to {len(x)}, or auto.")
        generator = keyed_generator(seed, "features")
        if (target >= 0).all() and k == len(known):
            centres = torch.stack([rows[target == c].mean(0) for c in range(k)])
        elif known:
            centres = semi_supervised_centres(rows, target, k, n_init=STARTS, generator=generator)
        else:
            centres = kmeans(rows, k, n_init=STARTS, generator=generator).centres
        ids = tuple(category_name(number, known, k) for number in range(k))
        return cls(known, ids, middle, torch.nn.functional.normalize(centres, dim=-1).numpy())

    def rows(self, x: np.ndarray) -> np.ndarray:
        """(n, D) rows as categories are found in them: centred, at length 1."""
        return center_rows(x, self.middle)

    def place(self, x: np.ndarray) -> pd.DataFrame:
        """Return category_id, category, kind, probability and known_score of rows (n, D)."""
        share = softmax(self.rows(x) @ self.centres.T / TEMPERATURE)
        best, names = share.argmax(axis=1), np.array(self.ids, dtype=object)
        return pd.DataFrame(
            {
                "category_id": names[best],
                "category": names[best],
                "kind": np.where(best < len(self.known), "known", "novel"),
                "probability": share.max(axis=1),
                "known_score": share[:, : len(self.known)].sum(axis=1),
            }
        )

    def discovery(self, x: np.ndarray, label: Sequence[str]) -> Discovery:
        """Return the rows of `fit` in their categories, labelled ones in their class."""
        frame, given = self.place(x), np.array([name != "" for name in label])
        for column in ("category", "category_id"):
            frame[column] = np.where(given, np.array(label, dtype=object), frame[column])
        frame["kind"] = np.where(given, "known", frame["kind"])
        rest: dict[str, Any] = {"path": [str(row) for row in range(len(x))], "label": list(label)}
        rest["doubtful"] = ~given & (frame["probability"] < DOUBTFUL)
        frame = frame.assign(**rest)
        frame = frame.assign(**{name: "" for name in IMAGE_TABLE_COLUMNS if name not in frame})
        frame["typicality"] = np.nan
        likeness = self.centres @ self.centres[: len(self.known)].T
        categories = [
            Category(
                id, id, "known" if id in self.known else "novel", int((frame.category == id).sum()),
                signature=[float(value) for value in row],
            )
            for id, row in zip(self.ids, likeness, strict=True)
        ]  # fmt: skip
        return Discovery("features", self.known, frame, categories)
