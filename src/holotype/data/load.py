"""Load a user's images as a Table, from any source that a reader claims."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.archives import file_of, has_own_file
from holotype.data.detections import CONFIDENCE, crop_table, read_detections
from holotype.data.formats import IMAGE_EXTENSIONS
from holotype.data.label_hygiene import nfc
from holotype.data.labels import LabelFile, match_labels, read_list
from holotype.data.paths import Paths, relative
from holotype.data.readers.csv import read_csv_table
from holotype.data.readers.folder import UNLABELLED_FOLDERS, images_in, read_folder
from holotype.data.readers.parquet import holds_images
from holotype.data.readers.registry import FOLDER, Reader, ReaderOptions, readers, source_name
from holotype.data.storage import is_address, is_pattern
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import did_you_mean

__all__ = [
    "IMAGE_EXTENSIONS",
    "UNLABELLED_FOLDERS",
    "check_trainable",
    "collection_name",
    "load_table",
    "read_csv_table",
    "read_folder",
]

log = logging.getLogger("holotype")


def load_table(
    source: Path | str,
    labels: Path | None = None,
    *,
    unlabelled: Sequence[str] = (),
    skip_missing: bool = False,
    boxes: Path | None = None,
    box_confidence: float = CONFIDENCE,
) -> Table:
    """Images from a folder, a table file, Parquet files or tars of images, or an address such as s3://bucket/photos.

    labels: a file that gives all labels; folder names then mean nothing, and images that it does not list are
    unlabelled. unlabelled: labels, or folders that would be labels, which mean none. skip_missing: rows of a file
    without an image are left out. boxes: MegaDetector's output or COCO annotations; then the images are the
    boxes, of at least this confidence where a detector tells one.
    """
    table = _load_whole(str(source), labels, skip_missing, boxes is not None)
    if boxes is not None:
        if not has_own_file(str(table.path[0])):
            raise InputError(
                f"--boxes takes pictures in a folder, and those of {source} are no files; unpack them."
            )
        found = read_detections(Path(boxes), box_confidence)
        starts = (Path(table.root), Path(os.path.abspath(Path(boxes).parent)))
        table = crop_table(table, found, starts, skip_missing)
    return _drop_labels(table, unlabelled)


def stream_paths(source: Path | str, **how: Any) -> Paths:
    """The paths of load_table(source, **how) one by one. Folders, tars, Parquet files with images and plain lists are
    never held as a whole; of everything else, and with `how`, the table is made, written through and dropped."""
    stream = None if any(how.values()) else readers().find(str(source)).stream
    found = stream(str(source)) if stream else None
    return found or paths_of(load_table(source, **how))


def paths_of(table: Table) -> Paths:
    """Those of a table; whoever gives it away keeps nothing of it."""
    return Paths(table.root, iter(table.path.tolist()))


def _load_whole(source: str, labels: Path | None, skip_missing: bool, whole: bool) -> Table:
    """Images before a file of boxes counts. whole: where a list has boxes, pictures without one stay."""
    reader = readers().find(source)
    if labels is None:
        return reader.read(source, ReaderOptions(skip_missing, whole))
    if _lists_labels(reader, source):
        raise InputError(f"{source} holds labels already; give a folder of images together with {labels}.")
    if FOLDER in reader.claims:
        base, files = images_in(Path(source))
        return _add_labels(Path(source), base, files, Path(labels), skip_missing, whole)
    return _relabel(reader.read(source, ReaderOptions()), source, Path(labels), skip_missing)


def _lists_labels(reader: Reader, source: str) -> bool:
    if reader.has_labels:
        return True
    one = source.lower().endswith(".parquet") and not is_address(source) and not is_pattern(source)
    return one and not holds_images(source)


def _relabel(table: Table, source: str, labels: Path, skip_missing: bool) -> Table:
    """A table of images that are no files, with the labels of a list, which calls them as seen from the table's root:
    shard.tar#key, train.parquet#0 or fox/1.jpg. Truth and bursts are the list's where it speaks of them."""
    rows = read_list(labels)
    if rows.box is not None:
        raise InputError(
            f"{labels} has boxes, which take pictures in a folder, and those of {source} are no files; unpack them, or "
            "leave out the boxes."
        )
    base = Path(table.root)
    names = relative([str(path) for path in table.path], table.root)
    row = {os.path.normpath(os.path.join(base, name)): i for i, name in enumerate(names)}
    row |= {str(path): i for i, path in enumerate(table.path)}
    listed = match_labels(
        rows,
        (base,),
        row.__contains__,
        lambda: list(row),
        missing=f"images that {labels} labels are not in {source}",
        skip_missing=skip_missing,
    )

    def of_all(values: list[str]) -> np.ndarray:
        """What the list says of its images, and "" of the others."""
        column = np.full(len(table), "", dtype=object)
        for path, value in zip(listed.path, values, strict=True):
            column[row[path]] = value
        return column

    label = of_all(listed.label)
    table = dataclasses.replace(table, label=label, known=tuple(sorted(set(label) - {""})))
    if listed.hidden is not None:
        table = dataclasses.replace(table, truth=of_all(listed.hidden))
    return table if listed.group is None else dataclasses.replace(table, group=of_all(listed.group))


def _drop_labels(table: Table, names: Sequence[str]) -> Table:
    """The table with these labels, in capitals or not, taken away."""
    if not names:
        return table
    own = {label.casefold(): label for label in table.known}
    names = [nfc(name) for name in names]
    for name in names:
        if name.casefold() not in own:
            hint = did_you_mean(repr(name), map(repr, table.known), "give the name of a folder or label.")
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
            f"Every usable image{where} is labelled, so nothing is left to place; put images without a label into "
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


def collection_name(source: Path | str) -> str:
    """What a folder or a table file is called in records."""
    return source_name(source)


def _add_labels(
    source: Path, base: Path, files: Sequence[Path], labels: Path, skip_missing: bool, whole: bool
) -> Table:
    pictures = {str(base / file): "" for file in files}
    starts = (base, Path(os.path.abspath(labels.parent)))
    missing = f"images that {labels} labels are not in {source}"
    listed = match_labels(
        read_list(labels),
        starts,
        pictures.__contains__,
        lambda: list(pictures),
        missing=missing,
        skip_missing=skip_missing,
        whole=whole,
    )
    images = _add_boxes(pictures, listed, whole)

    def of_all(values: list[str] | None) -> list[str] | None:
        """What the list says of its images, and "" of the others."""
        return (
            None if values is None else list((images | dict(zip(listed.path, values, strict=True))).values())
        )

    label = of_all(listed.label) or []
    known = tuple(sorted(set(label) - {""}))
    truth, group = of_all(listed.hidden), of_all(listed.group)
    return _table(base, list(images), label, known, root=str(base), truth=truth, group=group)


def _add_boxes(pictures: dict[str, str], listed: LabelFile, whole: bool) -> dict[str, str]:
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
