"""Label files: read a list of images and labels, and match it with the images of a collection.

A column `weight` in any other file means something else, such as what an animal weighs, and is left alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.boxes import split_box
from holotype.data.csv import read_csv_rows, unescape_formula
from holotype.data.detections import read_box_column
from holotype.data.label_hygiene import nfc
from holotype.data.paths import find_images, in_quotes, unquoted
from holotype.errors import InputError
from holotype.utils.atomic import refuse_existing
from holotype.utils.serialization import TABLE_MARK, write_parquet

SAMPLE_KIND = "sample"


def write_sample_file(
    file: Path,
    path: list[str],
    label: list[str],
    weight: np.ndarray,
    cell: np.ndarray,
    facts: Mapping[str, Any],
) -> None:
    """facts: how it was drawn; they stand in the footer."""
    import pyarrow as pa

    columns = {
        "path": pa.array(path, pa.string()),
        "label": pa.array(label, pa.string()),
        "weight": pa.array(weight, pa.float64()),
        "cell": pa.array(cell, pa.int32()),
    }
    told = json.dumps({SAMPLE_KIND: dict(facts)}, sort_keys=True)
    write_parquet(file, pa.table(columns).replace_schema_metadata({TABLE_MARK: told.encode()}))


def read_sample_info(file: Path) -> dict[str, Any] | None:
    """How a sample was drawn; None for a file that is none."""
    if file.suffix.lower() != ".parquet" or not file.is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        told = json.loads((pq.read_schema(file).metadata or {}).get(TABLE_MARK, b"{}"))
    except (OSError, ValueError, pa.ArrowException):
        return None
    found = told.get(SAMPLE_KIND) if isinstance(told, dict) else None
    return found if isinstance(found, dict) else None


def check_target(file: Path, overwrite: bool = False) -> None:
    """Raise InputError where a sample cannot be written, or would replace a file without `overwrite`."""
    if file.suffix.lower() != ".parquet":
        raise InputError(
            f"A sample is written as .parquet, not as {file.name!r}; give such a name with --out."
        )
    refuse_existing(file, overwrite)


MAX_NAMES_SHOWN = 3
"""Rows that a sentence names; the others are counted."""

log = logging.getLogger("holotype")


@dataclass(frozen=True)
class LabelFile:
    """The rows of a file with the columns `path` (or `file_name`) and `label`."""

    file: Path
    path: list[str]
    """As they stand in the file, or absolute once they are found."""
    label: list[str]
    """"" = none."""
    hidden: list[str] | None
    """The column `truth`, for scoring only; None = there is none."""
    line: list[int]
    """Of the file; of a Parquet file the row."""
    group: list[str] | None = None
    """The column `group`: the burst that each image is a frame of, "" = none; None = there is no such column."""
    box: list[str] | None = None
    """The column `box`, or the boxes behind the paths: x, y, w, h, "" = none; None = there are no boxes."""
    weight: list[str] | None = None
    """Of a sample (weighed.py): how many images each stands for; None of any other file."""

    def take(self, rows: Sequence[int]) -> LabelFile:
        def some(values: list[str]) -> list[str]:
            return [values[row] for row in rows]

        more = (self.hidden, self.group, self.box, self.weight)
        hidden, *others = (None if values is None else some(values) for values in more)
        line = [self.line[row] for row in rows]
        return LabelFile(self.file, some(self.path), some(self.label), hidden, line, *others)

    def where(self, row: int) -> str:
        unit = "row" if self.file.suffix.lower() == ".parquet" else "line"
        return f"{unit} {self.line[row]}"

    def some(self, rows: Sequence[int]) -> str:
        """A few rows by their path and place."""
        return ", ".join(f"{in_quotes(self.path[row])} ({self.where(row)})" for row in rows[:MAX_NAMES_SHOWN])

    def said(self, row: int) -> str:
        return self.label[row] if self.hidden is None else f"{self.label[row]} / {self.hidden[row]}"


def read_list(file: Path) -> LabelFile:
    """The rows as they stand; blanks and a pair of quotes around a label are dropped. A path alone has no label."""
    columns, line = read_csv_rows(file)
    found = ", ".join(repr(name) for name in columns)
    path_name = next((name for name in ("path", "file_name") if name in columns), None)
    if path_name is None:
        raise InputError(f"{file} has no column 'path' or 'file_name', only {found}; name it.")
    if "label" not in columns and len(columns) > 1:
        raise InputError(
            f"{file} has no column 'label', only {found}; name the column that holds the labels."
        )
    path = columns[path_name]
    if not path:
        raise InputError(f"{file} lists no image; add a line for each.")
    given = [value.strip() for value in columns.get("label", [""] * len(path))]
    if file.suffix.lower() != ".parquet":
        given = [unescape_formula(value) for value in given]
    label = [nfc(unquoted(value)) for value in given]
    hidden = [nfc(unquoted(value)) for value in columns["truth"]] if "truth" in columns else None
    group = [unquoted(value) for value in columns["group"]] if "group" in columns else None
    path, box = _read_boxes(path, columns.get("box"))
    weight = columns.get("weight") if read_sample_info(file) is not None else None
    listed = LabelFile(file, path, label, hidden, line, group, box, weight)
    empty = [row for row, given in enumerate(path) if not given.strip()]
    if empty:
        where = listed.where(empty[0]).capitalize()
        raise InputError(f"{where} of {file} has no path; fill it in or remove the row.")
    return listed


def _read_boxes(path: list[str], column: list[str] | None) -> tuple[list[str], list[str] | None]:
    """The pictures, and the box of each: from its column, or else from behind its path, as results have it."""
    parts = [split_box(one) for one in path]
    if column is None and not any(box for _, box in parts):
        return path, None
    given = column or [""] * len(path)
    box = [
        cell if cell.strip() or own is None else own.text for cell, (_, own) in zip(given, parts, strict=True)
    ]
    return [file for file, _ in parts], box


def match_labels(
    listed: LabelFile,
    starts: Sequence[Path],
    exists: Callable[[str], bool],
    others: Callable[[], Sequence[str]],
    *,
    missing: str,
    skip_missing: bool = False,
    whole: bool = False,
) -> LabelFile:
    """The rows with the absolute paths of their images, each image once; starts, exists, others: of find_images.

    missing: the words of a complaint about rows without an image. skip_missing: these rows are left out instead, and
    so are those whose box is none. whole: where there are boxes, pictures without one stay.
    """
    found, guessed = find_images(listed.path, starts, exists, others)
    absent = [row for row, path in enumerate(found) if path is None]
    if absent and not skip_missing:
        raise InputError(
            f"{len(absent)} of the {len(found)} {missing}, for example {listed.some(absent)}; relative paths start "
            f"at {starts[0]}, and discover --skip-missing goes on without these rows."
        )
    if absent:
        log.info(
            f"Left out: {len(absent):,} of the {len(found):,} rows of {listed.file}, whose images are missing, for "
            f"example {listed.some(absent)}."
        )
    if guessed:
        log.info(
            f"{len(guessed):,} paths of {listed.file} were found by their last parts, for example "
            f"{listed.some(guessed[:1])} is {found[guessed[0]]}."
        )
    if listed.box is not None:
        found = _cut_boxes(listed, listed.box, found, skip_missing, whole)
    kept = _unique_rows(listed, found, [row for row, path in enumerate(found) if path is not None])
    matched = listed.take(kept)
    return replace(matched, path=[str(found[row]) for row in kept])


def _cut_boxes(
    listed: LabelFile, cells: Sequence[str], found: Sequence[str | None], skip: bool, whole: bool
) -> list[str | None]:
    """The pictures with their boxes; None for what is left out."""
    cut = read_box_column(cells, found, lambda row: f"{listed.where(row)} of {listed.file}", skip)
    plain = [row for row, cell in enumerate(cells) if not cell.strip() and found[row] is not None]
    if whole:
        for row in plain:
            cut[row] = found[row]
        return cut
    if plain:
        log.info(f"Left out: {len(plain):,} of the {len(cells):,} rows of {listed.file}, which have no box.")
    return cut


def _unique_rows(listed: LabelFile, found: Sequence[str | None], rows: Sequence[int]) -> list[int]:
    """The first row of each image; rows that say different things of one image are refused."""
    of_image: dict[str | None, list[int]] = {}
    for row in rows:
        of_image.setdefault(found[row], []).append(row)
    twice = [same for same in of_image.values() if len(same) > 1]
    torn = [same for same in twice if len({listed.said(row) for row in same}) > 1]
    if torn:
        one = torn[0][:MAX_NAMES_SHOWN]
        places = ", ".join(f"{listed.where(row)}: {listed.said(row)!r}" for row in one)
        images = "an image" if len(torn) == 1 else f"{len(torn):,} images"
        raise InputError(
            f"{listed.file} lists {images} more than once with different labels, for example "
            f"{in_quotes(listed.path[one[0]])} ({places}); keep one row for each."
        )
    return [same[0] for same in of_image.values()]
