"""Thumbnails of a collection on sheets of 64, so that 20,000 images are some hundred files and load at once.

A sheet is a square of GRID x GRID cells of CELL pixels; a thumbnail lies in the upper left corner of its cell.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from holotype.data.decode import ImageProblem, read_image
from holotype.machine.files import write_beside, write_text

FORMAT = 1
SIDE = 116
"""Longer side of a thumbnail in pixels."""
CELL = 120
"""Side of a cell: the gap keeps neighbours out when a browser scales a sheet."""
GRID = 8
QUALITY = 80
MANIFEST = "thumbs.json"


@dataclass(frozen=True)
class Thumbs:
    """Where the thumbnail of each of n images lies."""

    cell: np.ndarray
    """(n,) int: sheet * GRID**2 + place on it; -1 = no thumbnail."""
    width: np.ndarray
    """(n,) int, in pixels."""
    height: np.ndarray
    """(n,) int, in pixels."""


def make_thumbs(paths: Sequence[str], files: Sequence[str], folder: Path, progress: bool) -> Thumbs:
    """Write sheets of the images at `files` into `folder`; what lies there for the same paths is kept.

    paths: (n,) names to recognise the images by; files: (n,) where to read them, "file" or "file#index".
    """
    if (kept := _kept(paths, folder)) is not None:
        return kept
    cell, size = np.full(len(paths), -1), np.zeros((len(paths), 2), int)
    for number, start in enumerate(_sheets(len(paths), progress)):
        part = files[start : start + GRID**2]
        sheet = Image.new("RGB", (CELL * GRID, CELL * GRID), (128, 128, 128))
        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
            for place, small in enumerate(pool.map(_thumbnail, part)):
                if small is not None:
                    sheet.paste(small, (place % GRID * CELL, place // GRID * CELL))
                    cell[start + place], size[start + place] = number * GRID**2 + place, small.size
        used = -(-len(part) // GRID)  # the last sheet ends where its images do
        _save(sheet.crop((0, 0, CELL * GRID, CELL * used)), folder / sheet_name(number))
    found = Thumbs(cell, size[:, 0], size[:, 1])
    rows = {path: list(map(int, row)) for path, *row in zip(paths, cell, *size.T, strict=True)}
    write_text(folder / MANIFEST, json.dumps({"format": FORMAT, "cell": CELL, "grid": GRID, "thumbs": rows}))
    _remove_others(folder, -(-len(paths) // GRID**2))
    return found


def sheet_name(number: int) -> str:
    return f"{number:05d}.jpg"


def _save(sheet: Image.Image, file: Path) -> None:
    write_beside(file, lambda beside: sheet.save(beside, format="JPEG", quality=QUALITY, optimize=True))


def _sheets(n: int, progress: bool) -> Iterator[int]:
    """The first row of every sheet, with a bar."""
    starts = range(0, n, GRID**2)
    if not progress:
        yield from starts
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("thumbnails", total=n)
        for start in starts:
            yield start
            bar.advance(task, min(GRID**2, n - start))


def _kept(paths: Sequence[str], folder: Path) -> Thumbs | None:
    """What an earlier report left, if it holds the same images; edits then cost no decoding."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if (content["format"], content["cell"], content["grid"]) != (FORMAT, CELL, GRID):
            return None
        rows = content["thumbs"]
        if rows.keys() != set(paths):
            return None
        table = np.array([rows[path] for path in paths], dtype=int).reshape(-1, 3)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    sheets = {int(cell) // GRID**2 for cell in table[:, 0] if cell >= 0}
    if not all((folder / sheet_name(number)).is_file() for number in sheets):
        return None
    return Thumbs(table[:, 0], table[:, 1], table[:, 2])


def _remove_others(folder: Path, n: int) -> None:
    """Sheets of an earlier, larger report."""
    for file in folder.glob("[0-9]*.jpg"):
        if file.stem.isdigit() and int(file.stem) >= n:
            file.unlink(missing_ok=True)


def _thumbnail(file: str) -> Image.Image | None:
    """RGB, longer side SIDE; None where the image cannot be read."""
    try:
        image = _quick_jpeg(file) or read_image(file)[0]
    except ImageProblem:
        return None
    scale = SIDE / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    how = Image.Resampling.BICUBIC if scale > 1 else Image.Resampling.LANCZOS
    return image.resize(size, how, reducing_gap=2.0)


def _quick_jpeg(file: str) -> Image.Image | None:
    """A photograph decoded at a fraction of its size, several times faster; None for everything else."""
    if not file.lower().endswith((".jpg", ".jpeg")):
        return None
    try:
        with Image.open(file) as image:
            if image.format != "JPEG" or image.mode != "RGB":
                return None
            image.draft("RGB", (2 * SIDE, 2 * SIDE))
            upright: Image.Image = ImageOps.exif_transpose(image)
            return upright
    except Exception:  # read_image knows what to do with odd files
        return None
