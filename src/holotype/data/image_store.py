"""Image store: every image decoded and resized once, in GPU memory, host memory or a mapped file.

A scratch file has no name in its folder, so it is gone with the process, however that ends.

Images have ragged sizes, so the buffer holds them one after the other, each as rows of RGB pixels, with an
offset, a height and a width per image. A batch of random crops is one gather with computed indices on a GPU,
and a copy per crop on the CPU or out of a memory-mapped file; both give the pixels PIL's crop would give.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from holotype.data.augment import CropParams
from holotype.data.decode import DecodedImages, decode_in_order
from holotype.errors import InputError
from holotype.utils.device import cpu_count
from holotype.utils.memory import LEVELS, PLACE_NAMES, Budget, Level, is_out_of_memory
from holotype.utils.text import format_bytes

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
        self.memory = bytearray()  # which grows in place, so that the images are never held twice
        self.scratch = Scratch(spill) if spill is not None and spill.host_bytes <= 0 else None

    def add(self, pixels: np.ndarray) -> int:
        """Append an image of any shape; return where it starts."""
        start = self.used
        self.done, self.used = self.done + 1, start + pixels.size
        likely = self.used * self.images // self.done if self.done >= SPILL_MARGIN else self.used
        if self.scratch is None and self.spill is not None and likely > self.spill.host_bytes:
            self.scratch = Scratch(self.spill)
            self.scratch.write(np.frombuffer(self.memory, dtype=np.uint8))
            self.memory = bytearray()
        if self.scratch is not None:
            self.scratch.write(pixels)
        else:
            self.memory += np.ascontiguousarray(pixels).data
        return start

    def finish(self) -> tuple[Tensor, bool]:
        """Return (total,) uint8, and whether it is a memory-mapped file."""
        if self.scratch is not None:
            return self.scratch.map(), True
        return torch.from_numpy(np.frombuffer(self.memory, dtype=np.uint8)), False


class Scratch:
    """A file without a name, written from the start to the end and then mapped into memory."""

    def __init__(self, spill: SpillConfig) -> None:
        self.folder, self.limit, self.used = spill.folder, spill.disk_bytes, 0
        with self._explained():
            self.folder.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what a full disk refuses is refused here, not when the file is closed.
            self.file = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            problem = f"The images cannot be written to {self.folder} ({error.strerror or error})"
            raise InputError(f"{problem}; give another folder with --memory.cache-dir.") from error

    def write(self, pixels: np.ndarray) -> None:
        """Append; written rather than mapped, so that memory stays free and a full disk is an error."""
        self.used += pixels.size
        if self.limit is not None and self.used > self.limit:
            raise too_little_disk(self.used, self.limit, self.folder)
        left = np.ascontiguousarray(pixels).reshape(-1).data
        with self._explained():
            while len(left):
                left = left[self.file.write(left) :]

    def map(self) -> Tensor:
        """Return (used,) uint8, read from the file as it is used; the file goes when the tensor does."""
        with self.file:
            if self.used == 0:
                return torch.empty(0, dtype=torch.uint8)
            # Never written to: a mapping for reading only would make torch warn.
            mapped = mmap.mmap(self.file.fileno(), self.used)
        return torch.from_numpy(np.frombuffer(mapped, dtype=np.uint8))


def too_little_disk(wanted: int, limit: int, folder: Path) -> InputError:
    sizes = f"at least {format_bytes(wanted)}, and the files in {folder} may take {format_bytes(limit)}"
    return InputError(f"The images take {sizes}; raise --memory.disk-gb or --memory.host-gb.")


CROP_FRACTION = 0.875
"""A crop's side as a share of the stored image's shorter side, as in the reference transforms."""
HASHED_AT_ONCE = 1 << 24
"""Bytes that one thread hashes at a time; part of what a digest means."""
KEY_BYTES = 16
"""Of the hash of an image."""
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
        decoded: DecodedImages | None = None,
    ) -> ImageStore:
        """Read every image of `paths` for crops of `size`; a broken one gets a problem, never an exception.

        The result does not depend on `workers` (one per processor unless given). With `spill`, images that memory will
        not hold go to a scratch file as they are decoded. decoded: images that need not be read again.
        """
        if size < 1:
            raise InputError(f"The crop size is {size}; give a positive number of pixels.")
        buffer, short = PixelBuffer(len(paths), spill), int(size / CROP_FRACTION)
        images = [
            (buffer.add(image.pixels), *image.pixels.shape[:2], image.problem, image.note)
            for image in decode_in_order(paths, short, workers, progress, decoded=decoded)
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
        """Return the bytes of pixels."""
        return self.pixels.numel()

    @property
    def device(self) -> torch.device:
        """Return where the pixels lie, and where crops come out."""
        return self.pixels.device

    @property
    def level(self) -> Level:
        """Return where the pixels lie: on a GPU, in the host's memory, in a memory-mapped file."""
        if self.device.type != "cpu":
            return "device"
        return "disk" if self.mapped else "host"

    def to(self, device: torch.device | str) -> ImageStore:
        """Return this store with its pixels on `device`."""
        pixels = self.pixels.to(device)
        return replace(self, pixels=pixels, mapped=self.mapped and pixels.device.type == "cpu")

    def image(self, row: int) -> Tensor:
        """Return one stored image, (height, width, 3) uint8, a view of the buffer."""
        start, h, w = int(self.offset[row]), int(self.height[row]), int(self.width[row])
        return self.pixels[start : start + h * w * 3].view(h, w, 3)

    def crop(self, rows: Tensor, crops: CropParams) -> Tensor:
        """Return the crops of images `rows`, mirrored where asked: (B, 3, S, S) uint8 on the store's device.

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
        """Return what `crop` does, on the CPU: one copy per crop, three to ten times faster there than the gather.

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
        """Return a hexadecimal hash of the pixels, the sides and the crop size; the same wherever the pixels lie."""
        facts = torch.cat([torch.tensor([self.size, len(self)]), self.height, self.width])
        with ThreadPoolExecutor(cpu_count()) as pool:
            parts = pool.map(_hash, [facts, *self.pixels.split(HASHED_AT_ONCE)])
            return hashlib.sha256(b"".join(parts)).hexdigest()

    def keys(self, rows: Tensor) -> list[bytes]:
        """Return 16 bytes for each of these images: a hash of its pixels, its sides and the crop size."""

        def key(row: int) -> bytes:
            sides = f"{self.size} {int(self.height[row])} {int(self.width[row])} ".encode()
            return hashlib.sha256(sides + self.image(row).cpu().numpy().tobytes()).digest()[:KEY_BYTES]

        with ThreadPoolExecutor(cpu_count()) as pool:
            return list(pool.map(key, rows.tolist()))

    def _check(self, rows: Tensor, crops: CropParams) -> None:
        """Raise if a crop would read outside its image, as far as that is known without waiting."""
        if any(x.device.type != "cpu" for x in (rows, crops.top, crops.left)):
            return
        inside = (crops.top >= 0) & (crops.left >= 0)
        inside &= crops.top + self.size <= self.height[rows]
        inside &= crops.left + self.size <= self.width[rows]
        if not bool(inside.all()):
            row = int(rows[~inside][0])
            raise InputError(f"A crop of {self.size} pixels does not fit image {row}; leave it out.")


def _hash(part: Tensor) -> bytes:
    return hashlib.sha256(part.cpu().numpy().data).digest()


PlacementChoice = Literal["auto", "device", "host", "disk"]
CHUNK = 1 << 26
"""Bytes that are moved to a file at a time."""


def place_pixels(
    store: ImageStore, device: torch.device, choice: PlacementChoice, budget: Budget, folder: Path
) -> tuple[ImageStore, str]:
    """Return the store at the level asked for, or at the next below that has room, and a line that says where and why.

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
        room = getattr(budget, level)
        if store.nbytes > room and level == "disk":
            raise too_little_disk(store.nbytes, room, folder)
        if store.nbytes > room:
            sizes = f"{format_bytes(store.nbytes)} do not fit the {format_bytes(room)}"
            reasons.append(f"{sizes} of {PLACE_NAMES[level]} that may be used")
            continue
        try:
            store = _move(store, level, device, folder)
            break
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            reasons.append(f"{PLACE_NAMES[level]} ran out while they were copied")
    where = f"a memory-mapped file in {folder}" if store.level == "disk" else PLACE_NAMES[store.level]
    line = f"{len(store):,} images, {format_bytes(store.nbytes)}, in {where}"
    if reasons:
        return store, f"{line}: {'; '.join(reasons)}"
    if choice == store.level:
        return store, f"{line}, as asked for"
    return store, f"{line} (room for {format_bytes(getattr(budget, store.level))})"


def _move(store: ImageStore, level: Level, device: torch.device, folder: Path) -> ImageStore:
    """Return the store at `level`; the same object where it is there already."""
    if level == "device":
        return store.to(device)
    if store.level == level:
        return store
    if level == "host":
        return replace(store, pixels=_to_host(store.pixels), mapped=False)
    scratch = Scratch(SpillConfig(0, folder))
    for part in store.pixels.split(CHUNK):
        scratch.write(part.cpu().numpy())
    return replace(store, pixels=scratch.map(), mapped=True)


def _to_host(pixels: Tensor) -> Tensor:
    return torch.from_numpy(np.empty(pixels.numel(), dtype=np.uint8)).copy_(pixels)


@dataclass(frozen=True, eq=False)
class VectorStore:
    """N vectors of length 1 in the place of decoded images, with the same properties as an ImageStore."""

    vectors: Tensor
    """(N, D) float32."""
    neighbour: Tensor
    """(N, n) int64: rows of the nearest other vectors, from which views are made."""
    problem: np.ndarray
    note: np.ndarray = field(init=False)
    level = "host"

    def __post_init__(self) -> None:
        object.__setattr__(self, "note", np.full(len(self.vectors), "", dtype=object))

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        return self.vectors.numel() * self.vectors.element_size()

    @property
    def device(self) -> torch.device:
        return self.vectors.device
