"""A user's own images as a Table: a folder, a CSV or Parquet file, or both together."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holotype.data.columns import read_columns
from holotype.data.containers import image_exists
from holotype.data.kinds import IMAGE_EXTENSIONS
from holotype.data.table import Table
from holotype.data.walk import walk
from holotype.errors import InputError

__all__ = ["IMAGE_EXTENSIONS", "check_trainable", "collection_name", "from_csv", "from_folder", "load_table"]

UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")
TABLE_EXTENSIONS = (".csv", ".tsv", ".parquet")

log = logging.getLogger("holotype")


def from_folder(root: Path) -> Table:
    """Every image under `root`; the first folder below it is the label.

    Loose images and those in a folder called `unlabelled` carry no label. Rows are sorted by path; hidden files and
    folders that runs wrote are skipped, and a line in the log says what else was passed over.
    """
    base, files = _images(root)
    label = [_folder_label(file) for file in files]
    known = tuple(sorted(set(label) - {""}))
    return _table(base, [str(base / file) for file in files], label, known, root=str(base))


def from_csv(file: Path, root: Path | None = None) -> Table:
    """Rows of a CSV, TSV or Parquet file with the columns `path` (or `file_name`) and `label`.

    An empty label means unlabelled; a file with a path column only is unlabelled throughout. A column
    `truth` is kept for scoring. Relative paths start at `root`, or at the file's own folder. Spaces around
    a label are dropped, and nothing else is interpreted: "NA" and "001" are names.
    """
    file = Path(file)
    if root is not None and not Path(root).is_dir():
        raise InputError(f"The folder {root} does not exist; check its name.")
    base = Path(os.path.abspath(file.parent if root is None else root))
    given, label, truth = _label_rows(file)
    path = [_join(base, p) for p in given]
    absent = [p for p in path if not image_exists(p)]
    if absent:
        raise InputError(
            f"{len(absent)} of the {len(path)} paths in {file} do not exist, for example {_some(absent)};"
            f" relative paths start at {base}."
        )
    return _table(file, path, label, tuple(sorted(set(label) - {""})), root=str(base), truth=truth)


def load_table(source: Path, labels: Path | None = None) -> Table:
    """Images from a folder or a table file; with `labels`, the folder gives the images and the file
    `labels` all labels (folder names then mean nothing, and images it does not list are unlabelled)."""
    source = Path(source)
    if source.is_dir():
        return from_folder(source) if labels is None else _with_labels(source, Path(labels))
    if not source.exists():
        raise InputError(f"{source} does not exist; give a folder of images or a CSV or Parquet file.")
    if source.suffix.lower() not in TABLE_EXTENSIONS:
        raise InputError(
            f"{source} is neither a folder nor a .csv, .tsv or .parquet file; give one of these."
        )
    if labels is not None:
        raise InputError(f"{source} holds labels already; give a folder of images together with {labels}.")
    return from_csv(source)


def check_trainable(table: Table) -> None:
    """Raise InputError unless usable images carry at least two known classes and some carry none."""
    where = f" in {table.name}" if table.name else ""
    labelled = table.labelled & table.usable
    if not labelled.any():
        raise InputError(
            f"No usable image{where} is labelled; put some into folders named after their class,"
            " or list them in a file with the columns path and label."
        )
    present = sorted(set(table.label[labelled]))
    if len(present) < 2:
        raise InputError(
            f"Only one known class ({present[0]!r}) has usable images{where}; label at least two."
        )
    if not (table.usable & ~table.labelled).any():
        raise InputError(
            f"Every usable image{where} is labelled, so that nothing is left to place; put images without a label into "
            "a folder called unlabelled, beside those of the classes, or name the labels with --labels."
        )


def _table(
    source: Path,
    path: Sequence[str],
    label: Sequence[str],
    known: tuple[str, ...],
    *,
    root: str,
    truth: Sequence[str] | None = None,
) -> Table:
    return Table(
        path=np.array(path, dtype=object),
        label=np.array(label, dtype=object),
        known=known,
        truth=None if truth is None else np.array(truth, dtype=object),
        name=collection_name(source),
        root=root,
    )


def collection_name(source: Path) -> str:
    """What a folder or a table file is called in records."""
    return source.stem if source.suffix.lower() in TABLE_EXTENSIONS else source.name


def _images(root: Path) -> tuple[Path, list[Path]]:
    """The folder's absolute path and its images relative to it, sorted; never an empty list."""
    root = Path(root)
    if not root.is_dir():
        raise InputError(f"The folder {root} does not exist; check its name.")
    base = Path(os.path.abspath(root))
    found = walk(base)
    if "." in found.closed:
        raise InputError(f"The folder {root} may not be read; change its permissions.")
    if passed := found.words():
        log.info(passed)
    files = sorted((f.relative_to(base) for f in found.images), key=lambda f: f.parts)
    if not files:
        kinds = ", ".join(IMAGE_EXTENSIONS)
        raise InputError(f"There is no image in {root}; files that end in {kinds} count as images.")
    return base, files


def _folder_label(file: Path) -> str:
    first = file.parts[0] if len(file.parts) > 1 else ""
    return "" if first.lower() in UNLABELLED_FOLDERS else first


def _label_rows(file: Path) -> tuple[list[str], list[str], list[str] | None]:
    """path, label and truth (None = no such column) of a table file."""
    columns = read_columns(file)
    found = ", ".join(repr(name) for name in columns)
    path_name = next((name for name in ("path", "file_name") if name in columns), None)
    if path_name is None:
        raise InputError(f"{file} has no column 'path' or 'file_name', only {found}; name it, with commas.")
    if "label" not in columns and len(columns) > 1:
        raise InputError(
            f"{file} has no column 'label', only {found}; name the column that holds the labels."
        )
    path = columns[path_name]
    if not path:
        raise InputError(f"{file} lists no image; add a line for each.")
    empty = [i for i, p in enumerate(path) if not p]
    if empty:
        raise InputError(f"Row {empty[0] + 1} of {file} has no path; fill it in or remove the row.")
    label = [value.strip() for value in columns.get("label", [""] * len(path))]
    truth = [value.strip() for value in columns["truth"]] if "truth" in columns else None
    return path, label, truth


def _with_labels(source: Path, labels: Path) -> Table:
    base, files = _images(source)
    images = {str(base / file): "" for file in files}
    given, label, truth = _label_rows(labels)
    true = dict.fromkeys(images, "")
    starts = (base, Path(os.path.abspath(labels.parent)))
    absent, rows = [], []
    for path in given:
        row = next((p for p in (_join(start, path) for start in starts) if p in images), None)
        if row is None:
            absent.append(path)
        else:
            rows.append(row)
    if absent:
        raise InputError(
            f"{len(absent)} of the {len(given)} images that {labels} labels are not in {source}, for example"
            f" {_some(absent)}; give paths relative to {source}."
        )
    twice = [row for row, count in Counter(rows).items() if count > 1]
    if twice:
        raise InputError(
            f"{labels} lists {len(twice)} images more than once, for example {_some(twice)}; keep one."
        )
    images.update(zip(rows, label, strict=True))
    if truth is not None:
        true.update(zip(rows, truth, strict=True))
    values = list(images.values())
    known = tuple(sorted(set(values) - {""}))
    truth = None if truth is None else list(true.values())
    return _table(base, list(images), values, known, root=str(base), truth=truth)


def _join(base: Path, path: str) -> str:
    return os.path.normpath(os.path.join(base, path))


def _some(paths: Sequence[str]) -> str:
    return ", ".join(repr(p) for p in paths[:3])
