"""Where the decoded images lie: GPU memory, host memory, or a memory-mapped file; the first that has room."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from holotype.data.scratch import Scratch, Spill, too_little_disk
from holotype.data.store import ImageStore
from holotype.errors import InputError
from holotype.utils.memory import LEVELS, PLACE_NAMES, Budget, Level, format_bytes, is_out_of_memory

Choice = Literal["auto", "device", "host", "disk"]
CHUNK = 1 << 26
"""Bytes that are moved to a file at a time."""


def place(
    store: ImageStore, device: torch.device, choice: Choice, budget: Budget, folder: Path
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
        refusal = _refusal(store, level, budget, folder)
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


def _refusal(store: ImageStore, level: Level, budget: Budget, folder: Path) -> str:
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
    pixels = _to_host(store.pixels) if level == "host" else _to_disk(store.pixels, folder)
    return dataclasses.replace(store, pixels=pixels, mapped=level == "disk")


def _to_host(pixels: Tensor) -> Tensor:
    """A copy in ordinary memory."""
    memory = torch.from_numpy(np.empty(pixels.numel(), dtype=np.uint8))
    return memory.copy_(pixels)


def _to_disk(pixels: Tensor, folder: Path) -> Tensor:
    """A copy in a memory-mapped file."""
    scratch = Scratch(Spill(0, folder))
    for part in pixels.split(CHUNK):
        scratch.write(part.cpu().numpy())
    return scratch.map()


def _line(store: ImageStore, choice: Choice, budget: Budget, folder: Path, reasons: list[str]) -> str:
    """Where the images lie and why, for people."""
    where = (
        f"in a memory-mapped file in {folder}" if store.level == "disk" else f"in {PLACE_NAMES[store.level]}"
    )
    line = f"{len(store):,} images, {format_bytes(store.nbytes)}, {where}"
    if reasons:
        return f"{line}: {'; '.join(reasons)}"
    if choice == store.level:
        return f"{line}, as asked for"
    return f"{line} (room for {format_bytes(getattr(budget, store.level))})"
