"""Decode many images in the order of their paths: in threads, or in processes where there are cores for them.

Threads of one Python share its lock and its memory map, and from a few cores on they wait for both
(benchmarks/decode.py). A process of DecodeProcess reads a path a line from its input and writes pixels to its output;
one thread waits for each. The memory that decoding takes is that of DECODE_BUDGET either way.

JPEG files are decoded at 1/2, 1/4 or 1/8 of their sides where both stay at least DRAFT times what is wanted, as
thumbnails are: a photograph of 12 million pixels takes a fifth of the time. Its pixels then differ from those of the
whole image by at most DRAFT_ERROR; smaller images are decoded whole, as all were before.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import IO, NamedTuple, Protocol

import numpy as np
from PIL import Image

from holotype.data.decode import DECODE_BUDGET, Box, ImageProblem, open_image
from holotype.errors import InputError
from holotype.utils.device import cpu_count, thread_map

LONGEST_SIDE_RATIO = 4
"""An image's longer side is cut to at most this many times its shorter side."""
DRAFT = 2
"""An image that is decoded smaller keeps at least so many times the sides that it is shrunk to."""
DRAFT_ERROR = (4, 24)
"""Mean and largest difference from the pixels of the image decoded whole, of 255, that tests allow for noise and hard
chequers, the worst cases. A photograph differs by less than 1 in the mean."""
PROCESSES_FROM, IMAGES_EACH = 4, 64
"""Processes decode from so many processors on, where each has at least so many images: they take 0.3 s to start."""

log = logging.getLogger("holotype")


class Decoded(NamedTuple):
    """One image; (0, 0, 3) pixels if it has a problem."""

    pixels: np.ndarray
    problem: str
    note: str


class LentMemory(Protocol):
    """Lends the memory that decoding an image takes."""

    def taken(self, nbytes: int) -> contextlib.AbstractContextManager[None]: ...


def broken_image(problem: str) -> Decoded:
    return Decoded(np.empty((0, 0, 3), dtype=np.uint8), problem, "")


def decode_one(path: str, short: int, draft: int = DRAFT, budget: LentMemory = DECODE_BUDGET) -> Decoded:
    """Read an image and bring its shorter side to `short`; whatever goes wrong becomes its problem.

    draft: 0 decodes every image whole.
    """
    try:
        with open_image(path, about=draft * short) as image, budget.taken(image.nbytes), image.loaded():
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
    processes: bool | None = None,
) -> Generator[Decoded, None, None]:
    """Decode and yield in the order of `paths`, with a bar on the terminal.

    workers: threads or processes, by default one a processor. draft: as of decode_one. decoded: images taken from there
    as far as they are. processes: by default where they pay.
    """
    if workers is not None and workers < 1:
        raise InputError(f"{workers} decoding workers cannot work; give at least 1.")
    count = workers or cpu_count()
    if processes is None:
        processes = count >= PROCESSES_FROM and len(paths) >= IMAGES_EACH * count
    with DecodeProcesses(short, draft, count) if processes else contextlib.nullcontext() as pool:
        decode: Callable[[str], Decoded] = pool or partial(decode_one, short=short, draft=draft)

        def find_or_decode(path: str) -> Decoded:
            return (decoded.take(path, short) if decoded else None) or decode(path)

        yield from thread_map(find_or_decode, paths, "Reading images", progress, count)


HEADER = struct.Struct("<IIII")
"""Height, width, bytes of problem and of note."""
NBYTES, GO = struct.Struct("<Q"), b"\n"


class DecodeProcesses:
    """So many processes that decode; called from as many threads."""

    def __init__(self, short: int, draft: int, count: int) -> None:
        self.how, self._works, self._lock = (short, draft), True, Lock()
        self._idle: SimpleQueue[DecodeProcess | None] = SimpleQueue()
        for _ in range(count):
            self._idle.put(None)  # each starts when it is first wanted

    def __enter__(self) -> DecodeProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        while not self._idle.empty():
            if (process := self._idle.get()) is not None:
                process.close()

    def __call__(self, path: str) -> Decoded:
        process = self._idle.get()
        try:
            if self._works and process is None:
                process = DecodeProcess(*self.how)
            if process is None:
                return decode_one(path, *self.how)
            return process(path)
        except OSError as error:
            started, process = process, None
            if started is not None:
                started.close()
                if started.answers:  # an image can end a decoder; not the run
                    return broken_image(f"{path} is damaged: its decoder ended without a word.")
            with self._lock:
                if self._works:
                    log.warning("Images are decoded in threads: no process could be started (%s).", error)
                self._works = False
            return decode_one(path, *self.how)
        finally:
            self._idle.put(process)


class DecodeProcess:
    """A process that decodes one image at a time. What breaks off is an OSError."""

    def __init__(self, short: int, draft: int) -> None:
        one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import answer_paths; answer_paths({short}, {draft})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **one_thread, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self.answers = 0

    def __call__(self, path: str) -> Decoded:
        self._write(json.dumps(path).encode() + b"\n")
        (nbytes,) = NBYTES.unpack(self._read(NBYTES.size))
        with DECODE_BUDGET.taken(nbytes):
            self._write(GO)
            height, width, problem, note = HEADER.unpack(self._read(HEADER.size))
        texts = [bytes(self._read(n)).decode() for n in (problem, note)]
        pixels = np.frombuffer(self._read(height * width * 3), np.uint8).reshape(height, width, 3)
        self.answers += 1
        return Decoded(pixels, *texts)

    def _write(self, content: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(content)

    def _read(self, size: int) -> bytearray:
        assert self._process.stdout is not None
        content = bytearray(size)
        left = memoryview(content)
        while len(left):
            if not (n := self._process.stdout.readinto(left)):  # type: ignore[attr-defined]
                raise BrokenPipeError("it ended")
            left = left[n:]
        return content

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._process.wait()


class _AskedBudget:
    """The memory of the process that this one decodes for."""

    def __init__(self, questions: IO[bytes], answers: IO[bytes]) -> None:
        self.questions, self.answers = questions, answers
        self.asked = False

    @contextlib.contextmanager
    def taken(self, nbytes: int) -> Iterator[None]:
        self.asked = True
        self.answers.write(NBYTES.pack(nbytes))
        self.answers.flush()
        self.questions.read(len(GO))
        yield


def answer_paths(short: int, draft: int) -> None:
    """Decode the images whose paths come in, until no more do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which then closes the pipe
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a decoder prints is no answer
    for line in questions:
        budget = _AskedBudget(questions, answers)
        image = decode_one(json.loads(line), short, draft, budget)
        if not budget.asked:
            with budget.taken(0):
                pass
        problem, note = image.problem.encode(), image.note.encode()
        answers.write(HEADER.pack(*image.pixels.shape[:2], len(problem), len(note)) + problem + note)
        answers.write(np.ascontiguousarray(image.pixels).data)
        answers.flush()
