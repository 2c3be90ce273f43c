"""Thumbnails of a collection on sheets of 64.

A sheet is a square of GRID x GRID cells of CELL pixels; a thumbnail lies in the upper left corner of its cell.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from holotype.data.decode import ImageProblem, encode_png, open_image
from holotype.data.hashing import file_stamps
from holotype.data.image_store import DECODE_BUDGET
from holotype.utils.atomic import write_bytes, write_text
from holotype.utils.console import progress_bar
from holotype.utils.device import cpu_count
from holotype.utils.serialization import CorruptFile, dump_json, read_json

SHEETS_FORMAT = 2
SIDE = 116
"""Longer side of a thumbnail in pixels."""
CELL = 120
"""Side of a cell: the gap keeps neighbours out when a browser scales a sheet."""
GRID = 8
QUALITY = 80
SHEETS_MANIFEST = "thumbs.json"

log = logging.getLogger("holotype")


@dataclass(frozen=True)
class Thumbnails:
    """Where the thumbnail of each of n images lies."""

    cell: np.ndarray
    """(n,) int: sheet * GRID**2 + place on it; -1 = no thumbnail."""
    width: np.ndarray
    """(n,) int, in pixels."""
    height: np.ndarray
    """(n,) int, in pixels."""


@dataclass
class _Sheets:
    """What lies in the folder, or will."""

    place: np.ndarray
    """(n,) int: sheet * GRID**2 + place on it, also for images that cannot be read."""
    size: np.ndarray
    """(n, 2) int: width and height; 0 = no thumbnail."""
    stale: list[int]
    """Numbers of the sheets that have to be made."""


def make_thumbnails(paths: Sequence[str], files: Sequence[str], folder: Path, progress: bool) -> Thumbnails:
    """Write sheets of the images at `files` into `folder`; sheets of the same, unchanged images are kept.

    paths: (n,) names to recognise the images by; files: (n,) where to read them, "file" or "file#index".
    """
    stamp = file_stamps(files)
    sheets = _existing_sheets(paths, stamp, folder) or _Sheets(
        np.arange(len(paths)), np.zeros((len(paths), 2), int), list(range(_sheet_count(len(paths))))
    )
    if sheets.stale:
        # stands there from the beginning: by it a folder of thumbnails is told from one of images
        _write_manifest(folder, {})
        with progress_bar(f"Sheets of {GRID**2} thumbnails", len(sheets.stale), progress) as advance:
            for number in sheets.stale:
                _make_sheet(number, sheets, files, folder)
                advance(1)
        rows = {
            path: [int(place), *map(int, size), mark]
            for path, place, size, mark in zip(paths, sheets.place, sheets.size, stamp, strict=True)
        }
        _write_manifest(folder, rows)
        _remove_others(folder, _sheet_count(len(paths)))
    there = sheets.size[:, 0] > 0
    return Thumbnails(np.where(there, sheets.place, -1), sheets.size[:, 0], sheets.size[:, 1])


def _sheet_count(n: int) -> int:
    """Sheets that n images take."""
    return -(-n // GRID**2)


def _make_sheet(number: int, sheets: _Sheets, files: Sequence[str], folder: Path) -> None:
    """Write one sheet, and note the sizes of its thumbnails."""
    rows = np.flatnonzero(sheets.place // GRID**2 == number).tolist()
    rows.sort(key=lambda row: files[row])  # neighbours in a Parquet file are read together
    sheet = Image.new("RGB", (CELL * GRID, CELL * GRID), (128, 128, 128))
    with ThreadPoolExecutor(min(16, cpu_count())) as pool:
        for row, small in zip(rows, pool.map(_thumbnail, [files[row] for row in rows]), strict=True):
            place = int(sheets.place[row]) % GRID**2
            sheets.size[row] = small.size if small else 0
            if small:
                sheet.paste(small, (place % GRID * CELL, place // GRID * CELL))
    used = -(-len(rows) // GRID)  # the last sheet ends where its images do
    _save(sheet.crop((0, 0, CELL * GRID, CELL * used)), folder / sheet_name(number))


def _write_manifest(folder: Path, rows: Mapping[str, Sequence[object]]) -> None:
    content = {"format": SHEETS_FORMAT, "cell": CELL, "grid": GRID, "thumbs": rows}
    write_text(folder / SHEETS_MANIFEST, dump_json(content, indent=None))


def sheet_name(number: int) -> str:
    return f"{number:05d}.jpg"


def _save(sheet: Image.Image, file: Path) -> None:
    write_bytes(file, encode_png(sheet, "JPEG", quality=QUALITY, optimize=True))


def _existing_sheets(paths: Sequence[str], stamp: Sequence[str], folder: Path) -> _Sheets | None:
    """What an earlier report left, if it holds the same images; edits then cost no decoding.

    Sheets that are gone, or that show an image which was changed since, have to be made again.
    """
    try:
        content = read_json(folder / SHEETS_MANIFEST)
        if (content["format"], content["cell"], content["grid"]) != (SHEETS_FORMAT, CELL, GRID):
            return None
        rows = content["thumbs"]
        if rows.keys() != set(paths):
            return None
        table = np.array([rows[path][:3] for path in paths], dtype=int).reshape(-1, 3)
        changed = np.array(
            [rows[path][3] != mark for path, mark in zip(paths, stamp, strict=True)], dtype=bool
        )
    except CorruptFile as error:
        log.warning(
            f"{folder / SHEETS_MANIFEST} cannot be read ({error}), and is made again with its pictures."
        )
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
    if sorted(table[:, 0]) != list(range(len(paths))):
        return None
    stale = {int(place) // GRID**2 for place in table[changed, 0]}
    stale |= {n for n in range(_sheet_count(len(paths))) if not _is_sheet(folder / sheet_name(n))}
    return _Sheets(table[:, 0], table[:, 1:], sorted(stale))


def _is_sheet(file: Path) -> bool:
    """A link is none: a page that is handed on would show, or mail, whatever it leads to."""
    return file.is_file() and not file.is_symlink()


def _remove_others(folder: Path, n: int) -> None:
    """Sheets of an earlier, larger report."""
    for file in folder.glob("[0-9]*.jpg"):
        if file.stem.isdigit() and int(file.stem) >= n:
            file.unlink(missing_ok=True)


def _thumbnail(file: str) -> Image.Image | None:
    """RGB, longer side SIDE; None where the image cannot be read."""
    try:
        with open_image(file, about=2 * SIDE) as image, DECODE_BUDGET.taken(image.nbytes), image.loaded():
            width, height = image.size
            scale = SIDE / max(width, height)
            size = (max(1, round(width * scale)), max(1, round(height * scale)))
            how = Image.Resampling.BICUBIC if scale > 1 else Image.Resampling.LANCZOS
            return image.rgb().resize(size, how, reducing_gap=2.0)
    except ImageProblem:
        return None
