"""Atomic file writes: a kill or a full disk leaves either the old content or the new one.

The new content is written beside the old one, under a name that nobody else has, and then renamed. So any number of
threads and processes may write one file at once: one of them is the last. Where the name is that of a symbolic link,
the link is replaced, not what it points to. What a killed process left is swept away by the next one that writes in the
folder: a file that is being written is locked, so that one without a lock is left-over.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holotype.errors import InputError
from holotype.utils.locks import NO_FOLLOW, NoLocks, check_not_link, try_lock
from holotype.utils.text import join_or

NAME_LENGTH = 40
"""Characters of a file's name that are found in the name of its part: names have at most 255 bytes."""
OWN_SUFFIX = re.compile(r"\..+\.[0-9a-f]{16}\.part", re.DOTALL)
"""Names of parts. Others know files that end in .part as well."""
LEFTOVER = 24 * 3600.0
"""Seconds without a change after which a part is left-over where files cannot be locked."""

_cleaned: set[Path] = set()
"""Folders in which this process has looked for left-over parts."""


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a new, empty file in the folder of `path`, which takes its name when the block ends; it vanishes if the
    block fails."""
    with _locked_part(path, folder=False) as (part, unlock):
        yield part
        with open(part, "r+b", opener=check_not_link) as file:
            os.fsync(file.fileno())
        if os.name != "posix":  # there an open file cannot be renamed
            unlock()
        os.replace(part, path)
        _sync_folder(path.parent)


@contextmanager
def atomic_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield the same for a folder. Where somebody else has made `path` meanwhile, theirs stays, unless `replace`.

    replace: after a kill between the two renames, the next call brings back what was there.
    """
    if replace:
        _settle_exchange(path)
    with _locked_part(path, folder=True) as (part, _):
        yield part
        try:
            if replace and path.is_dir():
                os.rename(path, _name_before(path))
            os.rename(part, path)
        except OSError:
            if replace or not path.is_dir():
                raise
        finally:
            if replace:
                _settle_exchange(path)
        _sync_folder(path.parent)


def _name_before(path: Path) -> Path:
    """Return where a folder lies while another one takes its place."""
    key = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    return path.with_name(f".{path.name[:NAME_LENGTH]}.{key}.before")


def _settle_exchange(path: Path) -> None:
    """Bring back the folder that was to be replaced where there is no new one; else delete it."""
    before = _name_before(path)
    if path.is_dir():
        shutil.rmtree(before, ignore_errors=True)
    elif before.is_dir():
        os.rename(before, path)


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, then fsync it and rename it into place."""
    try:
        with atomic_path(path) as part:
            write(part)
    except OSError as error:
        problem = f"{path} could not be written ({error.strerror or error}); what was there is untouched"
        raise InputError(f"{problem}: free some space, then run the same command again.") from error


def refuse_existing(file: Path, overwrite: bool = False, suffixes: Sequence[str] = ()) -> None:
    """Raise InputError where a file of this name exists and may not be replaced, or has none of these endings.

    A link is replaced as such.
    """
    if suffixes and file.suffix.lower() not in suffixes:
        raise InputError(f"{file} does not end in {join_or(suffixes)}; choose a name that does.")
    if not os.path.lexists(file):
        return
    if not (file.is_file() or file.is_symlink()):
        raise InputError(f"{file} is not a file; choose another name.")
    if not overwrite:
        raise InputError(f"{file} exists already; add --overwrite to replace it, or choose another name.")


def write_output(file: Path, write: Callable[[Path], object], *, overwrite: bool = False) -> None:
    """Write a file that a user named, as `atomic_write` does; InputError where it exists, unless `overwrite`."""
    refuse_existing(file, overwrite)

    def write_and_look(part: Path) -> None:
        write(part)
        refuse_existing(file, overwrite)  # this may have taken hours

    atomic_write(file, write_and_look)


def write_bytes(path: Path, content: bytes) -> None:
    atomic_write(path, lambda part: part.write_bytes(content))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def refuse_links(folder: Path) -> None:
    """Raise InputError where a folder below `folder` is a link: what is written there would land somewhere else.

    Links to files are replaced (`atomic_path`), and `folder` itself may well be one: its owner has named it.
    """
    for where, names, _ in os.walk(folder):
        for path in (os.path.join(where, name) for name in names):
            if os.path.islink(path):
                raise InputError(f"{path} is a link to another folder; put the folder itself in its place.")


def clean_partial(folder: Path, *, again: bool = False) -> None:
    """Remove what killed processes have left in `folder`; once a process and folder, unless `again`."""
    if folder in _cleaned and not again:
        return
    _cleaned.add(folder)
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if OWN_SUFFIX.fullmatch(name):
                remove_unused(folder / name)


def clean_partial_tree(folder: Path) -> None:
    """Remove the same in all folders of a run. Links are not followed."""
    for place, _, _ in os.walk(folder):
        clean_partial(Path(place), again=True)


@contextmanager
def _locked_part(path: Path, *, folder: bool) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield a new file or folder beside `path`, locked where that can be, and what unlocks it; what is left of it at
    the end goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clean_partial(path.parent)
    with contextlib.ExitStack() as descriptors:
        part = _make_partial(path, folder, descriptors)
        try:
            yield part, descriptors.close
        finally:
            if folder:
                shutil.rmtree(part, ignore_errors=True)
            with contextlib.suppress(OSError):
                part.unlink()


def _make_partial(path: Path, folder: bool, descriptors: contextlib.ExitStack) -> Path:
    while True:
        part = path.with_name(f".{path.name[:NAME_LENGTH]}.{secrets.token_hex(8)}.part")
        with contextlib.suppress(FileExistsError):  # a link counts: nothing is ever written through it
            if folder:
                part.mkdir()
                if os.name != "posix":  # there a folder cannot be opened, nor locked
                    return part
            flags = os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
            descriptor = os.open(part, flags | NO_FOLLOW, 0o666)
            descriptors.callback(os.close, descriptor)
            try:
                if try_lock(descriptor) and os.fstat(descriptor).st_nlink:
                    return part  # else somebody who swept was faster than the lock
            except NoLocks:
                return part


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Lock a file or folder for the time of a block; yield whether nobody else uses it.

    Where nothing can be locked, what has not changed for a day is unused. What cannot be opened (it is gone, a link, or
    somebody else's) is not for us to judge.
    """
    with contextlib.ExitStack() as descriptors:
        try:
            descriptor = os.open(path, (os.O_RDONLY if path.is_dir() else os.O_RDWR) | NO_FOLLOW)
            descriptors.callback(os.close, descriptor)
            free = try_lock(descriptor)
        except NoLocks:
            free = time.time() - os.fstat(descriptor).st_mtime > LEFTOVER
        except OSError:
            free = False
        yield free


def remove_unused(path: Path) -> None:
    """Delete a file or folder that nobody uses, while it is locked: whoever has just made it sees that it is gone."""
    with claimed(path) as free:
        if free and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif free:
            with contextlib.suppress(OSError):  # Windows: somebody has it open
                path.unlink()


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can do that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
