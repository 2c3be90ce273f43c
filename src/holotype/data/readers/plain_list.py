"""A list of paths that needs no sorting out, in a stream: every image that it names is there, and each once.

Lists of some millions of rows are written by programs, and are plain. Whatever is not is left to listed.py, which reads
a list as a whole: paths of another machine, missing images, boxes, rows that name one image twice.
"""

from __future__ import annotations

import csv
import os
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from holotype.data.addresses import is_address
from holotype.data.boxes import split_box
from holotype.data.columns import separator
from holotype.data.containers import image_exists
from holotype.data.paths import Paths

PATHS = ("path", "file_name")
AT_ONCE = 65_536
"""Rows of a Parquet file."""


class NotPlain(Exception):
    """The list is for listed.py."""


def paths_in_list(source: str) -> Paths | None:
    """The paths of from_csv in a stream; None where the list is not plain. It is gone through once to see that, which
    takes eight bytes for each row."""
    file, base = Path(source), os.path.abspath(os.path.dirname(source))
    seen = array("q")
    try:
        for path in _each(file, base):
            if not image_exists(path):
                return None
            seen.append(hash(path))
    except (NotPlain, csv.Error, UnicodeDecodeError, OSError):
        return None
    hashes = np.frombuffer(seen, dtype=np.int64).copy()
    hashes.sort()
    if not len(hashes) or (hashes[1:] == hashes[:-1]).any():
        return None
    return Paths(base, _each(file, base))


def _each(file: Path, base: str) -> Iterator[str]:
    """Absolute paths, as they stand."""
    cells = _parquet_cells(file) if file.suffix.lower() == ".parquet" else _csv_cells(file)
    for cell in cells:
        if not isinstance(cell, str) or not cell or is_address(cell) or split_box(cell)[1]:
            raise NotPlain
        yield os.path.normpath(os.path.join(base, cell))


def _csv_cells(file: Path) -> Iterator[str]:
    """The column of paths; a list that a strict reader stumbles over is not plain."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        usual = "\t" if file.suffix.lower() == ".tsv" else ","
        mark = separator(lines.readline(), usual)
        lines.seek(0)
        rows = (row for row in csv.reader(lines, delimiter=mark, strict=True, skipinitialspace=True) if row)
        header = [name.strip().lower() for name in next(rows, [])]
        column = header.index(_column(header))
        for row in rows:
            if len(row) != len(header):
                raise NotPlain
            yield row[column]


def _parquet_cells(file: Path) -> Iterator[object]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
        names = opened.schema_arrow.names
        header = [name.strip().lower() for name in names]
        column = names[header.index(_column(header))]
        for batch in opened.iter_batches(AT_ONCE, columns=[column]):
            yield from batch.column(0).to_pylist()
    except pa.ArrowException as error:
        raise NotPlain from error


def _column(header: list[str]) -> str:
    """The name of the column of paths, where listed.py would take the list as well."""
    found = next((name for name in PATHS if name in header), None)
    odd = "box" in header or len(set(header)) < len(header) or (len(header) > 1 and "label" not in header)
    if found is None or odd:
        raise NotPlain
    return found
