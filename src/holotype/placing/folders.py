"""Folders of links, one per category, whatever the categories and the images are called.

A link is a hard link where the file system allows it, else a symbolic one, else a copy. Nothing that is there is
ever overwritten: an image whose name is taken by another one gets a number, and one that is linked already stays.
"""

from __future__ import annotations

import errno
import filecmp
import os
import re
import shutil
import stat
from functools import lru_cache
from itertools import count, takewhile
from pathlib import Path

from holotype.data.addresses import split_inside, split_query
from holotype.data.boxes import split_box
from holotype.data.containers import has_own_file, split_container
from holotype.data.decode import ImageProblem, read_image
from holotype.data.pictures import encoded
from holotype.errors import InputError
from holotype.machine.files import beside, refuse_links

UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]|\.\.+')
"""What some file system does not take in a name, and what would lead out of a folder."""
RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that mean devices on Windows."""
LONGEST = 120
"""Bytes of a folder's name, and of a file's without its ending and its number; file systems take 255."""
FORMATS = dict.fromkeys((".jpg", ".jpeg", ".jpe", ".jfif"), "JPEG")
"""Of boxes, by the ending of their pictures; others become PNG."""
QUALITY = 95
UNLINKABLE = (
    *(errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK),
    *(errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL),
)
"""What a system answers that makes no links of this kind here; EINVAL: Windows, of a user without the right."""
HARD, SYMBOLIC, COPY = "hard link", "symbolic link", "copy"
"""What an image becomes in a folder."""


class Folders:
    """Sorts images into folders below `root`."""

    def __init__(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise InputError(f"{root} is a file, not a folder; choose another --copy-to.")
        refuse_links(root)
        self.root = root
        self._folder: dict[str, Path] = {}
        self._there: dict[Path, list[Path]] = {}
        """First name that a file may have to those of name.jpg, name (2).jpg, ... that an earlier command made."""
        self._next: dict[Path, int] = {}
        self._given: set[Path] = set()
        """Files that images of this command have."""

    def folder(self, name: str) -> Path:
        """The folder of a category; names that look alike on disk, such as a/b and a_b, get a number."""
        if name not in self._folder:
            taken = {path.name.casefold() for path in self._folder.values()}
            self._folder[name] = self.root / free_name(safe_name(name), taken)
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
        stem, ending = file_name(path)
        first = folder / (stem + ending)
        if first not in self._there:
            names = (folder / numbered(stem, ending, number) for number in count(1))
            self._there[first] = list(takewhile(os.path.lexists, names))
        there = self._there[first]
        if (same := next((target for target in there if is_same(path, target)), None)) is not None:
            there.remove(same)  # another image with the same content has a file of its own
            self._given.add(same)
            return same
        number = self._next.get(first, 1)
        while True:
            target = folder / numbered(stem, ending, number)
            number += 1
            if self._placed(path, target, there):
                self._next[first] = number
                self._given.add(target)
                return target

    def _placed(self, path: str, target: Path, there: list[Path]) -> bool:
        """Is the image at `target` now? The same command, started twice, may have put it there in the meantime."""
        try:
            place(path, target)
        except FileExistsError:
            return target not in there and target not in self._given and is_same(path, target)
        return True


def place(path: str, target: Path, *, copy: bool = False) -> str:
    """Make `target` the image at `path`, and return what it became: HARD, SYMBOLIC or COPY.

    An image inside a container has no file to link to: it is written as PNG; a box as what lies in it, as JPEG where
    the picture is one. Raises FileExistsError where the name is taken, and OSError where nothing could be written; then
    nothing was.
    """
    if is_part(path):
        _write(path, target)
        return COPY
    source = real(path)  # a hard link to a symbolic link would be one
    for kind, make in ((HARD, os.link), (SYMBOLIC, os.symlink)):
        if copy:
            break
        try:
            make(source, target)
            return kind
        except OSError as error:
            if (
                error.errno not in UNLINKABLE
            ):  # a fault of the disk is told, and the next try makes a link again
                raise
    _copy(source, target)
    return COPY


def real(path: str) -> str:
    """The path without symbolic links. As os.path.realpath, but a folder with many images is looked up once."""
    folder, name = os.path.split(os.path.abspath(path))
    here = os.path.join(_real_folder(folder), name)
    return os.path.realpath(here) if os.path.islink(here) else here


@lru_cache(maxsize=4096)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


def _copy(source: str, target: Path) -> None:
    """The file with its times, which tell later whether somebody has changed it."""
    _check_free(target)
    with beside(target) as part:
        shutil.copyfile(source, part)
        there = os.stat(source)
        os.utime(part, ns=(there.st_atime_ns, there.st_mtime_ns))
        _reserve(target)


def _write(path: str, target: Path) -> None:
    _check_free(target)
    content = _content(path, target)
    with beside(target) as part:
        part.write_bytes(content)
        _reserve(target)


def _content(path: str, target: Path) -> bytes:
    """Of the file that a part of a file becomes."""
    try:
        image, _ = read_image(path)
    except ImageProblem as problem:
        raise OSError(str(problem)) from problem
    return encoded(image, FORMATS.get(target.suffix.lower(), "PNG"), quality=QUALITY)


def _check_free(target: Path) -> None:
    """Before the work: links find out by themselves."""
    if os.path.lexists(target):
        raise FileExistsError(f"{target} is there already")


def _reserve(target: Path) -> None:
    """Take a name that nobody has; what was written beside replaces the empty file. Raises FileExistsError."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def is_same(path: str, target: Path) -> bool:
    """Is `target` what `place` has made of the image at `path`: a link to it, or a copy of what it holds?"""
    try:
        if is_part(path):
            return target.read_bytes() == _content(path, target)
        if os.path.samefile(path, target):
            return True
        there = os.lstat(target)
        copied = stat.S_ISREG(there.st_mode) and there.st_nlink == 1  # else it is a link to another image
        return copied and filecmp.cmp(path, target, shallow=False)
    except OSError:
        return False


# -- names --------------------------------------------------------------------------------------------


def safe_name(name: str) -> str:
    """A name that every file system takes, as near to `name` as can be."""
    safe = UNSAFE.sub("_", name).strip().rstrip(". ")
    while len(safe.encode("utf-8", "replace")) > LONGEST:
        safe = safe[:-1].rstrip(". ")
    if not safe or safe.startswith(".") or RESERVED.fullmatch(safe):
        safe = f"_{safe}"
    return safe


def file_name(path: str) -> tuple[str, str]:
    """Stem and ending of the file that an image gets, both safe."""
    path, box = split_box(path)
    told = " box " + "-".join(f"{100 * value:.0f}" for value in (box.x, box.y, box.w, box.h)) if box else ""
    if part := split_container(path):
        return safe_name(f"{os.path.basename(part[0])}-{part[1]}{told}"), ".png"
    if inside := split_inside(path):
        file = os.path.basename(split_query(inside[1])[0])
        return safe_name(f"{os.path.splitext(file)[0]}-{inside[2]}{told}"), ".png"
    stem, ending = os.path.splitext(os.path.basename(split_query(path)[0]))
    if box and ending.lower() not in FORMATS:
        ending = ".png"
    return safe_name(stem + told), UNSAFE.sub("_", ending).rstrip(". ")


def is_part(path: str) -> bool:
    """Is an image only a part of its file, or no file here, so that there is nothing to link to?"""
    return split_box(path)[1] is not None or not has_own_file(path)


def numbered(stem: str, ending: str, number: int) -> str:
    """name.jpg, name (2).jpg, ..."""
    return stem + ending if number == 1 else f"{stem} ({number}){ending}"


def free_name(name: str, taken: set[str]) -> str:
    """The name, or the first one with a number that is not taken. taken: in the spelling of str.casefold."""
    number = 1
    while numbered(name, "", number).casefold() in taken:
        number += 1
    return numbered(name, "", number)
