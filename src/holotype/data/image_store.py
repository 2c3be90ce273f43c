"""Image store: every image decoded and resized once, in GPU memory, host memory or a mapped file.

A scratch file has no name in its folder, so it is gone with the process, however that ends.

Images have ragged sizes, so the buffer holds them one after the other, each as rows of RGB pixels, with an
offset, a height and a width per image. A batch of random crops is one gather with computed indices on a GPU,
and a copy per crop on the CPU or out of a memory-mapped file; both give the pixels PIL's crop would give.
"""

from __future__ import annotations

import dataclasses
import hashlib
import mmap
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from holotype.data.augment import CropParams
from holotype.data.decode import DECODE_BUDGET, Box, ImageProblem, open_image
from holotype.errors import InputError
from holotype.utils.console import progress_bar
from holotype.utils.device import cpu_count
from holotype.utils.memory import LEVELS, PLACE_NAMES, Budget, Level, is_out_of_memory
from holotype.utils.text import format_bytes

LONGEST_SIDE_RATIO = 4
"""An image's longer side is cut to at most this many times its shorter side."""


class Decoded(NamedTuple):
    """One image on its way into the buffer; (0, 0, 3) pixels if it has a problem."""

    pixels: np.ndarray
    problem: str
    note: str


def _decode_one(path: str, short: int) -> Decoded:
    """Read and resize one image; whatever goes wrong becomes its problem."""
    try:
        with open_image(path) as image, DECODE_BUDGET.taken(image.nbytes), image.loaded():
            size, box, cut = _target(image.size, short)
            resized = image.resized(size, Image.Resampling.BICUBIC, box)
        return Decoded(np.asarray(resized), "", "; ".join(x for x in (image.note, cut) if x))
    except ImageProblem as problem:
        return Decoded(np.empty((0, 0, 3), dtype=np.uint8), str(problem), "")


def _target(size: tuple[int, int], short: int) -> tuple[tuple[int, int], Box | None, str]:
    """The size that brings the shorter side to `short`; where the longer side is cut, the part to take, and a note."""
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


def decode_in_order(
    paths: Sequence[str], short: int, workers: int | None, progress: bool
) -> Iterator[Decoded]:
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


SPILL_MARGIN = 32
"""Images after which the mean size so far tells what all of them will take."""


@dataclass(frozen=True)
class SpillConfig:
    """Where pixels go that memory does not hold."""

    host_bytes: int
    """Bytes that may be held in memory; 0 = everything goes to the file."""
    folder: Path
    """Where the scratch file is made."""
    disk_bytes: int | None = None
    """Bytes the scratch file may take; None = as many as the disk has."""


class PixelBuffer:
    """Takes `images` images one after the other and ends as one flat tensor."""

    def __init__(self, images: int, spill: SpillConfig | None = None) -> None:
        self.images, self.spill = images, spill
        self.done, self.used = 0, 0
        self.memory = np.empty(0, dtype=np.uint8)
        self.scratch = Scratch(spill) if spill is not None and spill.host_bytes <= 0 else None

    def add(self, pixels: np.ndarray) -> int:
        """Append an image of any shape; returns where it starts."""
        start, end = self.used, self.used + pixels.size
        self.done += 1
        likely = end * self.images // self.done
        if self.scratch is None and self.spill is not None:
            expected = likely if self.done >= SPILL_MARGIN else end
            if max(end, expected) > self.spill.host_bytes:
                self.scratch = Scratch(self.spill)
                self.scratch.write(self.memory[:start])
                self.memory = np.empty(0, dtype=np.uint8)
        if self.scratch is not None:
            self.scratch.write(pixels)
        else:
            if end > len(self.memory):
                self._grow(end, likely)
            self.memory[start:end] = pixels.reshape(-1)
        self.used = end
        return start

    def _grow(self, least: int, likely: int) -> None:
        """Enlarge in place to what all images will likely take, at least `least`.

        The memory is re-allocated rather than copied into a second buffer, so the images are never held twice.
        """
        wanted = likely + likely // 50
        if self.spill is not None:
            wanted = min(wanted, self.spill.host_bytes)
        self.memory.resize(max(least, wanted), refcheck=False)

    def finish(self) -> tuple[Tensor, bool]:
        """(total,) uint8, and whether it is a memory-mapped file."""
        if self.scratch is not None:
            return self.scratch.map(), True
        self.memory.resize(self.used, refcheck=False)
        return torch.from_numpy(self.memory), False


class Scratch:
    """A file without a name, written from the start to the end and then mapped into memory."""

    def __init__(self, spill: SpillConfig) -> None:
        self.folder, self.limit, self.used = spill.folder, spill.disk_bytes, 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what a full disk refuses is refused here, not when the file is closed.
            self.file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise InputError(
                f"No file can be made in {self.folder} ({error.strerror or error}); give a folder for "
                "memory-mapped images with --memory.cache_dir."
            ) from error

    def write(self, pixels: np.ndarray) -> None:
        """Append; written rather than mapped, so that memory stays free and a full disk is an error."""
        self.used += pixels.size
        if self.limit is not None and self.used > self.limit:
            raise too_little_disk(self.used, self.limit, self.folder, at_least=True)
        left = np.ascontiguousarray(pixels).reshape(-1).data
        try:
            while len(left):
                left = left[self.file.write(left) :]
        except OSError as error:
            raise InputError(
                f"The images could not be written to {self.folder} ({error.strerror or error}); free some space, "
                "or give another folder with --memory.cache_dir."
            ) from error

    def map(self) -> Tensor:
        """(used,) uint8, read from the file as it is used; the file goes when the tensor does."""
        with self.file:
            if self.used == 0:
                return torch.empty(0, dtype=torch.uint8)
            # Never written to: a mapping for reading only would make torch warn.
            mapped = mmap.mmap(self.file.fileno(), self.used)
        return torch.from_numpy(np.frombuffer(mapped, dtype=np.uint8))


def too_little_disk(wanted: int, limit: int, folder: Path, *, at_least: bool = False) -> InputError:
    return InputError(
        f"The images take {'at least ' if at_least else ''}{format_bytes(wanted)}, which neither memory nor the "
        f"{format_bytes(limit)} for files in {folder} can hold; give more with --memory.disk_gb or --memory.host_gb, "
        "or a folder on a larger disk with --memory.cache_dir."
    )


CROP_FRACTION = 0.875
"""A crop's side as a share of the stored image's shorter side, as in the reference transforms."""
HASHED_AT_ONCE = 1 << 24
"""Bytes that one thread hashes at a time; part of what a digest means."""
SINGLE_THREAD_IMAGES = 32_767
"""Most elements that torch works on in the calling thread alone."""
READER_THREADS = 4
"""Threads that cut crops out of a memory-mapped file, where each may wait for the disk."""


@dataclass(frozen=True, eq=False)
class ImageStore:
    """N decoded images. `offset`, `height` and `width` stay on the CPU, where crops are drawn."""

    pixels: Tensor
    """(total,) uint8: height x width x 3 per image, on any device, possibly a memory-mapped file."""
    offset: Tensor
    """(N,) int64, where each image starts in `pixels`."""
    height: Tensor
    """(N,) int64, stored height; 0 for an image that has a problem."""
    width: Tensor
    """(N,) int64, stored width; 0 for an image that has a problem."""
    size: int
    """Side of the square crops this store was made for."""
    problem: np.ndarray
    """(N,) object str: why an image could not be used, "" if it could."""
    note: np.ndarray
    """(N,) object str: what was done to an unusual image, "" for most."""
    mapped: bool = False
    """Whether the pixels are a memory-mapped file."""
    _where: Tensor = field(init=False, repr=False)
    """(2, N) int64 beside the pixels: first pixel and width of each image, for the gather."""

    def __post_init__(self) -> None:
        where = torch.stack([self.offset // 3, self.width]).to(self.pixels.device)
        object.__setattr__(self, "_where", where)

    @classmethod
    def decode(
        cls,
        paths: Sequence[str],
        size: int,
        *,
        workers: int | None = None,
        progress: bool = True,
        spill: SpillConfig | None = None,
    ) -> ImageStore:
        """Read every image of `paths` for crops of `size`; a broken one gets a problem, never an exception.

        The result does not depend on `workers` (threads; one per processor unless given). With `spill`, images
        that memory will not hold go to a scratch file as they are decoded.
        """
        if size < 1:
            raise InputError(f"The crop size is {size}; give a positive number of pixels.")
        buffer = PixelBuffer(len(paths), spill)
        images = [
            (buffer.add(image.pixels), *image.pixels.shape[:2], image.problem, image.note)
            for image in decode_in_order(paths, int(size / CROP_FRACTION), workers, progress)
        ]
        columns: list[Any] = list(zip(*images, strict=True)) or [()] * 5
        offset, height, width = (torch.tensor(column, dtype=torch.int64) for column in columns[:3])
        problem, note = (np.array(column, dtype=object) for column in columns[3:])
        pixels, mapped = buffer.finish()
        return cls(pixels, offset, height, width, size, problem, note, mapped)

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def nbytes(self) -> int:
        """Bytes of pixels."""
        return self.pixels.numel()

    @property
    def device(self) -> torch.device:
        """Where the pixels lie, and where crops come out."""
        return self.pixels.device

    @property
    def level(self) -> Level:
        """Where the pixels lie: on a GPU, in the host's memory, in a memory-mapped file."""
        if self.device.type != "cpu":
            return "device"
        return "disk" if self.mapped else "host"

    def to(self, device: torch.device | str) -> ImageStore:
        """This store with its pixels on `device`."""
        pixels = self.pixels.to(device)
        return replace(self, pixels=pixels, mapped=self.mapped and pixels.device.type == "cpu")

    def image(self, row: int) -> Tensor:
        """One stored image, (height, width, 3) uint8, a view of the buffer."""
        start, h, w = int(self.offset[row]), int(self.height[row]), int(self.width[row])
        return self.pixels[start : start + h * w * 3].view(h, w, 3)

    def crop(self, rows: Tensor, crops: CropParams) -> Tensor:
        """The crops of images `rows`, mirrored where asked: (B, 3, S, S) uint8 on the store's device.

        rows: (B,) int64. Rows and crops on the CPU are checked; those already on a GPU are trusted, because a
        check would have to wait for it. The result's memory is laid out as (B, S, S, 3) (channels last).
        """
        if self.device.type == "cpu":
            return self.cut(rows, crops)
        self._check(rows, crops)
        rows, crops = rows.to(self.device, non_blocking=True), crops.to(self.device)
        first, stride = self._where[:, rows]
        step = torch.arange(self.size, device=self.device)
        # A mirrored crop reads the same columns from the right end to the left.
        column = torch.where(crops.flip[:, None], self.size - 1 - step, step)
        row_start = (first + crops.top * stride + crops.left)[:, None] + step * stride[:, None]
        index = row_start[:, :, None] + column[:, None, :]
        cut = self.pixels.view(-1, 3).index_select(0, index.flatten())
        return cut.view(*index.shape, 3).permute(0, 3, 1, 2)

    def cut(self, rows: Tensor, crops: CropParams, *, pin: bool = False) -> Tensor:
        """What `crop` gives, on the CPU: one copy per crop, three to ten times faster there than the gather.

        pin: into page-locked memory, from which a GPU fetches without waiting.
        """
        if self.device.type != "cpu":
            images = self.crop(rows, crops).cpu()
            return images.pin_memory() if pin else images
        # Crops.to would not wait for a GPU, and the numbers are read at once.
        rows, crops = rows.cpu(), CropParams(crops.top.cpu(), crops.left.cpu(), crops.flip.cpu())
        self._check(rows, crops)
        batch = torch.empty(len(rows), self.size, self.size, 3, dtype=torch.uint8, pin_memory=pin)
        width = self.width[rows]
        start = (self.offset[rows] + 3 * (crops.top * width + crops.left)).tolist()
        jobs = list(zip(batch.flatten(2).numpy(), start, (3 * width).tolist(), strict=True))
        if self.mapped and len(jobs) > 1:
            with ThreadPoolExecutor(READER_THREADS) as pool:
                list(pool.map(self._copy, [jobs[i::READER_THREADS] for i in range(READER_THREADS)]))
        else:
            self._copy(jobs)
        images = batch.permute(0, 3, 1, 2)
        lines = max(1, SINGLE_THREAD_IMAGES // (3 * self.size))
        for i in crops.flip.nonzero().flatten().tolist():
            # In this layout torch mirrors with vector instructions, and parts so small without waking its
            # threads: on processors that are busy each wake-up may take 10 ms.
            for part in images[i : i + 1].split(lines, dim=2):
                part.copy_(part.flip(3))
        return images

    def _copy(self, jobs: Sequence[tuple[np.ndarray, int, int]]) -> None:
        """Fill arrays of (S, 3 S) with the pixels that begin at a byte and go on a stride later, line by line."""
        pixels = self.pixels.numpy()
        for lines, start, stride in jobs:
            lines[:] = np.ndarray(lines.shape, np.uint8, pixels, start, (stride, 1))

    def digest(self) -> str:
        """Hexadecimal hash of the pixels, the sides and the crop size; the same wherever the pixels lie."""
        facts = torch.cat([torch.tensor([self.size, len(self)]), self.height, self.width])
        with ThreadPoolExecutor(cpu_count()) as pool:
            parts = pool.map(_hash, [facts, *self.pixels.split(HASHED_AT_ONCE)])
            return hashlib.sha256(b"".join(parts)).hexdigest()

    def _check(self, rows: Tensor, crops: CropParams) -> None:
        """Raise if a crop would read outside its image, as far as that is known without waiting."""
        if any(x.device.type != "cpu" for x in (rows, crops.top, crops.left)):
            return
        height, width = self.height[rows], self.width[rows]
        inside = (crops.top >= 0) & (crops.left >= 0)
        inside &= (crops.top + self.size <= height) & (crops.left + self.size <= width)
        if not bool(inside.all()):
            at = int((~inside).nonzero()[0, 0])
            row = int(rows[at])
            reason = self.problem[row] or f"it is stored as {int(height[at])} x {int(width[at])}"
            raise InputError(
                f"The crop of {self.size} pixels at ({int(crops.top[at])}, {int(crops.left[at])}) does not "
                f"fit image {row}: {reason}; draw crops from the sides of usable images only."
            )


def _hash(part: Tensor) -> bytes:
    return hashlib.sha256(part.cpu().numpy().data).digest()


PlacementChoice = Literal["auto", "device", "host", "disk"]
CHUNK = 1 << 26
"""Bytes that are moved to a file at a time."""


def place_pixels(
    store: ImageStore, device: torch.device, choice: PlacementChoice, budget: Budget, folder: Path
) -> tuple[ImageStore, str]:
    """The store at the level asked for, or at the next below it that has room, and a line that says where and why.

    device: where the run computes. On a CPU the highest level is the host's memory.
    budget: what was found before the images were decoded, so that it counts what they take now.
    Host memory is not page-locked: the GPU never reads it. `cut` fills small page-locked batches for it.
    """
    if choice not in ("auto", *LEVELS):
        raise InputError(f"--store {choice} is unknown; use auto, device, host or disk.")
    first = LEVELS.index("device" if choice == "auto" else choice)
    if device.type == "cpu":
        first = max(first, LEVELS.index("host"))
    reasons: list[str] = []
    for level in LEVELS[first:]:
        refusal = _no_room(store, level, budget, folder)
        if not refusal:
            try:
                placed = _move(store, level, device, folder)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                refusal = f"{PLACE_NAMES[level]} ran out while they were copied"
            else:
                return placed, _line(placed, choice, budget, folder, reasons)
        reasons.append(refusal)
    raise AssertionError("the disk takes the images or says why not")


def _no_room(store: ImageStore, level: Level, budget: Budget, folder: Path) -> str:
    """Why the store may not lie at `level`, "" if it may; for the lowest level an error."""
    room = getattr(budget, level)
    if store.nbytes <= room:
        return ""
    if level == "disk":
        raise too_little_disk(store.nbytes, room, folder)
    return f"{format_bytes(store.nbytes)} do not fit the {format_bytes(room)} of {PLACE_NAMES[level]} that may be used"


def _move(store: ImageStore, level: Level, device: torch.device, folder: Path) -> ImageStore:
    """The store at `level`; the same object where it is there already."""
    if level == "device":
        return store.to(device)
    if store.level == level:
        return store
    if level == "host":
        pixels = _to_host(store.pixels)
    else:
        scratch = Scratch(SpillConfig(0, folder))
        for part in store.pixels.split(CHUNK):
            scratch.write(part.cpu().numpy())
        pixels = scratch.map()
    return dataclasses.replace(store, pixels=pixels, mapped=level == "disk")


def _to_host(pixels: Tensor) -> Tensor:
    return torch.from_numpy(np.empty(pixels.numel(), dtype=np.uint8)).copy_(pixels)


def _line(
    store: ImageStore, choice: PlacementChoice, budget: Budget, folder: Path, reasons: list[str]
) -> str:
    """Where the images lie and why, for people."""
    where = f"a memory-mapped file in {folder}" if store.level == "disk" else PLACE_NAMES[store.level]
    line = f"{len(store):,} images, {format_bytes(store.nbytes)}, in {where}"
    if reasons:
        return f"{line}: {'; '.join(reasons)}"
    if choice == store.level:
        return f"{line}, as asked for"
    return f"{line} (room for {format_bytes(getattr(budget, store.level))})"
