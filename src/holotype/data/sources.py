"""A user's own images as a Table: a folder, a CSV or Parquet file, or both together."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holotype.data.boxed import cut_out
from holotype.data.containers import file_of, image_exists
from holotype.data.detections import CONFIDENCE, read_detections
from holotype.data.kinds import IMAGE_EXTENSIONS
from holotype.data.lists import Listed, match, read_list
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


def from_csv(
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
        raise InputError(f"The folder {root} does not exist; check its name.")
    base = Path(os.path.abspath(file.parent if root is None else root))

    def others() -> list[str]:
        return sorted(str(path) for path in walk(base).images)

    missing = f"paths in {file} do not exist"
    rows = read_list(file)
    listed = match(
        rows, (base,), image_exists, others, missing=missing, skip_missing=skip_missing, whole=whole
    )
    if not listed.path:
        without = "has a box" if rows.box is not None else f"is there; relative paths start at {base}"
        raise InputError(f"None of the images that {file} lists {without}.")
    known = tuple(sorted(set(listed.label) - {""}))
    return _table(
        file, listed.path, listed.label, known, root=str(base), truth=listed.hidden, group=listed.group
    )


def load_table(
    source: Path,
    labels: Path | None = None,
    *,
    unlabelled: Sequence[str] = (),
    skip_missing: bool = False,
    boxes: Path | None = None,
    box_confidence: float = CONFIDENCE,
) -> Table:
    """Images from a folder or a table file; with `labels`, the folder gives the images and the file
    `labels` all labels (folder names then mean nothing, and images it does not list are unlabelled).

    unlabelled: labels, or folders that would be labels, which mean none. skip_missing: rows of a file without an image
    are left out. boxes: MegaDetector's output or COCO annotations; then the images are the boxes, of at least this
    confidence where a detector tells one.
    """
    table = _whole(Path(source), labels, skip_missing, boxes is not None)
    if boxes is not None:
        found = read_detections(Path(boxes), box_confidence)
        starts = (Path(table.root), Path(os.path.abspath(Path(boxes).parent)))
        table = cut_out(table, found, starts, skip_missing)
    return _without_labels(table, unlabelled)


def _whole(source: Path, labels: Path | None, skip_missing: bool, whole: bool) -> Table:
    """Images before a file of boxes counts. whole: where a list has boxes, pictures without one stay."""
    if source.is_dir() and labels is None:
        return from_folder(source)
    if source.is_dir():
        return _with_labels(source, Path(str(labels)), skip_missing, whole)
    if not source.exists():
        raise InputError(f"{source} does not exist; give a folder of images or a CSV or Parquet file.")
    if source.suffix.lower() not in TABLE_EXTENSIONS:
        raise InputError(
            f"{source} is neither a folder nor a .csv, .tsv or .parquet file; give one of these."
        )
    if labels is not None:
        raise InputError(f"{source} holds labels already; give a folder of images together with {labels}.")
    return from_csv(source, skip_missing=skip_missing, whole=whole)


def _without_labels(table: Table, names: Sequence[str]) -> Table:
    """The table with these labels, in capitals or not, taken away."""
    if not names:
        return table
    own = {label.casefold(): label for label in table.known}
    for name in names:
        if name.casefold() not in own:
            close = difflib.get_close_matches(name, table.known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else "give the name of a folder or label."
            raise InputError(f"--unlabelled {name!r} is no class of {table.name}; {hint}")
    gone = {name.casefold() for name in names}
    label = ["" if label.casefold() in gone else label for label in table.label]
    known = tuple(name for name in table.known if name.casefold() not in gone)
    return dataclasses.replace(table, label=np.array(label, dtype=object), known=known)


def with_readable_classes(table: Table) -> tuple[Table, list[str]]:
    """The table without the classes of which no labelled image is usable, and their names; their images lose a label
    that nothing can be learnt from."""
    present = set(table.label[table.labelled & table.usable])
    gone = [name for name in table.known if name not in present]
    if not gone:
        return table, []
    label = np.array([name if name in present else "" for name in table.label], dtype=object)
    known = tuple(name for name in table.known if name in present)
    return dataclasses.replace(table, label=label, known=known), gone


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
    group: Sequence[str] | None = None,
) -> Table:
    return Table(
        path=np.array(path, dtype=object),
        label=np.array(label, dtype=object),
        known=known,
        truth=None if truth is None else np.array(truth, dtype=object),
        group=None if group is None else np.array(group, dtype=object),
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


def _with_labels(source: Path, labels: Path, skip_missing: bool, whole: bool) -> Table:
    base, files = _images(source)
    pictures = {str(base / file): "" for file in files}
    starts = (base, Path(os.path.abspath(labels.parent)))
    missing = f"images that {labels} labels are not in {source}"
    listed = match(
        read_list(labels),
        starts,
        pictures.__contains__,
        lambda: list(pictures),
        missing=missing,
        skip_missing=skip_missing,
        whole=whole,
    )
    images = _with_boxes(pictures, listed, whole)

    def of_all(values: list[str] | None) -> list[str] | None:
        """What the list says of its images, and "" of the others."""
        return (
            None if values is None else list((images | dict(zip(listed.path, values, strict=True))).values())
        )

    label = of_all(listed.label) or []
    known = tuple(sorted(set(label) - {""}))
    truth, group = of_all(listed.hidden), of_all(listed.group)
    return _table(base, list(images), label, known, root=str(base), truth=truth, group=group)


def _with_boxes(pictures: dict[str, str], listed: Listed, whole: bool) -> dict[str, str]:
    """The images of a folder whose list may have boxes. whole: pictures without a box stay."""
    if listed.box is None:
        return pictures
    images = dict.fromkeys(listed.path, "")
    if whole:
        return pictures | images
    if left := len(pictures) - len({file_of(path) for path in listed.path}):
        log.info(f"Left out: {left:,} of the {len(pictures):,} pictures, which have no box in {listed.file}.")
    if not images:
        raise InputError(f"No picture has a box in {listed.file}; fill in the column box, or remove it.")
    return images
