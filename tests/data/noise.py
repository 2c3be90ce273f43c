"""Pictures of random pixels, for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_noise(folder: Path, shapes: list[tuple[int, int]], seed: int = 0) -> list[str]:
    """PNG files of random pixels, shapes (height, width)."""
    rng = np.random.default_rng(seed)
    paths = []
    for i, (height, width) in enumerate(shapes):
        path = folder / f"{seed}_{i:03d}.png"
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
        paths.append(str(path))
    return paths
