"""The images below a folder, and a line about everything else that lies there: nothing is left out without a word."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holotype.data.columns import is_utf8
from holotype.data.kinds import IMAGE_EXTENSIONS, what_to_install

OWN = {
    "identity.json": "backbone",
    "discovery.json": "run_id",
    "model.json": "backbone",
    "manifest.json": "images_per_shard",
    "thumbs.json": "thumbs",
    ".holotype-folders.json": "folders",
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
    closed: list[str] = field(default_factory=list)
    """Folders that may not be read."""
    misnamed: list[str] = field(default_factory=list)
    """Files and folders whose names are not valid UTF-8: no table can hold them."""

    def words(self) -> str:
        """What was passed over, in one line; "" = nothing."""
        named = [_files(ending, n) for ending, n in self.passed.most_common(MOST_NAMED)]
        rest = self.passed.most_common()[MOST_NAMED:]
        if rest:
            named.append(f"{sum(n for _, n in rest):,} files of {len(rest)} other endings")
        named += _folders("the run folder", "the run folders", self.runs)
        named += _folders("the unreadable folder", "the unreadable folders", self.closed)
        named += _folders("the non-UTF-8 name", "the non-UTF-8 names", self.misnamed)
        return f"Passed over: {', '.join(named)}." if named else ""


def walk(base: Path) -> Walked:
    """Look at everything below `base`. Hidden files and those of the system are skipped, links are followed once.

    A run folder is not looked into, unless it is `base` itself: its thumbnails are no images of anybody's.
    """
    found, seen = Walked(), set()

    def below(path: str) -> str:
        return os.path.relpath(path, base)

    def refused(error: OSError) -> None:
        found.closed.append(below(str(error.filename)))

    for folder, folders, names in os.walk(base, followlinks=True, onerror=refused):
        real = os.path.realpath(folder)
        if real in seen:  # a link that leads back up would be walked for ever
            folders.clear()
            continue
        seen.add(real)
        if folder != str(base) and is_own(folder, names):
            found.runs.append(below(folder))
            folders.clear()
            continue
        bad = [name for name in (*folders, *names) if not is_utf8(name)]
        found.misnamed += [below(os.path.join(folder, name)) for name in bad]
        folders[:] = sorted(f for f in folders if not _is_hidden(f) and f not in bad)
        for name in names:
            if _is_hidden(name) or name in bad:
                continue
            if name.lower().endswith(IMAGE_EXTENSIONS):
                found.images.append(Path(folder, name))
                continue
            if name.lower().endswith(PACKED):
                found.packed.append(Path(folder, name))
            if not name.lower().endswith(TABLES):
                found.passed[os.path.splitext(name)[1].lower()] += 1
    return found


def is_own(folder: str, names: Sequence[str]) -> bool:
    """Was this folder, in which files of these names lie, written by a run?"""
    for name in names:
        if name in OWN:
            try:
                content = json.loads(Path(folder, name).read_bytes())
            except (OSError, ValueError, RecursionError):
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
