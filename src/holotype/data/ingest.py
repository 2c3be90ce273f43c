"""From paths to resized pixels: every image read, turned into RGB and resized once, in threads and in order."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from threading import Condition

import numpy as np
from PIL import Image

from holotype.data.decode import Box, ImageProblem, opened
from holotype.errors import InputError
from holotype.utils.console import progress_bar
from holotype.utils.device import cpu_count

LONGEST = 4
"""An image's longer side is cut to at most this many times its shorter side."""
LEAST_ROOM, ROOM_PER_THREAD = 256 << 20, 64 << 20
"""Bytes that images being decoded may take together: the larger of the first, and the second for each processor.
A photograph of 16 million pixels takes 64 MiB."""


class Room:
    """Memory that threads share. Each waits until there is enough; one that wants more than all of it gets all."""

    def __init__(self, nbytes: int) -> None:
        self._all = self._free = nbytes
        self._changed = Condition()

    @contextlib.contextmanager
    def taken(self, nbytes: int) -> Iterator[None]:
        nbytes = min(nbytes, self._all)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= nbytes)
            self._free -= nbytes
        try:
            yield
        finally:
            with self._changed:
                self._free += nbytes
                self._changed.notify_all()


ROOM = Room(max(LEAST_ROOM, ROOM_PER_THREAD * cpu_count()))
"""Of all images that this process decodes."""


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
        with opened(path) as image, ROOM.taken(image.nbytes), image.loaded():
            size, box, cut = _target(image.size, short)
            resized = image.resized(size, Image.Resampling.BICUBIC, box)
        return Decoded(np.asarray(resized), "", "; ".join(x for x in (image.note, cut) if x))
    except ImageProblem as problem:
        return Decoded(empty, str(problem), "")
    except Exception as error:  # one odd file among a million must not end the run
        return Decoded(empty, f"{path} could not be prepared ({type(error).__name__}: {error}).", "")


def _target(size: tuple[int, int], short: int) -> tuple[tuple[int, int], Box | None, str]:
    """The size that brings the shorter side to `short`; where the longer side is cut, the part to take, and a note."""
    width, height = size
    side = min(width, height)
    to_width, to_height = short * width // side, short * height // side
    limit = LONGEST * short
    if max(to_width, to_height) <= limit:
        return (to_width, to_height), None, ""
    # Only the middle is ever computed: a strip one pixel high would fill the memory if resized whole.
    keep_width, keep_height = min(to_width, limit), min(to_height, limit)
    x, y = (to_width - keep_width) // 2, (to_height - keep_height) // 2
    box = (
        x * width / to_width,
        y * height / to_height,
        (x + keep_width) * width / to_width,
        (y + keep_height) * height / to_height,
    )
    told = f"{width} x {height} pixels: only the middle used, {LONGEST} times the shorter side"
    return (keep_width, keep_height), box, told


def in_order(paths: Sequence[str], short: int, workers: int | None, progress: bool) -> Iterator[Decoded]:
    """Decode in threads and yield in the order of `paths`, with a bar on the terminal."""
    count = cpu_count() if workers is None else workers
    if count < 1:
        raise InputError(f"{count} decoding workers cannot work; give at least 1.")
    ahead: deque[Future[Decoded]] = deque()
    waiting = iter(paths)
    with progress_bar("Reading images", len(paths), progress) as advance, ThreadPoolExecutor(count) as pool:
        while True:
            # A short queue keeps the threads busy and few decoded images outside the buffer.
            for path in islice(waiting, 4 * count - len(ahead)):
                ahead.append(pool.submit(_decode_one, path, short))
            if not ahead:
                return
            yield ahead.popleft().result()
            advance(1)
