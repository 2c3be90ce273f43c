"""The file of a shard of embeddings: path, stamp, feature, problem and note of consecutive images.

Whoever reads one is told which of its images are no longer as they were.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holotype.utils.serialization import read_parquet_table, write_parquet

TEXTS = ("problem", "note")
DECIDE = ("backbone_digest", "image_size", "dim", "pool", "mean", "std")
"""What the manifest of a folder says of the network, and what embeddings depend on."""

log = logging.getLogger("holotype")


@dataclass
class Embeddings:
    """Every image of a table as the frozen backbone sees it."""

    features: np.ndarray
    """(N, D) float32, or 16 bits in a part of a large collection; zeros for images that could not be read."""
    problem: np.ndarray
    """(N,) object str: why an image could not be used, "" if it could."""
    note: np.ndarray
    """(N,) object str: what was done to an unusual image, "" for most."""

    @classmethod
    def blank(cls, n: int, dim: int, dtype: type[np.floating] = np.float32) -> Embeddings:
        """Of n images that are still to come."""
        problem, note = np.full((2, n), "", dtype=object)
        return cls(np.zeros((n, dim), dtype=dtype), problem, note)

    def of(self, rows: slice) -> Embeddings:
        """Those of consecutive images; what is written there is written here."""
        return Embeddings(self.features[rows], self.problem[rows], self.note[rows])


@dataclass(frozen=True)
class ShardFile:
    """Where the embeddings of some images lie."""

    file: Path
    path: Sequence[str]
    """(n,) of the images, relative to their root."""
    stamp: Sequence[str]
    """(n,) of their files (data/hashing.py)."""

    def write(self, found: Embeddings) -> None:
        import pyarrow as pa

        features = found.features
        columns: dict[str, Any] = {
            "path": pa.array(self.path, pa.string()),
            "stamp": pa.array(self.stamp, pa.string()),
            "feature": feature_column(features),
        }
        columns |= {name: pa.array(list(getattr(found, name)), pa.string()) for name in TEXTS}
        write_parquet(self.file, pa.table(columns))

    def read(self, found: Embeddings) -> np.ndarray:
        """Put what the file holds into `found`; returns the rows that it does not hold as the images are now: all
        where it is not there, or was damaged, which is said."""
        every = np.arange(len(self.path))
        try:
            part = read_parquet_table(self.file)
            feature = features_in(part, *found.features.shape)
            there = list(zip(part["path"].to_pylist(), part["stamp"].to_pylist(), strict=True))
            texts = {name: np.array(part[name].to_pylist(), dtype=object) for name in TEXTS}
        except FileNotFoundError:
            return every
        except (OSError, ValueError, KeyError) as error:
            log.warning(f"{self.file} cannot be read ({error}), and is made again.")
            return every
        now = zip(self.path, self.stamp, strict=True)
        changed = np.array([a != b for a, b in zip(there, now, strict=True)], dtype=bool)
        kept = every[~changed]
        found.features[kept] = feature[kept]
        for name, values in texts.items():
            getattr(found, name)[kept] = values[kept]
        return every[changed]


def feature_column(features: np.ndarray) -> Any:
    """(n, D) as the column `feature` of a part."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1])


def features_in(part: Any, n: int, dim: int) -> np.ndarray:
    """The inverse: (n, dim) of a part, as pyarrow has read it. Raises ValueError where they are of another size."""
    values = part["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values.reshape(n, dim))
