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
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holotype.errors import InputError
from holotype.utils.locks import NO_FOLLOW, NoLocks, is_same_file, try_lock
from holotype.utils.text import join_or

NAME_LENGTH = 40
"""Characters of a file's name that are found in the name of its part: names have at most 255 bytes."""
OWN_SUFFIX = re.compile(r"\..+\.[0-9a-f]{16}\.part", re.DOTALL)
"""Names of parts. Others know files that end in .part as well."""
DEEPEST = 4
"""Folders within folders in which a run writes: rounds/1/corrected, and one more."""
TEMPORARY = "holotype"
LEFTOVER = 24 * 3600.0
"""Seconds without a change after which a part is left-over where files cannot be locked."""

_cleaned: set[Path] = set()
"""Folders in which this process has looked for left-over parts."""


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A new, empty file in the folder of `path`, which takes its name when the block ends, and vanishes if it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    clean_partial(path.parent)
    part, descriptor = _make_partial(path)
    try:
        yield part
        with open(part, "r+b", opener=check_not_link) as file:
            os.fsync(file.fileno())
        if os.name != "posix":  # there an open file cannot be renamed
            os.close(descriptor)
            descriptor = -1
        os.replace(part, path)
        _sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


@contextmanager
def atomic_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """The same for a folder. Where somebody else has made `path` meanwhile, theirs stays, unless `replace`.

    replace: after a kill between the two renames, the next call brings back what was there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    clean_partial(path.parent)
    if replace:
        _settle_exchange(path)
    part, descriptor = _make_partial(path, folder=True)
    try:
        yield part
        if replace and path.is_dir():
            os.rename(path, _name_before(path))
        try:
            os.rename(part, path)
        except OSError:
            if replace or not path.is_dir():
                raise
        _sync_folder(path.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        if replace:
            _settle_exchange(path)
        if descriptor >= 0:
            os.close(descriptor)


def _name_before(path: Path) -> Path:
    """Where a folder lies while another one takes its place."""
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
        raise InputError(
            f"{path} could not be written ({error.strerror or error}); what was there before is untouched: "
            "free some space or choose another place, then run the same command again."
        ) from error


def refuse_existing(file: Path, overwrite: bool = False, suffixes: Sequence[str] = ()) -> None:
    """Raise InputError where a file of this name exists and may not be replaced, or has none of these endings.

    A link is replaced as such.
    """
    if suffixes and file.suffix.lower() not in suffixes:
        raise InputError(f"{file} does not end in {join_or(suffixes)}; choose a name that does.")
    if os.path.lexists(file) and not (file.is_file() or file.is_symlink()):
        raise InputError(f"{file} is not a file; choose another name.")
    if os.path.lexists(file) and not overwrite:
        raise InputError(f"{file} exists already; add --overwrite to replace it, or choose another name.")


def write_output(file: Path, write: Callable[[Path], object], *, overwrite: bool = False) -> None:
    """Write a file that a user named, as `write_beside` does; InputError where it exists, unless `overwrite`."""
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

    Links to files are replaced (`beside`), and `folder` itself may well be one: its owner has named it.
    """
    for where, names, _ in os.walk(folder):
        for name in names:
            if os.path.islink(os.path.join(where, name)):
                raise InputError(
                    f"{os.path.join(where, name)} is a link to another folder, and nothing is written through it; put "
                    "the folder itself in its place."
                )


def clean_partial(folder: Path, *, again: bool = False) -> None:
    """Remove what killed processes have left in `folder`; once a process and folder, unless `again`."""
    if folder in _cleaned and not again:
        return
    _cleaned.add(folder)
    _remove_partial(folder, "")


def _remove_partial(folder: Path, prefix: str) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(prefix) and OWN_SUFFIX.fullmatch(name):
                remove_unused(folder / name)


def clean_partial_tree(folder: Path) -> None:
    """The same in the folders of a run as well, however deep they lie there. Links are not followed."""
    top = len(folder.parts)
    for place, names, _ in os.walk(folder):
        clean_partial(Path(place), again=True)
        if len(Path(place).parts) - top >= DEEPEST:
            names.clear()


class TemporaryFolder:
    """A folder for this process alone, gone with `cleanup`, the object, or a `with` block.

    What a killed process left of its own is swept away by the next one that makes one.
    """

    def __init__(self) -> None:
        place = Path(tempfile.gettempdir())
        _remove_partial(place, f".{TEMPORARY}.")
        self.path, descriptor = _make_partial(place / TEMPORARY, folder=True, mode=0o700)
        self._end = weakref.finalize(self, _remove_created, self.path, descriptor)

    def cleanup(self) -> None:
        self._end()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _remove_created(path: Path, descriptor: int) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if descriptor >= 0:
        os.close(descriptor)


def _make_partial(path: Path, *, folder: bool = False, mode: int = 0o777) -> tuple[Path, int]:
    """A new file or folder beside `path`, and its descriptor, which is locked where that can be.

    mode: of a folder, less what the user takes off.
    """
    while True:
        part = path.with_name(f".{path.name[:NAME_LENGTH]}.{secrets.token_hex(8)}.part")
        try:
            if folder:
                part.mkdir(mode)
                # elsewhere a folder cannot be opened, nor locked
                descriptor = os.open(part, os.O_RDONLY | NO_FOLLOW) if os.name == "posix" else -1
            else:
                descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o666)
        except FileExistsError:  # a link counts: nothing is ever written through it
            continue
        try:
            with contextlib.suppress(NoLocks):
                if not (try_lock(descriptor) and is_same_file(descriptor, part)):
                    os.close(descriptor)  # somebody who swept was faster than the lock
                    continue
        except BaseException:
            os.close(descriptor)
            raise
        return part, descriptor


@contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Lock a file or folder for the time of a block; yield whether nobody else uses it.

    Where nothing can be locked, what has not changed for a day is unused. What cannot be opened (it is gone, a link, or
    somebody else's) is not for us to judge.
    """
    try:
        descriptor = os.open(path, (os.O_RDONLY if path.is_dir() else os.O_RDWR) | NO_FOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            free = try_lock(descriptor)
        except NoLocks:
            free = time.time() - os.fstat(descriptor).st_mtime > LEFTOVER
        yield free
    finally:
        os.close(descriptor)


def remove_unused(path: Path) -> None:
    """Delete a file or folder that nobody uses, while it is locked: whoever has just made it sees that it is gone."""
    with claimed(path) as free:
        if free and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif free:
            with contextlib.suppress(OSError):  # Windows: somebody has it open
                path.unlink()


def check_not_link(path: str, flags: int) -> int:
    """An opener of files, which fails where the last part of the path is a link."""
    return os.open(path, flags | NO_FOLLOW)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
