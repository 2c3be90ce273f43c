"""Thumbnails of a collection on sheets of 64.

A sheet is a square of GRID x GRID cells of CELL pixels; a thumbnail lies in the upper left corner of its cell.
"""

from __future__ import annotations

import logging
import textwrap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from holotype.data.decode import ImageProblem, encode_image, read_resized
from holotype.data.hashing import file_stamps
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
LETTERS, LINES = 18, 7
"""Of the text on a card."""

log = logging.getLogger("holotype")


@dataclass(frozen=True)
class Thumbnails:
    """Where the thumbnail of each of n images lies."""

    place: np.ndarray
    """(n,) int: sheet * GRID**2 + place on it, also for images that cannot be read."""
    size: np.ndarray
    """(n, 2) int: width and height in pixels; 0 = no thumbnail."""

    @property
    def cell(self) -> np.ndarray:
        """(n,) the place; -1 = no thumbnail."""
        return np.where(self.size[:, 0] > 0, self.place, -1)

    def take(self, rows: np.ndarray) -> Thumbnails:
        return Thumbnails(self.place[rows], self.size[rows])


def make_thumbnails(
    paths: Sequence[str],
    files: Sequence[str],
    folder: Path,
    progress: bool,
    texts: Sequence[str] | None = None,
) -> Thumbnails:
    """Write sheets of the images at `files` into `folder`; sheets of the same, unchanged images are kept.

    paths: (n,) names to recognise the images by; files: (n,) where to read them, "file" or "file#index". texts: (n,)
    what stands on the card of one that is no image.
    """
    stamps, n = file_stamps(files), len(paths)
    thumbs, unchanged = _read_manifest(folder, paths, stamps) or (
        Thumbnails(np.arange(n), np.zeros((n, 2), int)),
        np.zeros(n, dtype=bool),
    )
    sheets = range(-(-n // GRID**2))
    stale = {int(sheet) for sheet in thumbs.place[~unchanged] // GRID**2}
    stale |= {sheet for sheet in sheets if not _is_sheet(folder / sheet_name(sheet))}
    if stale:
        # stands there from the beginning: by it a folder of thumbnails is told from one of images
        _write_manifest(folder, {})
        with progress_bar(f"Sheets of {GRID**2} thumbnails", len(stale), progress) as advance:
            for sheet in sorted(stale):
                _make_sheet(sheet, thumbs, files, folder, texts)
                advance(1)
        columns = (paths, thumbs.place.tolist(), thumbs.size.tolist(), stamps)
        rows = {path: [place, *size, stamp] for path, place, size, stamp in zip(*columns, strict=True)}
        _write_manifest(folder, rows)
        for file in folder.glob("[0-9]*.jpg"):  # of an earlier, larger report
            if file.stem.isdigit() and int(file.stem) not in sheets:
                file.unlink(missing_ok=True)
    return thumbs


def sheet_name(number: int) -> str:
    return f"{number:05d}.jpg"


def _is_sheet(file: Path) -> bool:
    """A link is none: a page that is handed on would show, or mail, whatever it leads to."""
    return file.is_file() and not file.is_symlink()


def _make_sheet(
    number: int, thumbs: Thumbnails, files: Sequence[str], folder: Path, texts: Sequence[str] | None
) -> None:
    """Write one sheet, and note the sizes of its thumbnails."""
    rows = np.flatnonzero(thumbs.place // GRID**2 == number).tolist()
    rows.sort(key=lambda row: files[row])  # neighbours in a Parquet file are read together
    used = -(-len(rows) // GRID)  # the last sheet ends where its images do
    sheet = Image.new("RGB", (CELL * GRID, CELL * used), (128, 128, 128))
    with ThreadPoolExecutor(min(16, cpu_count())) as pool:
        words = [None if texts is None else texts[row] for row in rows]
        made = pool.map(_thumbnail, [files[row] for row in rows], words)
        for row, small in zip(rows, made, strict=True):
            down, across = divmod(int(thumbs.place[row]) % GRID**2, GRID)
            thumbs.size[row] = small.size if small else 0
            if small:
                sheet.paste(small, (across * CELL, down * CELL))
    write_bytes(folder / sheet_name(number), encode_image(sheet, "JPEG", quality=QUALITY, optimize=True))


def _thumbnail(file: str, text: str | None = None) -> Image.Image | None:
    """Return the image in RGB, longer side SIDE, or else a card with the text; None where there is neither."""
    try:
        return read_resized(file, SIDE, min_side=2 * SIDE, enlarge=True)
    except ImageProblem:
        return None if text is None else text_card(text)


def text_card(text: str) -> Image.Image:
    """Return a picture of the first lines of a text, SIDE pixels wide and high."""
    card = Image.new("RGB", (SIDE, SIDE), (250, 250, 247))
    lines = textwrap.wrap(" ".join(text.split()), LETTERS, max_lines=LINES, placeholder=" …")
    font = ImageFont.load_default(11)
    ImageDraw.Draw(card).multiline_text((5, 5), "\n".join(lines), fill=(30, 30, 30), font=font, spacing=3)
    return card


def _write_manifest(folder: Path, rows: Mapping[str, Sequence[object]]) -> None:
    content = {"format": SHEETS_FORMAT, "cell": CELL, "grid": GRID, "thumbs": rows}
    write_text(folder / SHEETS_MANIFEST, dump_json(content, indent=None))


def _read_manifest(
    folder: Path, paths: Sequence[str], stamps: Sequence[str]
) -> tuple[Thumbnails, np.ndarray] | None:
    """Return the thumbnails of an earlier report, if it holds the same images; edits then cost no decoding.

    The second array tells which images are unchanged since.
    """
    try:
        content = read_json(folder / SHEETS_MANIFEST)
        rows = content["thumbs"]
        kind = (content["format"], content["cell"], content["grid"])
        if kind != (SHEETS_FORMAT, CELL, GRID) or rows.keys() != set(paths):
            return None
        table = np.array([rows[path][:3] for path in paths], dtype=int).reshape(-1, 3)
        same = [rows[path][3] == stamp for path, stamp in zip(paths, stamps, strict=True)]
    except CorruptFile as error:
        log.warning(f"{folder / SHEETS_MANIFEST} cannot be read ({error}), and is made again.")
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None
    whole = sorted(table[:, 0]) == list(range(len(paths)))
    return (Thumbnails(table[:, 0], table[:, 1:]), np.array(same, dtype=bool)) if whole else None
