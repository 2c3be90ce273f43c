"""The image store: every image decoded and resized once, kept as uint8 in one flat buffer.

Images have ragged sizes, so the buffer holds them one after the other, each as rows of RGB pixels, with an
offset, a height and a width per image. A batch of random crops is one gather with computed indices on a GPU,
and a copy per crop on the CPU or out of a memory-mapped file; both give the pixels PIL's crop would give.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from holotype.data.ingest import in_order
from holotype.data.scratch import PixelBuffer, Spill
from holotype.data.views import Crops
from holotype.errors import InputError
from holotype.utils.atomic import atomic_write
from holotype.utils.device import cpu_count
from holotype.utils.memory import Level

CROP_SHARE = 0.875
"""A crop's side as a share of the stored image's shorter side, as in the reference transforms."""
HASHED_AT_ONCE = 1 << 24
"""Bytes that one thread hashes at a time; part of what a digest means."""
UNTHREADED = 32_767
"""Most elements that torch works on in the calling thread alone."""
READERS = 4
"""Threads that cut crops out of a memory-mapped file, where each may wait for the disk."""
FORMAT = "holotype-image-store-1"


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
        spill: Spill | None = None,
    ) -> ImageStore:
        """Read every image of `paths` for crops of `size`; a broken one gets a problem, never an exception.

        The result does not depend on `workers` (threads; one per processor unless given). With `spill`, images
        that memory will not hold go to a scratch file as they are decoded.
        """
        if size < 1:
            raise InputError(f"The crop size is {size}; give a positive number of pixels.")
        buffer = PixelBuffer(len(paths), spill)
        offset, sides, problem, note = [], [], [], []
        for image in in_order(paths, int(size / CROP_SHARE), workers, progress):
            offset.append(buffer.add(image.pixels))
            sides.append(image.pixels.shape[:2])
            problem.append(image.problem)
            note.append(image.note)
        side = torch.tensor(sides, dtype=torch.int64).reshape(-1, 2)
        pixels, mapped = buffer.finish()
        return cls(
            pixels=pixels,
            offset=torch.tensor(offset, dtype=torch.int64),
            height=side[:, 0].contiguous(),
            width=side[:, 1].contiguous(),
            size=size,
            problem=np.array(problem, dtype=object),
            note=np.array(note, dtype=object),
            mapped=mapped,
        )

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

    def crop(self, rows: Tensor, crops: Crops) -> Tensor:
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

    def cut(self, rows: Tensor, crops: Crops, *, pin: bool = False) -> Tensor:
        """What `crop` gives, on the CPU: one copy per crop, three to ten times faster there than the gather.

        pin: into page-locked memory, from which a GPU fetches without waiting.
        """
        if self.device.type != "cpu":
            images = self.crop(rows, crops).cpu()
            return images.pin_memory() if pin else images
        # Crops.to would not wait for a GPU, and the numbers are read at once.
        rows, crops = rows.cpu(), Crops(crops.top.cpu(), crops.left.cpu(), crops.flip.cpu())
        self._check(rows, crops)
        batch = torch.empty(len(rows), self.size, self.size, 3, dtype=torch.uint8, pin_memory=pin)
        width = self.width[rows]
        start = (self.offset[rows] + 3 * (crops.top * width + crops.left)).tolist()
        jobs = list(zip(batch.flatten(2).numpy(), start, (3 * width).tolist(), strict=True))
        if self.mapped and len(jobs) > 1:
            with ThreadPoolExecutor(READERS) as pool:
                list(pool.map(self._copy, [jobs[i::READERS] for i in range(READERS)]))
        else:
            self._copy(jobs)
        images = batch.permute(0, 3, 1, 2)
        lines = max(1, UNTHREADED // (3 * self.size))
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

    def _check(self, rows: Tensor, crops: Crops) -> None:
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

    def save(self, path: Path | str) -> None:
        """Write the store as safetensors; a kill at any moment leaves the old file or the new one."""
        path = Path(path)
        sides = {"offset": self.offset, "height": self.height, "width": self.width}
        metadata = {"format": FORMAT, "size": str(self.size)}
        metadata |= {"problem": _sparse(self.problem), "note": _sparse(self.note)}
        tensors = {"pixels": self.pixels.cpu(), **sides}
        atomic_write(path, lambda beside: save_file(tensors, beside, metadata))

    @classmethod
    def load(cls, path: Path | str) -> ImageStore:
        """Open a saved store; the pixels stay in the file and are read as they are used."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"There is no image store at {path}; decode the images first.")
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise InputError(
                        f"{path} is not an image store of this version; decode the images again."
                    )
                tensor = {name: file.get_tensor(name) for name in ("pixels", "offset", "height", "width")}
        except SafetensorError as error:
            raise InputError(f"{path} cannot be read ({error}); decode the images again.") from error
        n = len(tensor["offset"])
        try:
            problem, note = _dense(metadata["problem"], n), _dense(metadata["note"], n)
            size = int(metadata["size"])
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            raise InputError(
                f"{path} cannot be read (its metadata are not those of an image store); decode the images again."
            ) from error
        return cls(**tensor, size=size, problem=problem, note=note, mapped=True)


def _hash(part: Tensor) -> bytes:
    return hashlib.sha256(part.cpu().numpy().data).digest()


def _sparse(text: np.ndarray) -> str:
    """The non-empty entries of an array of strings, as JSON {row: string}."""
    return json.dumps({str(row): entry for row, entry in enumerate(text) if entry})


def _dense(text: str, n: int) -> np.ndarray:
    """The inverse of `_sparse` for n rows."""
    result = np.full(n, "", dtype=object)
    for row, entry in json.loads(text).items():
        result[int(row)] = entry
    return result
