"""The images below a folder, and a line about everything else that lies there: nothing is left out without a word."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from holotype.data.columns import is_utf8
from holotype.data.kinds import IMAGE_EXTENSIONS, what_to_install

SORTED = ".holotype-folders.json"
"""In a folder of images that Holotype wrote (placing/folders.py): which file was made of which image."""
UNREADABLE, REJECTED = "_unreadable", "_rejected"
"""Folders in such a one, of images without a category."""
OWN = {
    "identity.json": "backbone",
    "discovery.json": "run_id",
    "model.json": "backbone",
    "manifest.json": "images_per_shard",
    "thumbs.json": "thumbs",
    SORTED: "files",
}
"""Files by which a folder that a run wrote is known, with a key that each must have: others use such names too."""
TABLES = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".xml", ".xlsx", ".yaml", ".yml")
"""Lists of images and of labels, which nobody takes for images."""
PACKED = (".parquet", ".tar")
"""Files that may hold images."""
SYSTEM = frozenset(
    (
        *("__macosx", "@eadir", "#recycle", "$recycle.bin", "system volume information", "lost+found"),
        *("thumbs.db", "ehthumbs.db", "desktop.ini"),
    )
)
"""Files and folders, in small letters, that systems leave beside images: previews, bins, settings."""
MOST_NAMED = 6
"""Endings and folders that the line names; the others are counted."""


@dataclass
class Walked:
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
        named = [_files(ending, n) for ending, n in self.passed.most_common(MOST_NAMED)]
        rest = self.passed.most_common()[MOST_NAMED:]
        if rest:
            named.append(f"{sum(n for _, n in rest):,} files of {len(rest)} other endings")
        named += _folders("the run folder", "the run folders", self.runs)
        named += _folders("the folder", "the folders", self.apart)
        named += _folders("the unreadable folder", "the unreadable folders", self.closed)
        named += _folders("the non-UTF-8 name", "the non-UTF-8 names", self.misnamed)
        named += _folders("the pipe or device", "the pipes or devices", self.endless)
        return f"Skipped: {', '.join(named)}." if named else ""


def walk(base: Path) -> Walked:
    """Look at everything below `base`. Hidden files and those of the system are skipped, links are followed once.

    A run folder is not looked into, unless it is `base` itself: its thumbnails are no images of anybody's. In a folder
    that was sorted by a run, what lies in no category stays out: what people have rejected is no class.
    """
    found = Walked()
    found.images.extend(images_below(base, found))
    return found


def images_below(base: Path, found: Walked) -> Iterator[Path]:
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


def _entries(folder: str, base: str, found: Walked, seen: set[str]) -> list[str]:
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
    if folder != base and is_own(folder, [name for name, kind in kinds.items() if kind == "file"]):
        found.runs.append(os.path.relpath(folder, base))
        return []
    entered = []
    is_sorted = folder == base and SORTED in kinds and is_own(folder, [SORTED])
    for name in sorted(kinds):
        path = os.path.join(folder, name)
        if not is_utf8(name):
            found.misnamed.append(os.path.relpath(path, base))
        elif _is_hidden(name):
            continue
        elif kinds[name] == "endless":
            found.endless.append(os.path.relpath(path, base))
        elif kinds[name] == "folder" and is_sorted and name in (UNREADABLE, REJECTED):
            found.apart.append(name)
        elif kinds[name] == "folder":
            entered.append(path + os.sep)
        elif name.lower().endswith(IMAGE_EXTENSIONS):
            entered.append(path)
        else:
            _pass_over(path, name, found)
    return entered


def _kind(entry: os.DirEntry[str]) -> Literal["folder", "file", "endless"]:
    """A link is what it leads to; one that leads nowhere is a file, of which is said later that it is not there."""
    try:
        if entry.is_dir():
            return "folder"
        return "file" if entry.is_file() or not os.path.exists(entry.path) else "endless"
    except OSError:  # a link that leads round in a circle
        return "file"


def _pass_over(path: str, name: str, found: Walked) -> None:
    if name.lower().endswith(PACKED):
        found.packed.append(Path(path))
    if not name.lower().endswith(TABLES):
        found.passed[os.path.splitext(name)[1].lower()] += 1


def is_own(folder: str, names: Sequence[str]) -> bool:
    """Was this folder, in which files of these names lie, written by a run?"""
    for name in names:
        if name in OWN:
            try:
                content = json.loads(Path(folder, name).read_bytes())
            except (OSError, ValueError):
                continue
            if isinstance(content, dict) and OWN[name] in content:
                return True
    return False


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in SYSTEM


def _files(ending: str, n: int) -> str:
    what = f"{n:,} {ending} file" if ending else f"{n:,} file"
    told = what + ("" if n == 1 else "s") + ("" if ending else " without an ending")
    wanted = what_to_install(ending)
    return f"{told} (install {wanted})" if wanted else told


def _folders(one: str, several: str, names: list[str]) -> list[str]:
    shown = [name.encode("utf-8", "replace").decode() for name in sorted(names)[:MOST_NAMED]]
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    told = f"{one if len(names) == 1 else several} {' and '.join(shown)}{more}"
    return [told] if names else []
