"""Read a folder of images, or what lies below a storage address; the first folder below it is the label.

Every file that is left out is reported.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from holotype.data.csv import is_utf8
from holotype.data.image_files import IMAGE_EXTENSIONS, install_hint, no_image
from holotype.data.paths import Paths, relative, split_query, with_query
from holotype.data.readers.parquet import holds_images, read_parquet, stream_parquet
from holotype.data.readers.webdataset import read_webdataset, stream_webdataset
from holotype.data.storage import list_files
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import nfc, plural, suggest_path

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
PACKED = {".parquet": (read_parquet, stream_parquet), ".tar": (read_webdataset, stream_webdataset)}
"""Files that may hold images, and their readers."""
SYSTEM_FILES = {"__macosx", "@eadir", "#recycle", "$recycle.bin", "system volume information", "lost+found"}
SYSTEM_FILES |= {"thumbs.db", "ehthumbs.db", "desktop.ini"}
"""Files and folders, in small letters, that systems leave beside images: previews, bins, settings."""
MAX_LISTED = 6
"""Endings and folders that the line names; the others are counted."""
UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")

log = logging.getLogger("holotype")


@dataclass
class FolderScan:
    """What a folder holds."""

    images: list[Path] = field(default_factory=list)
    """Absolute where the folder was."""
    packed: list[str] = field(default_factory=list)
    """Parquet files and tars, which may hold images; the same."""
    passed: Counter[str] = field(default_factory=Counter)
    """Files that are not read, by their ending in lower case; "" = without one."""
    skipped: dict[str, list[str]] = field(default_factory=dict)
    """What else is not read: `run folder` (that a run wrote), `folder` (of images that a run has put in no category),
    `unreadable folder`, `non-UTF-8 name` (which no table can hold) and `special file` (a pipe or device: whoever opens
    one may wait, or read, without end) to paths from the folder."""

    def skip(self, what: str, path: str, base: str) -> None:
        self.skipped.setdefault(what, []).append(os.path.relpath(path, base))

    def words(self) -> str:
        """Return what was passed over, in one line; "" = nothing."""
        parts = [_files(ending, n) for ending, n in self.passed.most_common(MAX_LISTED)]
        if rest := self.passed.most_common()[MAX_LISTED:]:
            parts.append(f"{sum(n for _, n in rest):,} files of {len(rest)} other endings")
        for what, paths in self.skipped.items():
            shown = [path.encode("utf-8", "replace").decode() for path in sorted(paths)[:MAX_LISTED]]
            more = f" and {len(paths) - MAX_LISTED:,} more" if len(paths) > MAX_LISTED else ""
            parts.append(f"the {what}{'s' if len(paths) > 1 else ''} {' and '.join(shown)}{more}")
        return f"Skipped: {', '.join(parts)}." if parts else ""

    def report(self) -> None:
        """Log what was skipped."""
        if text := self.words():
            log.info(text)


def scan_folder(base: Path) -> FolderScan:
    """Look at everything below `base`, in order. Hidden files and those of the system are skipped, links are followed
    once.

    A run folder is not looked into, unless it is `base` itself: its thumbnails are no images of anybody's. In a folder
    that was sorted by a run, what lies in no category stays out: what people have rejected is no class.
    """
    found = FolderScan()
    found.images.extend(list_images(base, found))
    return found


def list_images(base: Path, found: FolderScan) -> Iterator[Path]:
    """Yield the images, in the order of the parts of their paths; what else there is goes to `found`.

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
    """Return images and folders in a folder, the latter with a slash at the end, in order; none where it is not
    entered."""
    real = os.path.realpath(folder)
    if real in seen:  # a link that leads back up would be walked for ever
        return []
    try:
        with os.scandir(folder) as listed:
            kinds = {entry.name: _kind(entry) for entry in listed}
    except OSError:
        found.skip("unreadable folder", folder, base)
        return []
    seen.add(real)
    if folder != base and is_own_file(folder, [name for name, kind in kinds.items() if kind == "file"]):
        found.skip("run folder", folder, base)
        return []
    entered = []
    is_sorted = folder == base and SORTED_FOLDER in kinds and is_own_file(folder, [SORTED_FOLDER])
    for name in sorted(kinds):
        path, kind, ending = os.path.join(folder, name), kinds[name], os.path.splitext(name)[1].lower()
        if not is_utf8(name):
            found.skip("non-UTF-8 name", path, base)
        elif name.startswith(".") or name.lower() in SYSTEM_FILES:
            continue
        elif kind == "special":
            found.skip("special file", path, base)
        elif kind == "folder" and is_sorted and name in (UNREADABLE_FOLDER, REJECTED_FOLDER):
            found.skip("folder", path, base)
        elif kind == "folder":
            entered.append(path + os.sep)
        elif ending in IMAGE_EXTENSIONS:
            entered.append(path)
        else:
            if ending in PACKED:
                found.packed.append(path)
            if ending not in TABLE_SUFFIXES:
                found.passed[ending] += 1
    return entered


def _kind(entry: os.DirEntry[str]) -> Literal["folder", "file", "special"]:
    """Return what an entry is. A link is what it leads to; one that leads nowhere is a file, of which is said later
    that it is not there."""
    try:
        if entry.is_dir():
            return "folder"
        return "file" if entry.is_file() or not os.path.exists(entry.path) else "special"
    except OSError:  # a link that leads round in a circle
        return "file"


def is_own_file(folder: str, names: Sequence[str]) -> bool:
    """Return whether this folder, in which files of these names lie, was written by a run."""
    for name in set(names) & OWN_FILES.keys():
        with contextlib.suppress(OSError, ValueError):
            content = json.loads(Path(folder, name).read_bytes())
            if isinstance(content, dict) and OWN_FILES[name] in content:
                return True
    return False


def _files(ending: str, n: int) -> str:
    text = plural(n, f"{ending} file") if ending else f"{plural(n, 'file')} without an ending"
    package = install_hint(ending)
    return f"{text} (install {package})" if package else text


def read_folder(root: Path) -> Table:
    """Return every image under `root`; the first folder below it is the label.

    Loose images and those in a folder called `unlabelled` carry no label. Rows are sorted by path; hidden files and
    folders that runs wrote are skipped, and a line in the log says what else was passed over. Where there is no image,
    Parquet files with images and tars are read.
    """
    base = _base(root)
    found = scan_folder(base)
    if not found.images:
        kind, files = _packed_or_none(root, found)
        return PACKED[kind][0](files, base.name)
    found.report()
    label = [folder_label(file.relative_to(base).parts) for file in found.images]
    columns = {"path": [str(file) for file in found.images], "label": label}
    return Table.from_columns(columns, name=base.name, root=str(base))


def stream_folder(source: str) -> Paths:
    """Return the paths of `read_folder` in a stream."""
    base, found = _base(Path(source)), FolderScan()
    images = list_images(base, found)
    first = next(images, None)
    if first is None:
        kind, files = _packed_or_none(source, found)
        return PACKED[kind][1](files)

    def each() -> Iterator[str]:
        yield str(first)
        yield from map(str, images)
        found.report()

    return Paths(str(base), each())


def read_bucket(address: str, name: str) -> Table:
    """Return every image below an address, as of a folder; where there is none, the Parquet files with images or the
    tars."""
    files = list_files(address)
    bare, query = split_query(address)
    folder = bare.rstrip("/").rpartition("/")[0] if files == [address] else bare.rstrip("/")
    root = with_query(folder, query)
    parts = {file: path.split("/") for file, path in zip(files, relative(files, root), strict=True)}
    visible = [file for file in files if not any(part.startswith(".") for part in parts[file])]
    images = sorted((file for file in visible if _ending(file) in IMAGE_EXTENSIONS), key=parts.__getitem__)
    if not images:
        kind, packed = _packed([file for file in visible if _ending(file) in PACKED])
        if not packed:
            raise no_image(address, "objects")
        return PACKED[kind][0](packed, name)
    if skipped := len(files) - len(images):
        log.info(f"Skipped: {skipped:,} objects that are no images.")
    label = [folder_label(parts[file]) for file in images]
    return Table.from_columns({"path": images, "label": label}, name=name, root=root)


def _base(root: Path) -> Path:
    if not root.is_dir():
        raise InputError(f"The folder {root} does not exist{suggest_path(root)}; check its name.")
    return Path(os.path.abspath(root))


def folder_label(parts: Sequence[str]) -> str:
    """Return the label of an image, by the parts of its path below the folder of all images; "" = none."""
    first = parts[0] if len(parts) > 1 else ""
    return "" if first.lower() in UNLABELLED_FOLDERS else nfc(first)


def _packed_or_none(root: Path | str, found: FolderScan) -> tuple[str, list[str]]:
    """Return what `_packed` does for a folder without images; raises InputError where it has no packed ones either."""
    if "." in found.skipped.get("unreadable folder", ()):
        raise InputError(f"The folder {root} may not be read; change its permissions.")
    kind, files = _packed(found.packed)
    if not files:
        found.report()
        raise no_image(root)
    return kind, files


def _packed(files: Sequence[str]) -> tuple[str, list[str]]:
    """Return the ending of the tars or of the Parquet files with images among some, and these; not both."""
    tars = sorted(file for file in files if _ending(file) == ".tar")
    tables = sorted(file for file in files if _ending(file) == ".parquet" and holds_images(file))
    if tars and tables:
        raise InputError(f"There are both Parquet files ({tables[0]}) and tars ({tars[0]}); name one kind.")
    return (".tar", tars) if tars else (".parquet", tables)


def _ending(file: str) -> str:
    return os.path.splitext(split_query(file)[0])[1].lower()
