"""From paths to resized pixels: every image read, turned into RGB and resized once, in threads and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
from PIL import Image

from holotype.data.decode import ImageProblem, read_image
from holotype.errors import InputError
from holotype.machine.bars import counting
from holotype.machine.device import processors

LONGEST = 4
"""An image's longer side is cut to at most this many times its shorter side."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """One image on its way into the buffer; (0, 0, 3) pixels if it has a problem."""

    pixels: np.ndarray
    problem: str
    note: str


def _decode_one(path: str, short: int) -> Decoded:
    """Read and resize one image; whatever goes wrong becomes its problem."""
    empty = np.empty((0, 0, 3), dtype=np.uint8)
    try:
        image, note = read_image(path)
        if min(image.size) < 1:
            raise ImageProblem(f"{path} has no pixels.")
        resized, cut = _resize(image, short)
        return Decoded(np.asarray(resized), "", "; ".join(x for x in (note, cut) if x))
    except ImageProblem as problem:
        return Decoded(empty, str(problem), "")
    except Exception as error:  # one odd file among a million must not end the run
        return Decoded(empty, f"{path} could not be prepared ({type(error).__name__}: {error}).", "")


def _resize(image: Image.Image, short: int) -> tuple[Image.Image, str]:
    """`image` with its shorter side at `short` (PIL bicubic), and a note if its longer side was cut."""
    width, height = image.size
    side = min(width, height)
    to_width, to_height = short * width // side, short * height // side
    limit = LONGEST * short
    if max(to_width, to_height) <= limit:
        # PIL returns the pixels untouched where the size is already right.
        return image.resize((to_width, to_height), Image.Resampling.BICUBIC), ""
    # Only the middle is ever computed: a strip one pixel high would fill the memory if resized whole.
    keep_width, keep_height = min(to_width, limit), min(to_height, limit)
    x, y = (to_width - keep_width) // 2, (to_height - keep_height) // 2
    box = (
        x * width / to_width,
        y * height / to_height,
        (x + keep_width) * width / to_width,
        (y + keep_height) * height / to_height,
    )
    cut = image.resize((keep_width, keep_height), Image.Resampling.BICUBIC, box=box)
    return cut, f"{width} x {height} pixels: only the middle used, {LONGEST} times the shorter side"


def in_order(paths: Sequence[str], short: int, workers: int | None, progress: bool) -> Iterator[Decoded]:
    """Decode in threads and yield in the order of `paths`, with a bar on the terminal."""
    count = processors() if workers is None else workers
    if count < 1:
        raise InputError(f"{count} decoding workers cannot work; give at least 1.")
    ahead: deque[Future[Decoded]] = deque()
    waiting = iter(paths)
    with counting("Reading images", len(paths), progress) as advance, ThreadPoolExecutor(count) as pool:
        while True:
            # A short queue keeps the threads busy and few decoded images outside the buffer.
            for path in islice(waiting, 4 * count - len(ahead)):
                ahead.append(pool.submit(_decode_one, path, short))
            if not ahead:
                return
            yield ahead.popleft().result()
            advance(1)
