"""The image store: every image decoded and resized once, kept as uint8 in one flat buffer.

Images have ragged sizes, so the buffer holds them one after the other, each as rows of RGB pixels, with an
offset, a height and a width per image. A batch of random crops is then one gather with computed indices; the
same code runs on the CPU, on a GPU and on a memory-mapped file, and gives the pixels PIL's crop would give.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from holotype.data.decode import ImageProblem, read_image
from holotype.data.views import Crops
from holotype.errors import InputError
from holotype.files import write_beside

CROP_SHARE = 0.875
"""A crop's side as a share of the stored image's shorter side, as in the reference transforms."""
LONGEST = 4
"""An image's longer side is cut to at most this many times its shorter side."""
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
    _place: Tensor = field(init=False, repr=False)
    """(2, N) int64 beside the pixels: first pixel and width of each image, for the gather."""

    def __post_init__(self) -> None:
        place = torch.stack([self.offset // 3, self.width]).to(self.pixels.device)
        object.__setattr__(self, "_place", place)

    @classmethod
    def decode(
        cls, paths: Sequence[str], size: int, *, workers: int | None = None, progress: bool = True
    ) -> ImageStore:
        """Read every image of `paths` for crops of `size`; a broken one gets a problem, never an exception.

        The result does not depend on `workers` (threads; one per processor unless given).
        """
        if size < 1:
            raise InputError(f"The crop size is {size}; give a positive number of pixels.")
        short = int(size / CROP_SHARE)
        buffer, used = np.empty(0, dtype=np.uint8), 0
        offset, sides, problem, note = [], [], [], []
        for done, image in enumerate(_in_order(paths, short, workers, progress), start=1):
            end = used + image.pixels.size
            if end > len(buffer):
                _grow(buffer, end, end * len(paths) // done)
            buffer[used:end] = image.pixels.reshape(-1)
            offset.append(used)
            sides.append(image.pixels.shape[:2])
            problem.append(image.problem)
            note.append(image.note)
            used = end
        buffer.resize(used, refcheck=False)
        side = torch.tensor(sides, dtype=torch.int64).reshape(-1, 2)
        return cls(
            pixels=torch.from_numpy(buffer),
            offset=torch.tensor(offset, dtype=torch.int64),
            height=side[:, 0].contiguous(),
            width=side[:, 1].contiguous(),
            size=size,
            problem=np.array(problem, dtype=object),
            note=np.array(note, dtype=object),
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

    def to(self, device: torch.device | str) -> ImageStore:
        """This store with its pixels on `device`."""
        pixels = self.pixels.to(device)
        return ImageStore(pixels, self.offset, self.height, self.width, self.size, self.problem, self.note)

    def image(self, row: int) -> Tensor:
        """One stored image, (height, width, 3) uint8, a view of the buffer."""
        start, h, w = int(self.offset[row]), int(self.height[row]), int(self.width[row])
        return self.pixels[start : start + h * w * 3].view(h, w, 3)

    def crop(self, rows: Tensor, crops: Crops) -> Tensor:
        """The crops of images `rows`, mirrored where asked: (B, 3, S, S) uint8 on the store's device.

        rows: (B,) int64. Rows and crops on the CPU are checked; those already on a GPU are trusted, because a
        check would have to wait for it. The result's memory is laid out as (B, S, S, 3) (channels last).
        """
        self._check(rows, crops)
        rows, crops = rows.to(self.device, non_blocking=True), crops.to(self.device)
        first, stride = self._place[:, rows]
        step = torch.arange(self.size, device=self.device)
        # A mirrored crop reads the same columns from the right end to the left.
        column = torch.where(crops.flip[:, None], self.size - 1 - step, step)
        row_start = (first + crops.top * stride + crops.left)[:, None] + step * stride[:, None]
        index = row_start[:, :, None] + column[:, None, :]
        # The same as pixels.view(-1, 3)[index], which is four times slower on a CPU.
        cut = self.pixels.view(-1, 3).index_select(0, index.flatten())
        return cut.view(*index.shape, 3).permute(0, 3, 1, 2)

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
        write_beside(path, lambda beside: save_file(tensors, beside, metadata))

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
        problem, note = _dense(metadata["problem"], n), _dense(metadata["note"], n)
        return cls(**tensor, size=int(metadata["size"]), problem=problem, note=note)


@dataclass(frozen=True, eq=False)
class _Decoded:
    """One image on its way into the buffer; (0, 0, 3) pixels if it has a problem."""

    pixels: np.ndarray
    problem: str
    note: str


def _decode_one(path: str, short: int) -> _Decoded:
    """Read and resize one image; whatever goes wrong becomes its problem."""
    empty = np.empty((0, 0, 3), dtype=np.uint8)
    try:
        image, note = read_image(path)
        if min(image.size) < 1:
            raise ImageProblem(f"{path} has no pixels.")
        resized, cut = _resize(image, short)
        return _Decoded(np.asarray(resized), "", "; ".join(x for x in (note, cut) if x))
    except ImageProblem as problem:
        return _Decoded(empty, str(problem), "")
    except Exception as error:  # one odd file among a million must not end the run
        return _Decoded(empty, f"{path} could not be prepared ({type(error).__name__}: {error}).", "")


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


def _in_order(paths: Sequence[str], short: int, workers: int | None, progress: bool) -> Iterator[_Decoded]:
    """Decode in threads and yield in the order of `paths`, with a bar on the terminal."""
    count = _processors() if workers is None else workers
    if count < 1:
        raise InputError(f"{count} decoding workers cannot work; give at least 1.")
    console = Console(stderr=True)
    columns = (TextColumn("Reading images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    silent = not (progress and console.is_terminal)
    ahead: deque[Future[_Decoded]] = deque()
    waiting = iter(paths)
    with Progress(*columns, console=console, disable=silent) as bar, ThreadPoolExecutor(count) as pool:
        task = bar.add_task("", total=len(paths))
        while True:
            # A short queue keeps the threads busy and few decoded images outside the buffer.
            for path in islice(waiting, 4 * count - len(ahead)):
                ahead.append(pool.submit(_decode_one, path, short))
            if not ahead:
                return
            yield ahead.popleft().result()
            bar.advance(task)


def _processors() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _grow(buffer: np.ndarray, least: int, likely: int) -> None:
    """Enlarge in place to what all images will likely take, at least `least`.

    The memory is re-allocated rather than copied into a second buffer, so the images are never held twice.
    """
    buffer.resize(max(least, likely + likely // 50), refcheck=False)


def _sparse(text: np.ndarray) -> str:
    """The non-empty entries of an array of strings, as JSON {row: string}."""
    return json.dumps({str(row): entry for row, entry in enumerate(text) if entry})


def _dense(text: str, n: int) -> np.ndarray:
    """The inverse of `_sparse` for n rows."""
    result = np.full(n, "", dtype=object)
    for row, entry in json.loads(text).items():
        result[int(row)] = entry
    return result
