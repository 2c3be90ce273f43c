"""Folders of links, one per category, whatever the categories and the images are called.

A link is a hard link where the file system allows it, else a symbolic one, else a copy. Nothing that is there is
ever overwritten: an image whose name is taken by another one gets a number, and one that is linked already stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from holotype.data.containers import split_container
from holotype.data.decode import ImageProblem, read_image
from holotype.errors import InputError

UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
"""What some file system does not take in a name."""
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that mean devices on Windows."""
LONGEST = 120
"""Bytes of a folder's name; file systems take 255."""


class Folders:
    """Sorts images into folders below `root`."""

    def __init__(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise InputError(f"{root} is a file, not a folder; choose another --copy-to.")
        self.root = root
        self._folder: dict[str, Path] = {}
        self._next: dict[tuple[str, str], int] = {}

    def folder(self, name: str) -> Path:
        """The folder of a category; names that look alike on disk, such as a/b and a_b, get a number."""
        if name not in self._folder:
            taken = {path.name.casefold() for path in self._folder.values()}
            safe, number = safe_name(name), 2
            while safe.casefold() in taken:
                safe, number = f"{safe_name(name)} ({number})", number + 1
            self._folder[name] = self.root / safe
        return self._folder[name]

    def add(self, path: str, name: str) -> Path:
        """Link the image at `path` into the folder of category `name`; returns where."""
        folder = self.folder(name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return self._link(path, folder)
        except OSError as error:
            raise InputError(
                f"{path} could not be linked into {folder} ({error.strerror or error}); what is there stays: choose "
                "another --copy-to, or free some space."
            ) from error

    def _link(self, path: str, folder: Path) -> Path:
        part = split_container(path)
        stem, ending = os.path.splitext(os.path.basename(path))
        if part is not None:
            stem, ending = safe_name(f"{os.path.basename(part[0])}-{part[1]}"), ".png"
        key = (str(folder), stem + ending)
        number = self._next.get(key, 1)
        while True:
            target = folder / (stem + ending if number == 1 else f"{stem} ({number}){ending}")
            if part is None and _is_same(path, target):
                return target
            if not os.path.lexists(target) and (_write(path, target) if part else _connect(path, target)):
                self._next[key] = number + 1
                return target
            number += 1


def _connect(path: str, target: Path) -> bool:
    """False where somebody else has taken the name meanwhile."""
    source = os.path.realpath(path)  # a hard link to a symbolic link would be one
    for make in (os.link, os.symlink, _copy):
        try:
            make(source, target)
            return True
        except FileExistsError:
            return False
        except OSError:
            if make is _copy:
                raise
    return False


def _copy(source: str, target: Path) -> None:
    try:
        with open(source, "rb") as here, target.open("xb") as there:
            shutil.copyfileobj(here, there)
    except FileExistsError:
        raise
    except OSError:
        with contextlib.suppress(OSError):
            target.unlink()
        raise


def _write(path: str, target: Path) -> bool:
    """An image inside a container has no file to link to, so that it is written."""
    try:
        image, _ = read_image(path)
    except ImageProblem as problem:
        raise OSError(str(problem)) from problem
    try:
        with target.open("xb") as file:
            image.save(file, format="PNG")
    except FileExistsError:
        return False
    return True


def _is_same(path: str, target: Path) -> bool:
    try:
        return os.path.samefile(path, target)
    except OSError:
        return False


def safe_name(name: str) -> str:
    """A name that every file system takes, as near to `name` as can be."""
    safe = UNSAFE.sub("_", name).strip().rstrip(". ")
    while len(safe.encode("utf-8", "replace")) > LONGEST:
        safe = safe[:-1].rstrip(". ")
    if not safe or safe.startswith(".") or RESERVED.fullmatch(safe):
        safe = f"_{safe}"
    return safe
