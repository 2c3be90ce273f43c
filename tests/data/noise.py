"""Pictures of random pixels, for the tests of this folder."""

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


def odd_files(folder: Path) -> list[str]:
    """A good image, then files that cannot be used, then a good one."""
    good = write_noise(folder, [(40, 50), (50, 40)])
    empty, text, cut, folder_itself = (folder / n for n in ("empty.jpg", "text.png", "cut.png", "folder.png"))
    empty.write_bytes(b"")
    text.write_text("not an image")
    cut.write_bytes(Path(good[0]).read_bytes()[:60])
    folder_itself.mkdir()
    odd = [str(x) for x in (empty, text, cut, folder_itself, folder / "missing.png")]
    return [good[0], *odd, good[1]]
