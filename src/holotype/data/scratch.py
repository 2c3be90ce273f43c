"""Pixels that come image by image: gathered in memory, or in a scratch file once memory would not hold them all.

A scratch file has no name in its folder, so it is gone with the process, however that ends.
"""

from __future__ import annotations

import mmap
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holotype.errors import InputError
from holotype.utils.memory import format_bytes

SURE = 32
"""Images after which the mean size so far tells what all of them will take."""


@dataclass(frozen=True)
class Spill:
    """Where pixels go that memory does not hold."""

    host_bytes: int
    """Bytes that may be held in memory; 0 = everything goes to the file."""
    folder: Path
    """Where the scratch file is made."""
    disk_bytes: int | None = None
    """Bytes the scratch file may take; None = as many as the disk has."""


class PixelBuffer:
    """Takes `images` images one after the other and ends as one flat tensor."""

    def __init__(self, images: int, spill: Spill | None = None) -> None:
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
            expected = likely if self.done >= SURE else end
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

    def __init__(self, spill: Spill) -> None:
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
        f"{format_bytes(limit)} for files in {folder} can hold; give more with --memory.disk_gb or --memory.host_gb, or "
        "a folder on a larger disk with --memory.cache_dir."
    )
