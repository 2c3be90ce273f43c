"""Read a folder of images; the first folder below it is the label. Report every file left out."""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from holotype.data.csv import is_utf8
from holotype.data.formats import IMAGE_EXTENSIONS, install_hint
from holotype.data.label_hygiene import nfc
from holotype.data.paths import Paths
from holotype.data.readers.parquet import holds_images, read_parquet, stream_parquet
from holotype.data.readers.webdataset import read_webdataset, stream_webdataset
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import suggest_path

SORTED_FOLDER = ".holotype-folders.json"
"""In a folder of images that Holotype wrote (export/folders.py): which file was made of which image."""
UNREADABLE_FOLDER, REJECTED_FOLDER = "_unreadable", "_rejected"
"""Folders in such a one, of images without a category."""
OWN_FILES = {
    "identity.json": "backbone",
    "discovery.json": "run_id",
    "model.json": "backbone",
    "manifest.json": "images_per_shard",
    "thumbs.json": "thumbs",
    SORTED_FOLDER: "files",
}
"""Files by which a folder that a run wrote is known, with a key that each must have: others use such names too."""
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".xml", ".xlsx", ".yaml", ".yml")
"""Lists of images and of labels, which nobody takes for images."""
PACKED_SUFFIXES = (".parquet", ".tar")
"""Files that may hold images."""
SYSTEM_FILES = frozenset(
    (
        *("__macosx", "@eadir", "#recycle", "$recycle.bin", "system volume information", "lost+found"),
        *("thumbs.db", "ehthumbs.db", "desktop.ini"),
    )
)
"""Files and folders, in small letters, that systems leave beside images: previews, bins, settings."""
MAX_LISTED = 6
"""Endings and folders that the line names; the others are counted."""


@dataclass
class FolderScan:
    """What a folder holds."""

    images: list[Path] = field(default_factory=list)
    """Absolute where the folder was; in no order."""
    packed: list[Path] = field(default_factory=list)
    """Parquet files and tars, which may hold images; the same."""
    passed: Counter[str] = field(default_factory=Counter)
    """Files that are not read, by their ending in lower case; "" = without one."""
    runs: list[str] = field(default_factory=list)
    """Folders that runs wrote."""
    apart: list[str] = field(default_factory=list)
    """Folders of images that a run has put in no category."""
    closed: list[str] = field(default_factory=list)
    """Folders that may not be read."""
    misnamed: list[str] = field(default_factory=list)
    """Files and folders whose names are not valid UTF-8: no table can hold them."""
    endless: list[str] = field(default_factory=list)
    """Pipes and devices: whoever opens one may wait, or read, without end."""

    def words(self) -> str:
        """What was passed over, in one line; "" = nothing."""
        named = [_files(ending, n) for ending, n in self.passed.most_common(MAX_LISTED)]
        rest = self.passed.most_common()[MAX_LISTED:]
        if rest:
            named.append(f"{sum(n for _, n in rest):,} files of {len(rest)} other endings")
        named += _folders("the run folder", "the run folders", self.runs)
        named += _folders("the folder", "the folders", self.apart)
        named += _folders("the unreadable folder", "the unreadable folders", self.closed)
        named += _folders("the non-UTF-8 name", "the non-UTF-8 names", self.misnamed)
        named += _folders("the pipe or device", "the pipes or devices", self.endless)
        return f"Skipped: {', '.join(named)}." if named else ""


def scan_folder(base: Path) -> FolderScan:
    """Look at everything below `base`. Hidden files and those of the system are skipped, links are followed once.

    A run folder is not looked into, unless it is `base` itself: its thumbnails are no images of anybody's. In a folder
    that was sorted by a run, what lies in no category stays out: what people have rejected is no class.
    """
    found = FolderScan()
    found.images.extend(list_images(base, found))
    return found


def list_images(base: Path, found: FolderScan) -> Iterator[Path]:
    """The images one by one, in the order of the parts of their paths; what else there is goes to `found`.

    The names of a folder, and of those that it lies in, are all that is in memory at a time.
    """
    seen: set[str] = set()
    stack = [iter(_entries(str(base), str(base), found, seen))]
    while stack:
        path = next(stack[-1], None)
        if path is None:
            stack.pop()
        elif path.endswith(os.sep):
            stack.append(iter(_entries(path[: -len(os.sep)], str(base), found, seen)))
        else:
            yield Path(path)


def _entries(folder: str, base: str, found: FolderScan, seen: set[str]) -> list[str]:
    """Images and folders in a folder, the latter with a slash at the end, in order; none where it is not entered."""
    real = os.path.realpath(folder)
    if real in seen:  # a link that leads back up would be walked for ever
        return []
    try:
        with os.scandir(folder) as listed:
            kinds = {entry.name: _kind(entry) for entry in listed}
    except OSError:
        found.closed.append(os.path.relpath(folder, base))
        return []
    seen.add(real)
    if folder != base and is_own_file(folder, [name for name, kind in kinds.items() if kind == "file"]):
        found.runs.append(os.path.relpath(folder, base))
        return []
    entered = []
    is_sorted = folder == base and SORTED_FOLDER in kinds and is_own_file(folder, [SORTED_FOLDER])
    for name in sorted(kinds):
        path = os.path.join(folder, name)
        if not is_utf8(name):
            found.misnamed.append(os.path.relpath(path, base))
        elif _is_hidden(name):
            continue
        elif kinds[name] == "endless":
            found.endless.append(os.path.relpath(path, base))
        elif kinds[name] == "folder" and is_sorted and name in (UNREADABLE_FOLDER, REJECTED_FOLDER):
            found.apart.append(name)
        elif kinds[name] == "folder":
            entered.append(path + os.sep)
        elif name.lower().endswith(IMAGE_EXTENSIONS):
            entered.append(path)
        else:
            _skip(path, name, found)
    return entered


def _kind(entry: os.DirEntry[str]) -> Literal["folder", "file", "endless"]:
    """A link is what it leads to; one that leads nowhere is a file, of which is said later that it is not there."""
    try:
        if entry.is_dir():
            return "folder"
        return "file" if entry.is_file() or not os.path.exists(entry.path) else "endless"
    except OSError:  # a link that leads round in a circle
        return "file"


def _skip(path: str, name: str, found: FolderScan) -> None:
    if name.lower().endswith(PACKED_SUFFIXES):
        found.packed.append(Path(path))
    if not name.lower().endswith(TABLE_SUFFIXES):
        found.passed[os.path.splitext(name)[1].lower()] += 1


def is_own_file(folder: str, names: Sequence[str]) -> bool:
    """Was this folder, in which files of these names lie, written by a run?"""
    for name in names:
        if name in OWN_FILES:
            try:
                content = json.loads(Path(folder, name).read_bytes())
            except (OSError, ValueError):
                continue
            if isinstance(content, dict) and OWN_FILES[name] in content:
                return True
    return False


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in SYSTEM_FILES


def _files(ending: str, n: int) -> str:
    what = f"{n:,} {ending} file" if ending else f"{n:,} file"
    told = what + ("" if n == 1 else "s") + ("" if ending else " without an ending")
    wanted = install_hint(ending)
    return f"{told} (install {wanted})" if wanted else told


def _folders(one: str, several: str, names: list[str]) -> list[str]:
    shown = [name.encode("utf-8", "replace").decode() for name in sorted(names)[:MAX_LISTED]]
    more = f" and {len(names) - MAX_LISTED:,} more" if len(names) > MAX_LISTED else ""
    told = f"{one if len(names) == 1 else several} {' and '.join(shown)}{more}"
    return [told] if names else []


UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")

log = logging.getLogger("holotype")


def read_folder(root: Path) -> Table:
    """Every image under `root`; the first folder below it is the label.

    Loose images and those in a folder called `unlabelled` carry no label. Rows are sorted by path; hidden files and
    folders that runs wrote are skipped, and a line in the log says what else was passed over. Where there is no image,
    Parquet files with images and tars are read.
    """
    base, found = _scan(root)
    if not found.images and (packed := read_packed_folder([str(path) for path in found.packed], base.name)):
        return packed
    files = _sorted(root, base, found)
    label = [folder_label(file.parts) for file in files]
    return Table(
        path=np.array([str(base / file) for file in files], dtype=object),
        label=np.array(label, dtype=object),
        known=tuple(sorted(set(label) - {""})),
        name=base.name,
        root=str(base),
    )


def stream_folder(source: str) -> Paths:
    """The paths of `from_folder` in a stream."""
    base, found = _base(Path(source)), FolderScan()
    images = list_images(base, found)
    first = next(images, None)
    if first is None:
        _check_open(source, found)
        packed = stream_packed([str(path) for path in found.packed])
        if packed is None:
            _sorted(Path(source), base, found)  # says that there is no image
        assert packed is not None
        return packed

    def each() -> Iterator[str]:
        yield str(first)
        yield from map(str, images)
        if passed := found.words():
            log.info(passed)

    return Paths(str(base), each())


def images_in(root: Path) -> tuple[Path, list[Path]]:
    """The folder's absolute path and its images relative to it, sorted; never an empty list."""
    base, found = _scan(root)
    return base, _sorted(root, base, found)


def _scan(root: Path) -> tuple[Path, FolderScan]:
    base = _base(root)
    found = scan_folder(base)
    _check_open(root, found)
    if found.images and (passed := found.words()):
        log.info(passed)
    return base, found


def _base(root: Path) -> Path:
    if not Path(root).is_dir():
        raise InputError(f"The folder {root} does not exist{suggest_path(root)}; check its name.")
    return Path(os.path.abspath(root))


def _check_open(root: Path | str, found: FolderScan) -> None:
    if "." in found.closed:
        raise InputError(f"The folder {root} may not be read; change its permissions.")


def _sorted(root: Path, base: Path, found: FolderScan) -> list[Path]:
    files = sorted((f.relative_to(base) for f in found.images), key=lambda f: f.parts)
    if not files:
        if passed := found.words():
            log.info(passed)
        kinds = ", ".join(IMAGE_EXTENSIONS)
        raise InputError(f"There is no image in {root}; files that end in {kinds} count as images.")
    return files


def folder_label(parts: Sequence[str]) -> str:
    """Of an image, by the parts of its path below the folder of all images; "" = none."""
    first = parts[0] if len(parts) > 1 else ""
    return "" if first.lower() in UNLABELLED_FOLDERS else nfc(first)


def read_packed_folder(files: Sequence[str], name: str) -> Table | None:
    """What lies in Parquet files with images or in tars, whichever are there; None where neither are.

    files: absolute paths or addresses of Parquet files and tars.
    """
    tars, tables = _kinds(files)
    if tars:
        return read_webdataset(tars, name)
    return read_parquet(tables, name) if tables else None


def stream_packed(files: Sequence[str]) -> Paths | None:
    """The same as a stream of paths."""
    tars, tables = _kinds(files)
    if tars:
        return stream_webdataset(tars)
    return stream_parquet(tables) if tables else None


def _kinds(files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tars, and Parquet files with images; not both."""
    tars = sorted(file for file in files if ".tar" in _ending(file))
    tables = sorted(file for file in files if ".parquet" in _ending(file) and holds_images(file))
    if tars and tables:
        raise InputError(
            f"There are both Parquet files ({tables[0]}) and tars ({tars[0]}) of images; name one kind of them."
        )
    return tars, tables


def _ending(file: str) -> str:
    return os.path.splitext(file.partition("?")[0])[1].lower()
