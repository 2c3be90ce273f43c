"""Lists of images and labels (CSV, TSV or Parquet): read one, and match it with the images of a collection.

A column `weight` in any file but a sample means something else, such as what an animal weighs, and is left alone.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import re
import unicodedata
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.boxes import split_box
from holotype.data.csv import column_names, read_csv_rows, stream_rows, unescape_formula
from holotype.data.detections import read_box_column
from holotype.data.image_files import image_exists
from holotype.data.paths import MAX_EXAMPLES, Paths, in_quotes, is_address, resolve_images, unquoted
from holotype.data.readers.folder import scan_folder
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.serialization import TABLE_MARK, write_parquet
from holotype.utils.text import nfc, plural

SAMPLE_KIND = "sample"


def write_sample_file(file: Path, columns: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write a sample: path, label, weight and cell of each image. facts: how it was drawn; they stand in the footer."""
    import pyarrow as pa

    meta = json.dumps({SAMPLE_KIND: dict(facts)}, sort_keys=True)
    write_parquet(file, pa.table(dict(columns)).replace_schema_metadata({TABLE_MARK: meta.encode()}))


def read_sample_info(file: Path) -> dict[str, Any] | None:
    """How a sample was drawn; None for a file that is none."""
    if file.suffix.lower() != ".parquet" or not file.is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        info = json.loads((pq.read_schema(file).metadata or {}).get(TABLE_MARK, b"{}"))[SAMPLE_KIND]
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None
    return info if isinstance(info, dict) else None


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
    """Of a sample (embeddings/coreset.py): how many images each stands for; None of any other file."""

    def take(self, rows: Sequence[int]) -> LabelFile:
        columns = {name: values for name, values in vars(self).items() if isinstance(values, list)}
        taken: dict[str, Any] = {name: [values[row] for row in rows] for name, values in columns.items()}
        return replace(self, **taken)

    def where(self, row: int) -> str:
        unit = "row" if self.file.suffix.lower() == ".parquet" else "line"
        return f"{unit} {self.line[row]}"

    def some(self, rows: Sequence[int]) -> str:
        """A few rows by their path and place."""
        return ", ".join(f"{in_quotes(self.path[row])} ({self.where(row)})" for row in rows[:MAX_EXAMPLES])

    def said(self, row: int) -> str:
        return self.label[row] if self.hidden is None else f"{self.label[row]} / {self.hidden[row]}"


def read_list(file: Path) -> LabelFile:
    """Return the rows as they stand; blanks and a pair of quotes around a label are dropped. A path alone has no
    label."""
    columns, line = read_csv_rows(file)
    names = usual_names(list(columns))
    as_written, columns = list(columns), dict(zip(names, columns.values(), strict=True))
    path = columns[path_column(file, names, as_written)]
    if renamed := [
        f"{one!r} is taken for {name}" for one, name in zip(as_written, names, strict=True) if one != name
    ]:
        log.info(f"{file}: the column {' and '.join(renamed)}.")
    if not path:
        raise InputError(f"{file} lists no image; add a line for each.")
    label = [value.strip() for value in columns.get("label", [""] * len(path))]
    if file.suffix.lower() != ".parquet":
        label = [unescape_formula(value) for value in label]
    label = [nfc(unquoted(value)) for value in label]
    truth = [nfc(unquoted(value)) for value in columns["truth"]] if "truth" in columns else None
    group = [unquoted(value) for value in columns["group"]] if "group" in columns else None
    weight = columns.get("weight") if read_sample_info(file) is not None else None
    path, box = _read_boxes(path, columns.get("box"))
    listed = LabelFile(file, path, label, truth, line, group, box, weight)
    for row, text in enumerate(path):
        if not text.strip():
            where = listed.where(row).capitalize()
            raise InputError(f"{where} of {file} has no path; fill it in or remove the row.")
    return listed


PATH_NAMES = (
    *("path", "file_name", "filename", "filepath", "file_path", "file", "image", "image_path", "image_name"),
    *("img", "photo", "picture"),
    *("dateiname", "datei", "pfad", "bild", "fichier", "archivo", "foto", "bestand"),
)
LABEL_NAMES = (
    *("label", "labels", "class", "class_name", "classname", "category"),
    *("species", "taxon", "scientific_name", "scientificname"),
    *("klasse", "art", "kategorie", "taxon_name"),
    *("espece", "espèce", "classe", "especie", "clase"),
)
"""What people call the columns of images and of labels."""


def usual_names(names: Sequence[str]) -> list[str]:
    """Return the names of columns with those of images and labels as they are called here, where one column of each
    kind is there under another name, and none under the usual one."""
    found = list(names)
    for usual, others, taken in (
        ("path", PATH_NAMES, ("path", "file_name")),
        ("label", LABEL_NAMES, ("label",)),
    ):
        alike = [place for place, name in enumerate(names) if name.replace(" ", "_") in others]
        if len(alike) == 1 and not set(taken) & set(names):
            found[alike[0]] = usual
    return found


def path_column(file: Path, names: Collection[str], as_written: Sequence[str] = ()) -> str:
    """Return the column of paths; InputError where there is none, or several columns without a label. as_written: the
    names as the file has them, for the sentence."""
    listed = ", ".join(map(repr, as_written or names))
    column = next((name for name in ("path", "file_name") if name in names), None)
    if column is None:
        what = "give a table of vectors to --features" if "vector" in names else "name it"
        raise InputError(f"{file} has no column 'path' or 'file_name', only {listed}; {what}.")
    if "label" not in names and len(names) > 1:
        raise InputError(f"{file} has no column 'label', only {listed}; name the one with the labels so.")
    return column


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
    """Return the rows with the absolute paths of their images, each image once.

    starts, exists, others: of resolve_images. missing: the words of a complaint about rows without an image.
    skip_missing: these rows are left out instead, and so are those whose box is none. whole: where there are boxes,
    pictures without one stay.
    """
    how: dict[str, Any] = {"file": listed.file, "missing": missing, "skip": skip_missing, "show": listed.some}
    found = resolve_images(listed.path, starts, exists, others, **how)
    if listed.box is not None:
        found = _cut_boxes(listed, listed.box, found, skip_missing, whole)
    rows = _unique_rows(listed, found)
    return replace(listed.take(rows), path=[str(found[row]) for row in rows])


def _cut_boxes(
    listed: LabelFile, cells: Sequence[str], found: Sequence[str | None], skip: bool, whole: bool
) -> list[str | None]:
    """Return the pictures with their boxes; None for what is left out."""
    cut = read_box_column(cells, found, lambda row: f"{listed.where(row)} of {listed.file}", skip)
    plain = [row for row, cell in enumerate(cells) if not cell.strip() and found[row] is not None]
    if whole:
        for row in plain:
            cut[row] = found[row]
    elif plain:
        log.info(f"Left out: {len(plain):,} of the {len(cells):,} rows of {listed.file}, which have no box.")
    return cut


def _unique_rows(listed: LabelFile, found: Sequence[str | None]) -> list[int]:
    """Return the first row of each image; rows that say different things of one image are refused."""
    rows_of: dict[str, list[int]] = {}
    for row, path in enumerate(found):
        if path is not None:
            rows_of.setdefault(path, []).append(row)
    torn = [same for same in rows_of.values() if len({listed.said(row) for row in same}) > 1]
    if torn:
        rows = torn[0][:MAX_EXAMPLES]
        places = ", ".join(f"{listed.where(row)}: {listed.said(row)!r}" for row in rows)
        example = f"{in_quotes(listed.path[rows[0]])} ({places})"
        several = f"{plural(len(torn), 'image')} more than once with different labels"
        raise InputError(f"{listed.file} lists {several}, for example {example}; keep one row for each.")
    return [same[0] for same in rows_of.values()]


def read_csv_table(file: Path, *, skip_missing: bool = False, whole: bool = False) -> Table:
    """Rows of a CSV, TSV or Parquet file with the columns `path` (or `file_name`) and `label`.

    An empty label means unlabelled; a file with a path column only is unlabelled throughout. A column `truth` is kept
    for scoring, one `group` for bursts, and one `box` makes parts of pictures the images. Relative paths start at
    the file's own folder; those of another machine are seen through (paths.py). The apostrophe that keeps a label in
    a CSV file from being a formula is dropped; nothing else is interpreted: "NA" and "001" are names.
    skip_missing: rows without an image are left out. whole: where there are boxes, pictures without one stay.
    """
    base = Path(os.path.abspath(file.parent))

    def others() -> list[str]:
        return sorted(str(path) for path in scan_folder(base).images)

    missing = f"paths in {file} do not exist"
    rows = read_list(file)
    how = {"skip_missing": skip_missing, "whole": whole}
    listed = match_labels(rows, (base,), image_exists, others, missing=missing, **how)
    if not listed.path:
        without = "has a box" if rows.box is not None else f"is there; relative paths start at {base}"
        raise InputError(f"None of the images that {file} lists {without}.")
    columns = {"path": listed.path, "label": listed.label, "truth": listed.hidden}
    columns |= {"group": listed.group, "weight": listed.weight}
    return Table.from_columns(columns, name=file.stem, root=str(base))


def stream_list(source: str) -> Paths | None:
    """Return the paths of read_csv_table in a stream; None where the list is not plain and must be read as a whole:
    paths of another machine, missing images, boxes, rows that name one image twice. Finding out takes eight bytes a
    row."""
    file, base = Path(source), os.path.abspath(os.path.dirname(source))
    seen = array("q")
    try:
        for path in _plain_paths(file, base):
            if not image_exists(path):
                return None
            seen.append(hash(path))
    except (InputError, ValueError, csv.Error, OSError):
        return None
    hashes = np.frombuffer(seen, dtype=np.int64)
    return Paths(base, _plain_paths(file, base)) if 0 < len(hashes) == len(np.unique(hashes)) else None


def _plain_paths(file: Path, base: str) -> Iterator[str]:
    """Yield absolute paths, as they stand. Raises ValueError for what is not plain."""
    rows = stream_rows(file)
    _, header = next(rows, (0, []))
    names = usual_names(column_names(file, header))
    column = names.index(path_column(file, names))
    for line, row in rows:
        cell = row[column] if column < len(row) <= len(header) else ""
        if not cell or is_address(cell) or split_box(cell)[1] or "box" in names:
            raise ValueError(line)
        yield os.path.normpath(os.path.join(base, cell))


SHORTEST_PLURAL = 4
"""Letters from which on a last s is taken for a plural."""
LONG_NAME, LONG_WORD = 8, 5
"""Letters of a name, and of the word in question, from which on one letter more, less or other is taken for a slip."""
UNSORTED_NAMES = {
    *("unsorted", "tosort", "sort", "sortme", "todo", "misc", "miscellaneous", "various", "mixed", "inbox"),
    *("new", "incoming", "unknown", "unidentified", "unclassified", "uncategorized", "uncategorised", "none"),
    *("other", "others", "rest", "remaining", "tmp", "temp", "download", "downloads", "undefined", "unnamed"),
    *("dcim", "camera", "cameraroll"),
}
"""Folders that people call so hold what nobody has sorted; here without blanks and the like."""
DATE = re.compile(r"(19|20)\d\d([-_. ]?(0[1-9]|1[0-2])([-_. ]?(0[1-9]|[12]\d|3[01]))?)?")
"""2023, 2023-05, 20230512: when images were taken, not what they show."""
CAMERA_NAMES = re.compile(r"[1-9]\d\d[A-Za-z_]\w{4}")
"""100CANON, 101MSDCF, 102_PANA: folders that cameras make, three digits and five signs."""


def similar_names(names: Iterable[str]) -> list[list[str]]:
    """Return groups of names that probably mean one class, each sorted, in the order of their first names.

    Case, blanks, underscores, hyphens, accents and a last s do not count, nor does one letter in a long word. Digits
    and single letters do: type 1, type 2 and type a are three.
    """
    names = sorted(set(names))
    group: dict[str, set[str]] = {}
    of_key: dict[str, set[str]] = {}
    for name in names:
        group[name] = of_key.setdefault(_key(name), set())
        group[name].add(name)
    for one, other in _typos(names):
        if group[one] is not group[other]:
            group[one] |= group[other]
            for name in group[other]:
                group[name] = group[one]
    found = {id(members): sorted(members) for members in group.values() if len(members) > 1}
    return sorted(found.values())


def unsorted_names(names: Iterable[str]) -> list[str]:
    """Return the names that sound like a heap of unsorted images, sorted."""
    return sorted(
        name
        for name in set(names)
        if "".join(_words(name)) in UNSORTED_NAMES or DATE.fullmatch(name) or CAMERA_NAMES.fullmatch(name)
    )


def _words(name: str) -> list[str]:
    """Return letters and digits in small letters, without accents; everything else parts words."""
    plain = unicodedata.normalize("NFKD", name.casefold())
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return re.findall(r"[^\W_]+", plain)


def _key(name: str) -> str:
    joined = "".join(_words(name))
    if not joined:
        return name  # signs only
    is_plural = joined.endswith("s") and len(joined) >= SHORTEST_PLURAL
    return joined[:-1] if is_plural else joined


def _typos(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of long names in which one long word differs by a letter.

    Two words that differ so share a form with one letter left out; only names that share one are compared.
    """
    forms: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name in names:
        words = _words(name)
        for place, word in enumerate(words):
            rest = sum(map(len, words)) - len(word)
            if len(word) < LONG_WORD - 1 or not word.isalpha() or rest + len(word) < LONG_NAME - 1:
                continue
            for cut in {word, *(word[:i] + word[i + 1 :] for i in range(len(word)))}:
                others = forms.setdefault((*words[:place], f"\0{cut}", *words[place + 1 :]), [])
                for other, near in others:
                    longest = max(len(word), len(near))
                    is_long = longest >= LONG_WORD and rest + longest >= LONG_NAME
                    if is_long and word[0] == near[0] and _one_letter_apart(near, word):
                        yield other, name
                others.append((name, word))


def _one_letter_apart(one: str, other: str) -> bool:
    """Return whether there is one letter more, less or other, or two neighbours are swapped."""
    short, long = sorted((one, other), key=len)
    same = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(long) - len(short) == 1:
        return short[same:] == long[same + 1 :]
    if len(long) != len(short):
        return False
    swapped = short[:same] + short[same : same + 2][::-1] + short[same + 2 :]
    return short[same + 1 :] == long[same + 1 :] or swapped == long
