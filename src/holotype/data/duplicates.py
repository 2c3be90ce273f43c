"""Images that are there more than once: files of the same content, and pictures that look the same.

A picture is reduced to 8 lines of 9 colours. Whether each colour is brighter than the one before gives 64 bits, which
find the pairs that are worth a look; the colours themselves decide. So a copy of another size or compression is found,
and two pictures of one kind are not taken for copies.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from PIL import Image

from holotype.data.decode import DECODE_BUDGET, ImageProblem, open_image
from holotype.data.exif import ExifData, read_exif
from holotype.data.image_files import has_own_file
from holotype.utils.console import progress_bar
from holotype.utils.device import cpu_count

HASH_ROWS, HASH_COLUMNS = 8, 9
ABOUT_EQUAL = 64
"""Side in pixels to which a JPEG may be decoded."""
FAINT = 2
"""Levels of grey by which a colour must be brighter to count as such."""
BANDS = 4
"""Parts of the 64 bits: pairs that share a whole one are compared."""
MAX_BITS, MAX_LEVELS = 8, 4.0
"""By which the pictures of a pair may differ: bits, and levels of colour in the mean."""
MAX_SIMILAR = 500
"""With so many others that share a part of its bits a picture is compared: plain ones may all look the same."""
MAX_PAIRS = 100_000
"""That are listed; a collection of blank pages has more than anybody wants to see."""
SCAN_BATCH = 1 << 16
"""Pairs that are compared together."""

Pair = tuple[int, int]
"""Rows of two images, the smaller one first."""


@dataclass(frozen=True, eq=False)
class ThumbnailScan:
    """What a quick look at n images finds."""

    colours: np.ndarray
    """(n, LINES, COLUMNS, 3) uint8; zeros for an image that cannot be read."""
    problem: np.ndarray
    """(n,) object str: why an image cannot be used, "" if it can."""
    shots: list[ExifData]
    """(n,) what the heads of the files say."""


def scan_thumbnails(paths: Sequence[str], progress: bool = False) -> ThumbnailScan:
    """Look at every image once, small, and at the head of its file, in threads."""
    colours = np.zeros((len(paths), HASH_ROWS, HASH_COLUMNS, 3), dtype=np.uint8)
    problem, shots = np.full(len(paths), "", dtype=object), []
    with (
        progress_bar("Looking at images", len(paths), progress) as advance,
        ThreadPoolExecutor(cpu_count()) as pool,
    ):
        for row, (seen, shot, complaint) in enumerate(pool.map(_scan_one, paths)):
            problem[row] = complaint
            shots.append(shot)
            if seen is not None:
                colours[row] = seen
            advance(1)
    return ThumbnailScan(colours, problem, shots)


def is_readable(path: str) -> bool:
    return not _scan_one(path)[2]


def _scan_one(path: str) -> tuple[np.ndarray | None, ExifData, str]:
    try:
        with open_image(path, about=ABOUT_EQUAL) as image:
            shot = image.shot()
            with DECODE_BUDGET.taken(image.nbytes), image.loaded():
                return np.asarray(image.resized((HASH_COLUMNS, HASH_ROWS), Image.Resampling.BOX)), shot, ""
    except ImageProblem as problem:
        return None, read_exif(path), str(problem)  # the head may be sound where the picture is not


# -- the same files -------------------------------------------------------------------------------------


def same_files(paths: Sequence[str], progress: bool = False) -> list[list[int]]:
    """Groups of rows whose files have the same content. Only files of equal size are read; an image inside another
    file is none."""
    by_size: dict[int, list[int]] = {}
    for row, path in enumerate(paths):
        size = _size(path)
        if size:
            by_size.setdefault(size, []).append(row)
    rows = [row for same in by_size.values() if len(same) > 1 for row in same]
    by_content: dict[bytes, list[int]] = {}
    title, show = "Comparing files", progress and bool(rows)
    with progress_bar(title, len(rows), show) as advance, ThreadPoolExecutor(cpu_count()) as pool:
        for row, digest in zip(rows, pool.map(_digest, [paths[row] for row in rows]), strict=True):
            if digest:
                by_content.setdefault(digest, []).append(row)
            advance(1)
    return sorted(sorted(same) for same in by_content.values() if len(same) > 1)


def _size(path: str) -> int:
    """0 for a file that is gone, and for an image inside a container."""
    try:
        return os.stat(path).st_size if has_own_file(path) else 0
    except (OSError, ValueError):
        return 0


def _digest(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError:
        return b""


# -- the same pictures ----------------------------------------------------------------------------------


def same_pictures(glances: ThumbnailScan) -> list[Pair]:
    """Pairs of rows that look the same, sorted, those of same_files among them; about MOST_PAIRS at most."""
    sound = np.flatnonzero(glances.problem == "")
    bits, colours = brighter(glances.colours[sound]), glances.colours[sound]
    found: set[Pair] = set()
    for one, other in _candidates(bits):
        near = np.bitwise_count(bits[one] ^ bits[other]) <= MAX_BITS
        one, other = one[near], other[near]
        levels = np.abs(colours[one].astype(np.int16) - colours[other]).mean(axis=(1, 2, 3))
        alike = levels <= MAX_LEVELS
        found.update(zip(sound[one[alike]].tolist(), sound[other[alike]].tolist(), strict=True))
        if len(found) >= MAX_PAIRS:
            break
    return sorted(found)


def brighter(colours: np.ndarray) -> np.ndarray:
    """(n, LINES, COLUMNS, 3) -> (n,) uint64: is each colour brighter than its neighbour on the left?"""
    grey = colours.astype(np.float32).mean(axis=3)
    bits = (np.diff(grey, axis=2) > FAINT).reshape(len(grey), HASH_ROWS * (HASH_COLUMNS - 1))
    return np.packbits(bits, axis=1).view(">u8").astype(np.uint64).reshape(-1)


def _candidates(bits: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of pairs that share a band of their bits, the smaller row first, in portions."""
    width = 64 // BANDS
    for band in range(BANDS):
        part = (bits >> np.uint64(band * width)) & np.uint64((1 << width) - 1)
        order = np.argsort(part, kind="stable")
        for step in range(1, min(MAX_SIMILAR, len(order) - 1) + 1):
            same = part[order[step:]] == part[order[:-step]]
            if not same.any():
                break  # nor is there anything further apart
            one, other = order[:-step][same], order[step:][same]
            for first in range(0, len(one), SCAN_BATCH):
                yield one[first : first + SCAN_BATCH], other[first : first + SCAN_BATCH]
