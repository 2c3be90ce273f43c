"""List and clear the user's cache folder: size, age and owner of each entry."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holotype.utils.atomic import LEFTOVER, OWN_SUFFIX
from holotype.utils.locks import NO_FOLLOW, NoLocks, try_lock

TOKENS = "tokens"
"""The folder of token caches."""
TOKEN_FILE = "*.tokens"


@dataclass(frozen=True)
class CacheEntry:
    """A file or a folder that lies in the cache folder."""

    path: Path
    nbytes: int
    age: float
    """Seconds since it was last used."""
    purpose: str
    """What it is for; "" for what other programs have left there, which is never deleted."""
    held: bool
    """Whether a live process uses it; where files cannot be locked, whether one has within a day."""

    @property
    def can_go(self) -> bool:
        return bool(self.purpose) and not self.held


def list_cache(folder: Path) -> list[CacheEntry]:
    """Everything in the cache folder, the largest first. Links are named and never followed."""
    return sorted(_entries(folder), key=lambda kept: (-kept.nbytes, str(kept.path)))


def remove_cache_entry(kept: CacheEntry) -> bool:
    """Delete it unless a process has taken hold of it meanwhile; whether it is gone."""
    if not kept.purpose:
        return False
    descriptor = _open(kept.path)
    if descriptor is None:
        return not kept.path.exists()
    try:
        if not _is_free(descriptor):
            return False
        # while it is locked: whoever opens it now sees that it is gone, or keeps what it has opened
        if kept.path.is_dir():
            shutil.rmtree(kept.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # Windows: somebody has it open
                kept.path.unlink()
    finally:
        os.close(descriptor)
    return not kept.path.exists()


def _entries(folder: Path) -> Iterator[CacheEntry]:
    for place in (folder, folder / TOKENS):
        with contextlib.suppress(OSError):  # none has been made yet
            for name in sorted(os.listdir(place)):
                path = place / name
                if path != folder / TOKENS or path.is_symlink() or not path.is_dir():
                    with contextlib.suppress(FileNotFoundError):  # somebody else makes room as well
                        yield _read_entry(path, place.name == TOKENS and place != folder)


def _read_entry(path: Path, among_tokens: bool) -> CacheEntry:
    facts, purpose = path.lstat(), ""
    if OWN_SUFFIX.fullmatch(path.name):
        purpose = "half-written file"
    elif among_tokens and path.match(TOKEN_FILE):
        purpose = "token cache: spares later runs the frozen part of the network"
    if path.is_symlink():
        purpose = ""
    nbytes = _size(path) if path.is_dir() and not path.is_symlink() else facts.st_size
    return CacheEntry(
        path, nbytes, max(0.0, time.time() - facts.st_mtime), purpose, bool(purpose) and _is_locked(path)
    )


def _size(folder: Path) -> int:
    """Bytes of all files below it."""
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(inside, name)).st_size
    return total


def _is_locked(path: Path) -> bool:
    descriptor = _open(path)
    if descriptor is None:
        return True  # not ours to judge
    try:
        return not _is_free(descriptor)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | NO_FOLLOW)
    except OSError:
        return None


def _is_free(descriptor: int) -> bool:
    """Locks it, where it is; where nothing can be locked, what was used within a day counts as held."""
    try:
        return try_lock(descriptor)
    except NoLocks:
        return time.time() - os.fstat(descriptor).st_mtime > LEFTOVER
