"""A folder of JPEG files that cost about as much to read as the photographs of CUB.

Speed does not depend on what the pictures show, only on their sides and on the bytes of their files. Images
at hand (the embedded sample, or a folder of your own) are enlarged to 500 pixels on the longer side, and grain
is added until a file takes about 100 kB. They are good for timing and for nothing else.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from holotype.data.benchmarks import SAMPLE
from holotype.data.decode import ImageProblem, read_image
from holotype.data.sources import IMAGE_EXTENSIONS
from holotype.errors import InputError

LONGER, SHORTER = 500, 375
"""Sides of most of CUB's photographs; the shorter one varies by SPREAD here."""
SPREAD = 40
TARGET = 100_000
"""Bytes of a file, within about a tenth."""
QUALITY = 90
GRAIN = 1024
"""Side of the field of noise that every image takes its own piece of; drawing noise anew costs more than
writing the file."""


@dataclass(frozen=True)
class Photographs:
    """What was made."""

    paths: list[str]
    mean_bytes: float
    description: str


Source = Callable[[int], Image.Image]
"""The picture to enlarge for a number."""


def make_photographs(
    folder: Path, n: int, *, images: Path | None = None, threads: int = 8, longer: int = LONGER
) -> Photographs:
    """Write n JPEG files into `folder`, the same ones whenever the arguments are the same."""
    if n < 1:
        raise InputError(f"{n} images cannot be made; give --n-images a positive number.")
    folder.mkdir(parents=True, exist_ok=True)
    source, origin = _sample() if images is None else _folder(images)
    grain = np.random.default_rng(0).normal(0, 1, (GRAIN, GRAIN, 3)).astype(np.float32)
    target = TARGET * longer**2 / LONGER**2
    strength = _calibrate(source, grain, longer, target)
    paths = [folder / f"{number:06d}.jpg" for number in range(n)]

    def write(number: int) -> int:
        _photograph(source, grain, number, longer, strength).save(paths[number], quality=QUALITY)
        return paths[number].stat().st_size

    with ThreadPoolExecutor(threads) as pool:
        sizes = list(pool.map(write, range(n)))
    mean = sum(sizes) / n
    description = f"{n:,} JPEG files, {longer} pixels on the longer side, {mean / 1e3:.0f} kB each: {origin}"
    return Photographs([str(path) for path in paths], mean, f"{description}, enlarged, with grain")


def _sample() -> tuple[Source, str]:
    with np.load(SAMPLE, allow_pickle=False) as arrays:
        pixels = arrays["x"]
    pictures = [Image.fromarray(one).convert("RGB") for one in pixels]
    return lambda number: pictures[number % len(pictures)], "the embedded Fashion-MNIST images"


def _folder(images: Path) -> tuple[Source, str]:
    found = (
        sorted(p for p in images.rglob("*") if p.suffix.lower() in IMAGE_EXTENSIONS)
        if images.is_dir()
        else []
    )
    if not found:
        raise InputError(f"There are no images in {images}; give another folder with --images.")

    def read(number: int) -> Image.Image:
        path = found[number % len(found)]
        try:
            return read_image(str(path))[0]
        except ImageProblem as problem:
            raise InputError(f"{problem} Remove it from the folder given with --images.") from problem

    return read, f"images of the folder {images.name}"


def _photograph(source: Source, grain: np.ndarray, number: int, longer: int, strength: float) -> Image.Image:
    """Picture `number`: every third stands upright, the shorter side varies, the grain is its own piece."""
    rng = np.random.default_rng(number)
    spread = int(rng.integers(-SPREAD, SPREAD + 1)) * longer // LONGER
    shorter = max(SHORTER * longer // LONGER + spread, 1)
    size = (shorter, longer) if number % 3 == 0 else (longer, shorter)
    picture = np.asarray(source(number).resize(size, Image.Resampling.BICUBIC), dtype=np.float32)
    top, left = rng.integers(0, GRAIN - longer, 2)
    piece = grain[top : top + size[1], left : left + size[0]]
    return Image.fromarray(np.clip(picture + strength * piece, 0, 255).astype(np.uint8))


def _calibrate(source: Source, grain: np.ndarray, longer: int, target: float) -> float:
    """The strength of the grain at which files take `target` bytes, by bisection over a few pictures."""

    def mean_bytes(strength: float) -> float:
        sizes = []
        for number in range(24):
            stream = io.BytesIO()
            _photograph(source, grain, number, longer, strength).save(stream, "jpeg", quality=QUALITY)
            sizes.append(stream.tell())
        return sum(sizes) / len(sizes)

    low, high = 0.0, 64.0
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_bytes(middle) < target else (low, middle)
    return high
