"""Load a user's images as a Table, from any source that a reader claims.

Each reader claims endings of files, schemes of addresses, or folders, and no two the same. Other packages add readers
under the entry point `holotype.readers`: a Reader each.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from holotype.data.detections import CONFIDENCE, crop_table, read_detections
from holotype.data.image_files import file_of, has_own_file
from holotype.data.labels import match_labels, read_csv_table, read_list, stream_list
from holotype.data.paths import Paths, is_address, is_pattern, relative, scheme_of, split_query
from holotype.data.readers.folder import read_bucket, read_folder, stream_folder
from holotype.data.readers.parquet import holds_images, read_parquet, stream_parquet
from holotype.data.readers.vectors import read_vectors
from holotype.data.readers.webdataset import read_webdataset, stream_webdataset
from holotype.data.storage import STORES, source_files
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import join_or, nfc, suggest, suggest_path

log = logging.getLogger("holotype")

FOLDER = "folder"
PLUGINS = "holotype.readers"


@dataclass(frozen=True)
class ReaderOptions:
    """What a reader is told besides its source."""

    skip_missing: bool = False
    """Rows of a list without an image are left out."""
    whole: bool = False
    """Where a list has boxes, pictures without one stay."""


@dataclass(frozen=True)
class Reader:
    """Turns a source into a table of images."""

    name: str
    """In sentences."""
    claims: tuple[str, ...]
    """"folder", endings as .tar, schemes as s3://."""
    read: Callable[[str, ReaderOptions], Table]
    """source: as it was given."""
    has_labels: bool = False
    """Is the source a list that gives the labels, so that no second one can?"""
    stream: Callable[[str], Paths | None] | None = None
    """The paths of that table one by one, from a source that may have more than there is room for; None where it can
    only be read as a whole."""


def collection_name(source: str | Path) -> str:
    """Return what a source is called in records: photos of photos/, s3://bucket/photos and photos.csv."""
    text = str(source)
    plain = not is_address(text) and not is_pattern(text)
    path = PurePosixPath(Path(text).name if plain else split_query(text)[0].rstrip("/").rpartition("/")[2])
    name = path.stem if path.suffix.lower() in readers() else path.name
    if plain:
        return name
    name = re.sub(r"[{}]", "", name).replace("..", "-")
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "images"


def folder_name(source: str | Path) -> str:
    """Return what a run folder is called after: the last part of a path, with its ending."""
    text = str(source)
    plain = not is_address(text) and not is_pattern(text)
    return Path(text).resolve().name if plain else collection_name(text)


def _parquet(source: str, how: ReaderOptions) -> Table:
    """Read a table of images, or of paths where there is no column of images."""
    files = source_files(source)
    return _list(source, how) if _is_parquet_list(files) else read_parquet(files, collection_name(source))


def _stream_parquet(source: str) -> Paths | None:
    files = source_files(source)
    return stream_list(source) if _is_parquet_list(files) else stream_parquet(files)


def _is_parquet_list(files: Sequence[str]) -> bool:
    return len(files) == 1 and not is_address(files[0]) and not holds_images(files[0])


def _list(source: str, how: ReaderOptions) -> Table:
    return read_csv_table(Path(source), skip_missing=how.skip_missing, whole=how.whole)


def _tars(source: str, how: ReaderOptions) -> Table:
    return read_webdataset(source_files(source), collection_name(source))


STORE_CLAIMS = tuple(f"{scheme}://" for scheme in STORES)
BUILTIN_READERS = (
    Reader("folders of images", (FOLDER,), lambda source, _: read_folder(Path(source)), stream=stream_folder),
    Reader("lists of paths", (".csv", ".tsv"), _list, has_labels=True, stream=stream_list),
    Reader("Parquet files", (".parquet",), _parquet, stream=_stream_parquet),
    Reader("tars", (".tar",), _tars, stream=lambda source: stream_webdataset(source_files(source))),
    Reader(
        "stores on the network", STORE_CLAIMS, lambda source, _: read_bucket(source, collection_name(source))
    ),
)


@cache
def readers() -> dict[str, Reader]:
    """Return our own readers, and those that other packages bring, by what they claim."""
    found: dict[str, Reader] = {}
    for reader in (*BUILTIN_READERS, *(entry.load() for entry in entry_points(group=PLUGINS))):
        for claim in reader.claims:
            if claim in found:
                names = f"{found[claim].name} and {reader.name}"
                raise InputError(f"Two readers claim {claim}: {names}; remove one of them.")
            found[claim] = reader
    return found


def find_reader(source: str) -> Reader:
    """Return the reader of a source; InputError where there is none."""
    known = readers()
    ending = os.path.splitext(split_query(source)[0])[1].lower()
    if is_address(source):
        scheme = f"{scheme_of(source)}://"
        if scheme not in known:
            stores = ", ".join(name for name in known if name.endswith("://"))
            raise InputError(f"{source} is in no store that can be read; there are {stores}.")
        return known[ending if ending in (".parquet", ".tar") else scheme]
    if os.path.isdir(source):
        return known[FOLDER]
    if not os.path.exists(source) and not is_pattern(source):
        near = suggest_path(source)
        raise InputError(f"{source} does not exist{near}; give a folder of images or a CSV or Parquet file.")
    if source.lower().endswith((".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")):
        raise InputError(f"{source} is compressed, so no image can be read by itself; unpack it to .tar.")
    if ending not in known:
        endings = join_or(claim for claim in known if claim.startswith("."))
        raise InputError(f"{source} is neither a folder nor a {endings} file; give such.")
    return known[ending]


def load_table(
    source: Path | str,
    labels: Path | None = None,
    *,
    unlabelled: Sequence[str] = (),
    skip_missing: bool = False,
    boxes: Path | None = None,
    box_confidence: float = CONFIDENCE,
    vectors: bool = False,
) -> Table:
    """Load images from a folder, a table file, Parquet files or tars of images, or an address such as s3://bucket/photos.

    Args:
        source: the folder, file, pattern of files or address.
        labels: a file that gives all labels; folder names then mean nothing, and images that it does not list are
            unlabelled.
        unlabelled: labels, or folders that would be labels, which mean none.
        skip_missing: rows of a file without an image are left out.
        boxes: MegaDetector's output or COCO annotations; then the images are the boxes.
        box_confidence: the least of a box, where a detector tells one.
        vectors: the source is a table of feature vectors (readers/vectors.py).

    Returns:
        A table with a row for each image.
    """
    if vectors:
        table = read_vectors(Path(source))
        table = table if labels is None else _relabel(table, str(source), Path(labels), skip_missing, False)
    else:
        table = _load_whole(str(source), labels, skip_missing, boxes is not None)
    if boxes is not None:
        if not has_own_file(str(table.path[0])):
            raise InputError(f"--boxes takes pictures in a folder, and not those in {source}; unpack them.")
        found = read_detections(Path(boxes), box_confidence)
        starts = (Path(table.root), Path(os.path.abspath(Path(boxes).parent)))
        table = crop_table(table, found, starts, skip_missing)
    return _drop_labels(table, unlabelled)


def stream_paths(source: Path | str, **how: Any) -> Paths:
    """Return the paths of load_table(source, **how) one by one.

    Folders, tars, Parquet files with images and plain lists are never held as a whole; of everything else, and with
    `how`, the table is made, written through and dropped.
    """
    stream = None if any(how.values()) else find_reader(str(source)).stream
    found = stream(str(source)) if stream else None
    return found or paths_of(load_table(source, **how))


def paths_of(table: Table) -> Paths:
    """Return the paths of a table; whoever gives it away keeps nothing of it."""
    return Paths(table.root, iter(table.path.tolist()))


def _load_whole(source: str, labels: Path | None, skip_missing: bool, whole: bool) -> Table:
    """Return the images before a file of boxes counts. whole: where a list has boxes, pictures without one stay."""
    reader = find_reader(source)
    if labels is None:
        return reader.read(source, ReaderOptions(skip_missing, whole))
    if reader.has_labels or (".parquet" in reader.claims and _is_parquet_list(source_files(source))):
        raise InputError(f"{source} holds labels already; give a folder of images together with {labels}.")
    return _relabel(reader.read(source, ReaderOptions()), source, Path(labels), skip_missing, whole)


def _relabel(table: Table, source: str, labels: Path, skip_missing: bool, whole: bool) -> Table:
    """Return the table with the labels of a list, which calls images as seen from the table's root: shard.tar#key,
    train.parquet#0 or fox/1.jpg. Truth, bursts and boxes are the list's where it speaks of them."""
    listed = read_list(labels)
    if listed.box is not None and not has_own_file(table.path[0]):
        raise InputError(f"{labels} has boxes, which take pictures in a folder; unpack {source}.")
    base = Path(table.root)
    names = relative(table.path, table.root)
    row = {os.path.normpath(os.path.join(base, name)): i for i, name in enumerate(names)}
    row |= {path: i for i, path in enumerate(table.path)}
    missing = f"images that {labels} labels are not in {source}"
    how: dict[str, Any] = {"missing": missing, "skip_missing": skip_missing, "whole": whole}
    starts = (base, Path(os.path.abspath(labels.parent)))
    listed = match_labels(listed, starts, row.__contains__, lambda: list(row), **how)
    if listed.box is not None:
        pictures = len(table)
        paths = list(dict.fromkeys((*(table.path if whole else ()), *listed.path)))
        if not paths:
            raise InputError(f"No picture has a box in {labels}; fill in the column box, or remove it.")
        table = table.take([row[file_of(path)] for path in paths], np.array(paths, dtype=object))
        row = {path: i for i, path in enumerate(paths)}
        if left := 0 if whole else pictures - len({file_of(path) for path in paths}):
            log.info(f"Left out: {left:,} of the {pictures:,} pictures, which have no box in {labels}.")
    columns: dict[str, Any] = {}
    for name, values in (("label", listed.label), ("truth", listed.hidden), ("group", listed.group)):
        if values is not None:
            columns[name] = np.full(len(table), "", dtype=object)
            columns[name][[row[path] for path in listed.path]] = values
    return dataclasses.replace(table, known=tuple(sorted(set(listed.label) - {""})), **columns)


def _drop_labels(table: Table, names: Sequence[str]) -> Table:
    """Return the table with these labels, in capitals or not, taken away."""
    gone = {nfc(name).casefold() for name in names}
    for name in names:
        if nfc(name).casefold() not in {label.casefold() for label in table.known}:
            near = suggest(name, table.known)
            raise InputError(f"--unlabelled {name!r} is no class of {table.name}{near}; give one.")
    return _keep_classes(table, [name for name in table.known if name.casefold() not in gone])


def _keep_classes(table: Table, known: Sequence[str]) -> Table:
    """Return the table with these known classes only; images of the others lose their label."""
    if len(known) == len(table.known):
        return table
    label = np.array([name if name in set(known) else "" for name in table.label], dtype=object)
    return dataclasses.replace(table, label=label, known=tuple(known))


def with_readable_classes(table: Table) -> tuple[Table, list[str]]:
    """Return the table without the classes of which no labelled image is usable, and their names; their images lose a
    label that nothing can be learnt from."""
    present = set(table.label[table.usable])
    gone = [name for name in table.known if name not in present]
    return _keep_classes(table, [name for name in table.known if name in present]), gone


def check_trainable(table: Table, classes: int = 2) -> None:
    """Raise InputError unless usable images carry at least so many known classes and some carry none."""
    where = f" in {table.name}" if table.name else ""
    labelled = table.labelled & table.usable
    if classes and not labelled.any():
        cure = "put some into folders named after their class, or list them with --labels"
        raise InputError(f"No usable image{where} is labelled; {cure}.")
    present = sorted(set(table.label[labelled]))
    if len(present) < classes:
        raise InputError(f"Only one known class ({present[0]!r}) has usable images{where}; label two.")
    if not (table.usable & ~table.labelled).any():
        cure = "put images without a label into a folder called unlabelled, or name the labels with --labels"
        raise InputError(f"Every usable image{where} is labelled, so nothing is left to place; {cure}.")
