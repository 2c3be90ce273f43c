"""EXIF table of a discovery: times, places and cameras of its images.

What the head of a file says belongs to its content, so that it is kept by content and read once.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holotype.data.exif import NO_EXIF, ExifData, read_exif_all
from holotype.data.table import Table
from holotype.utils.serialization import read_parquet_table, write_parquet

EXIF_FILE = "shots.parquet"
EXIF_COLUMNS = tuple(one.name for one in dataclasses.fields(ExifData))

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExifTable:
    """Of the N images of a table."""

    each: list[ExifData]

    def columns(self) -> dict[str, np.ndarray]:
        """The columns of a table of images of which anything is known: (N,) object text, (N,) float."""
        found = {
            "taken": np.array([shot.taken for shot in self.each], dtype=object),
            "latitude": np.array([shot.latitude for shot in self.each], dtype=float),
            "longitude": np.array([shot.longitude for shot in self.each], dtype=float),
            "camera": np.array([shot.camera for shot in self.each], dtype=object),
        }
        return {name: values for name, values in found.items() if _has_facts(values)}

    def words(self) -> str:
        """In one line, "" where no head says anything."""
        times = sorted(shot.taken for shot in self.each if shot.taken)
        placed = sum(shot.latitude == shot.latitude for shot in self.each)
        cameras = [shot.camera for shot in self.each if shot.camera]
        different = len(set(cameras))
        facts = {
            "when": len(times),
            "where": placed,
            f"with which of {different:,} cameras" if different > 1 else "with which camera": len(cameras),
        }
        parts = [f"{what} {number:,} were" for what, number in facts.items() if number]
        if not parts:
            return ""
        parts[0] = parts[0].removesuffix(" were") + f" of {len(self.each):,} images were taken"
        if times:
            parts[0] += f" ({times[0][:10]} to {times[-1][:10]})"
        return f"The files say {', '.join(parts)}."


def _has_facts(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).any() if values.dtype == float else (values != "").any())


def load_exif_table(folder: Path, table: Table, digest: Sequence[str], progress: bool = False) -> ExifTable:
    """Read the heads of the images whose content is new, and keep what they say. digest: (N,) (data/hashing.py)."""
    known = _read_exif_file(folder)
    new = [row for row, own in enumerate(digest) if own not in known]
    found = dict(zip(new, read_exif_all([str(table.path[row]) for row in new], progress), strict=True))
    fresh = {digest[row]: shot for row, shot in found.items() if digest[row]}
    if fresh:
        _write_exif_file(folder, known | fresh)
    each = [found[row] if row in found else known[own] for row, own in enumerate(digest)]
    return ExifTable(each or [NO_EXIF] * len(table))


def _read_exif_file(folder: Path) -> dict[str, ExifData]:
    """By digest; nothing where it cannot be read, since it is all in the files."""
    if not (folder / EXIF_FILE).is_file():
        return {}
    try:
        table = read_parquet_table(folder / EXIF_FILE)
        rows = zip(*(table[name].to_pylist() for name in EXIF_COLUMNS), strict=True)
        return {own: ExifData(*row) for own, row in zip(table["digest"].to_pylist(), rows, strict=True)}
    except (OSError, ValueError, KeyError, TypeError):
        log.warning(f"{folder / EXIF_FILE} cannot be read, and is made again.")
        return {}


def _write_exif_file(folder: Path, shots: dict[str, ExifData]) -> None:
    import pyarrow as pa

    rows = zip(*(dataclasses.astuple(shot) for shot in shots.values()), strict=True)
    columns = {"digest": list(shots), **dict(zip(EXIF_COLUMNS, rows, strict=True))}
    write_parquet(folder / EXIF_FILE, pa.table({name: pa.array(values) for name, values in columns.items()}))
