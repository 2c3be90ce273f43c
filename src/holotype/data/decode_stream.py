"""Decode many images in the order of their paths, in threads.

Processes are no faster, on two processors and on sixteen (docs/performance.md).

JPEG files are decoded at 1/2, 1/4 or 1/8 of their sides where both stay at least DRAFT times what is wanted, as
thumbnails are: a photograph of 12 million pixels takes a fifth of the time. Its pixels then differ from those of the
whole image by at most DRAFT_ERROR; smaller images are decoded whole, as all were before.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from holotype.data.decode import DECODE_BUDGET, Box, ImageProblem, open_image
from holotype.utils.device import cpu_count, thread_map

LONGEST_SIDE_RATIO = 4
"""An image's longer side is cut to at most this many times its shorter side."""
DRAFT = 2
"""An image that is decoded smaller keeps at least so many times the sides that it is shrunk to."""
DRAFT_ERROR = (4, 24)
"""Mean and largest difference from the pixels of the image decoded whole, of 255, that tests allow for noise and hard
chequers, the worst cases. A photograph differs by less than 1 in the mean."""


class Decoded(NamedTuple):
    """One image; (0, 0, 3) pixels if it has a problem."""

    pixels: np.ndarray
    problem: str
    note: str


def broken_image(problem: str) -> Decoded:
    return Decoded(np.empty((0, 0, 3), dtype=np.uint8), problem, "")


def decode_one(path: str, short: int, draft: int = DRAFT) -> Decoded:
    """Read an image and bring its shorter side to `short`; whatever goes wrong becomes its problem.

    draft: 0 decodes every image whole.
    """
    try:
        with (
            open_image(path, about=draft * short) as image,
            DECODE_BUDGET.taken(image.nbytes),
            image.loaded(),
        ):
            size, box, cut = _target(image.whole, short)
            left, top, right, bottom = image.frame
            x, y = (right - left) / image.whole[0], (bottom - top) / image.whole[1]
            if box is not None:
                box = (left + x * box[0], top + y * box[1], left + x * box[2], top + y * box[3])
            resized = image.rgb().resize(size, Image.Resampling.BICUBIC, box or image.frame)
        return Decoded(np.asarray(resized), "", "; ".join(x for x in (image.note, cut) if x))
    except ImageProblem as problem:
        return broken_image(str(problem))


def _target(size: tuple[int, int], short: int) -> tuple[tuple[int, int], Box | None, str]:
    """Return the size that brings the shorter side to `short`; where the longer side is cut, also the part to take and
    a note."""
    width, height = size
    side = min(width, height)
    to_width, to_height = short * width // side, short * height // side
    limit = LONGEST_SIDE_RATIO * short
    if max(to_width, to_height) <= limit:
        return (to_width, to_height), None, ""
    # Only the middle is ever computed: a strip one pixel high would fill the memory if resized whole.
    keep_width, keep_height = min(to_width, limit), min(to_height, limit)
    x, y = (to_width - keep_width) // 2, (to_height - keep_height) // 2
    left, right = x * width / to_width, (x + keep_width) * width / to_width
    top, bottom = y * height / to_height, (y + keep_height) * height / to_height
    note = f"{width} x {height} pixels: only the middle used, {LONGEST_SIDE_RATIO} times the shorter side"
    return (keep_width, keep_height), (left, top, right, bottom), note


class DecodedImages:
    """Images that were decoded and will be wanted once more, as many as `limit` bytes hold."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._images: dict[tuple[str, int], Decoded] = {}

    def add(self, path: str, short: int, image: Decoded) -> None:
        if image.pixels.nbytes <= self.limit and not image.problem:
            self.limit -= image.pixels.nbytes
            self._images[path, short] = image

    def take(self, path: str, short: int) -> Decoded | None:
        """Return an image, and forget it."""
        return self._images.pop((path, short), None)

    def clear(self) -> None:
        self._images.clear()


def decode_in_order(
    paths: Sequence[str],
    short: int,
    workers: int | None,
    progress: bool,
    *,
    draft: int = DRAFT,
    decoded: DecodedImages | None = None,
) -> Generator[Decoded, None, None]:
    """Decode and yield in the order of `paths`, with a bar on the terminal.

    workers: threads, by default one a processor. draft: as of decode_one. decoded: images that are read already.
    """

    def find_or_decode(path: str) -> Decoded:
        return (decoded.take(path, short) if decoded else None) or decode_one(path, short, draft)

    yield from thread_map(find_or_decode, paths, "Reading images", progress, workers or cpu_count())
