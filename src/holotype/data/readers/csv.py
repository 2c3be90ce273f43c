"""Read a CSV, TSV or Parquet file that lists images by their paths, whole or as a stream.

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

from holotype.data.archives import image_exists
from holotype.data.boxes import split_box
from holotype.data.csv import find_separator
from holotype.data.labels import match_labels, read_list
from holotype.data.paths import Paths
from holotype.data.readers.folder import scan_folder
from holotype.data.storage import StorageError, is_address
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import suggest_path


def read_csv_table(
    file: Path, root: Path | None = None, *, skip_missing: bool = False, whole: bool = False
) -> Table:
    """Rows of a CSV, TSV or Parquet file with the columns `path` (or `file_name`) and `label`.

    An empty label means unlabelled; a file with a path column only is unlabelled throughout. A column `truth` is kept
    for scoring, one `group` for bursts, and one `box` makes parts of pictures the images. Relative paths start at
    `root`, or at the file's own folder; those of another machine are seen through (matching.py). The apostrophe that
    keeps a label in a CSV file from being a formula is dropped; nothing else is interpreted: "NA" and "001" are names.
    skip_missing: rows without an image are left out. whole: where there are boxes, pictures without one stay.
    """
    file = Path(file)
    if root is not None and not Path(root).is_dir():
        raise InputError(f"The folder {root} does not exist{suggest_path(root)}; check its name.")
    base = Path(os.path.abspath(file.parent if root is None else root))

    def others() -> list[str]:
        return sorted(str(path) for path in scan_folder(base).images)

    missing = f"paths in {file} do not exist"
    rows = read_list(file)
    try:
        listed = match_labels(
            rows, (base,), image_exists, others, missing=missing, skip_missing=skip_missing, whole=whole
        )
    except StorageError as problem:  # the list may name objects in a store
        raise InputError(str(problem)) from problem
    if not listed.path:
        without = "has a box" if rows.box is not None else f"is there; relative paths start at {base}"
        raise InputError(f"None of the images that {file} lists {without}.")
    return Table(
        path=np.array(listed.path, dtype=object),
        label=np.array(listed.label, dtype=object),
        known=tuple(sorted(set(listed.label) - {""})),
        truth=None if listed.hidden is None else np.array(listed.hidden, dtype=object),
        group=None if listed.group is None else np.array(listed.group, dtype=object),
        weight=None if listed.weight is None else np.array(listed.weight, dtype=object),
        name=file.stem,
        root=str(base),
    )


PATHS = ("path", "file_name")
LIST_BATCH = 65_536
"""Rows of a Parquet file."""


class NotAPlainList(Exception):
    """The list is for listed.py."""


def stream_list(source: str) -> Paths | None:
    """The paths of from_csv in a stream; None where the list is not plain. It is gone through once to see that, which
    takes eight bytes for each row."""
    file, base = Path(source), os.path.abspath(os.path.dirname(source))
    seen = array("q")
    try:
        for path in _each_path(file, base):
            if not image_exists(path):
                return None
            seen.append(hash(path))
    except (NotAPlainList, csv.Error, UnicodeDecodeError, OSError):
        return None
    hashes = np.frombuffer(seen, dtype=np.int64).copy()
    hashes.sort()
    if not len(hashes) or (hashes[1:] == hashes[:-1]).any():
        return None
    return Paths(base, _each_path(file, base))


def _each_path(file: Path, base: str) -> Iterator[str]:
    """Absolute paths, as they stand."""
    cells = _parquet_cells(file) if file.suffix.lower() == ".parquet" else _csv_cells(file)
    for cell in cells:
        if not isinstance(cell, str) or not cell or is_address(cell) or split_box(cell)[1]:
            raise NotAPlainList
        yield os.path.normpath(os.path.join(base, cell))


def _csv_cells(file: Path) -> Iterator[str]:
    """The column of paths; a list that a strict reader stumbles over is not plain."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        usual = "\t" if file.suffix.lower() == ".tsv" else ","
        mark = find_separator(lines.readline(), usual)
        lines.seek(0)
        rows = (row for row in csv.reader(lines, delimiter=mark, strict=True, skipinitialspace=True) if row)
        header = [name.strip().lower() for name in next(rows, [])]
        column = header.index(_column(header))
        for row in rows:
            if len(row) != len(header):
                raise NotAPlainList
            yield row[column]


def _parquet_cells(file: Path) -> Iterator[object]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
        names = opened.schema_arrow.names
        header = [name.strip().lower() for name in names]
        column = names[header.index(_column(header))]
        for batch in opened.iter_batches(LIST_BATCH, columns=[column]):
            yield from batch.column(0).to_pylist()
    except pa.ArrowException as error:
        raise NotAPlainList from error


def _column(header: list[str]) -> str:
    """The name of the column of paths, where listed.py would take the list as well."""
    found = next((name for name in PATHS if name in header), None)
    odd = "box" in header or len(set(header)) < len(header) or (len(header) > 1 and "label" not in header)
    if found is None or odd:
        raise NotAPlainList
    return found
