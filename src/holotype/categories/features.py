"""`features.npy`: the trained features of every image of a run, where they are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from holotype.machine.files import write_beside

FEATURES = "features.npy"
"""(N, D) float16 of every image after training; NaN for those that cannot be read."""


def write_features(folder: Path, features: np.ndarray) -> None:
    """features: (N, D)."""

    def write(beside: Path) -> None:
        with beside.open("wb") as file:
            np.save(file, features.astype(np.float16))

    write_beside(folder / FEATURES, write)


def read_features(folder: Path, n: int) -> np.ndarray | None:
    """(n, D) float16 of the n images of a run; None where they were not kept, or are of something else."""
    try:
        features: np.ndarray = np.load(folder / FEATURES, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return features if features.ndim == 2 and len(features) == n else None
