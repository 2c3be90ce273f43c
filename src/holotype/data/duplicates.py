"""Images that are there more than once: files of the same content, and pictures that look the same.

A picture is reduced to 8 lines of 9 colours. Whether each colour is brighter than the one before gives 64 bits, which
find the pairs that are worth a look; the colours themselves decide. So a copy of another size or compression is found,
and two pictures of one kind are not taken for copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from holotype.data.decode import DECODE_BUDGET, ImageProblem, open_image
from holotype.data.exif import ExifData, read_exif_all
from holotype.utils.device import thread_map

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
    """(n, HASH_ROWS, HASH_COLUMNS, 3) uint8; zeros for an image that cannot be read."""
    problem: np.ndarray
    """(n,) object str: why an image cannot be used, "" if it can."""
    shots: list[ExifData]
    """(n,) what the heads of the files say."""


def scan_thumbnails(paths: Sequence[str], progress: bool = False) -> ThumbnailScan:
    """Look at every image once, small, and at the head of its file, in threads."""
    colours = np.zeros((len(paths), HASH_ROWS, HASH_COLUMNS, 3), dtype=np.uint8)
    problem, shots = np.full(len(paths), "", dtype=object), []
    for row, (seen, shot, complaint) in enumerate(
        thread_map(_scan_one, paths, "Looking at images", progress)
    ):
        problem[row] = complaint
        shots.append(shot)
        if seen is not None:
            colours[row] = seen
    return ThumbnailScan(colours, problem, shots)


def is_readable(path: str) -> bool:
    return not _scan_one(path)[2]


def _scan_one(path: str) -> tuple[np.ndarray | None, ExifData, str]:
    try:
        with open_image(path, min_side=ABOUT_EQUAL) as image:
            shot = image.exif()
            with DECODE_BUDGET.reserve(image.nbytes), image.loaded():
                small = image.rgb().resize((HASH_COLUMNS, HASH_ROWS), Image.Resampling.BOX)
                return np.asarray(small), shot, ""
    except ImageProblem as problem:
        return None, read_exif_all([path])[0], str(problem)  # the head may be sound where the picture is not


def same_pictures(glances: ThumbnailScan) -> list[Pair]:
    """Return pairs of rows that look the same, sorted, copies among them; about MAX_PAIRS at most."""
    sound = np.flatnonzero(glances.problem == "")
    colours = glances.colours[sound]
    # is each colour brighter than its neighbour on the left?
    brighter = np.diff(colours.astype(np.float32).mean(axis=3), axis=2) > FAINT
    bits = np.packbits(brighter.reshape(len(sound), 64), axis=1).view(">u8").astype(np.uint64).reshape(-1)
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


def _candidates(bits: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows of pairs that share a band of their bits, the smaller row first, in portions."""
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
