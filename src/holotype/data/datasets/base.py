"""Base of a data set: its class split, and the listing that a layout returns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holotype.data.image_files import split_index
from holotype.errors import InputError


class MissingFile(Exception):
    """A file or folder that the data set must have is not there: its path."""


@dataclass(frozen=True)
class ClassSplit:
    """Which classes are known and which novel, as indices into the data set's class order."""

    known: tuple[int, ...]
    """Known classes; the order is that of the training labels."""
    novel: tuple[int, ...]
    folders: tuple[str, ...] = ()
    """Folder of each class, where the data set is a choice of classes from a larger one (ImageNet-100)."""
    names: tuple[str, ...] = ()
    """Name of each class, where its folder is only a code."""


@dataclass(frozen=True)
class SplitListing:
    """The training or the test images, in the data set's own order."""

    path: list[str]
    label: list[int]
    """Class index of each image."""

    def absent(self) -> list[str]:
        """Return the files that are not on disk. Every folder is read once, which is faster than asking per file."""
        files = list(dict.fromkeys((split_index(path) or (path,))[0] for path in self.path))
        folders = {os.path.dirname(file) for file in files}
        present = {folder: set(os.listdir(folder)) for folder in folders if os.path.isdir(folder)}
        return [
            file for file in files if os.path.basename(file) not in present.get(os.path.dirname(file), ())
        ]


@dataclass(frozen=True)
class Listing:
    """A data set as its own files describe it."""

    root: Path
    """Folder that the images lie in."""
    classes: tuple[str, ...]
    """Class names by class index."""
    train: SplitListing
    test: SplitListing | None
    """None where the data set, or this copy of it, has no list of test images."""


def find_root(root: Path, folders: Sequence[str], marker: str) -> Path:
    """Return the first of root/folder, ..., root that has `marker` in it."""
    candidates = [root / folder for folder in folders] + [root]
    for base in candidates:
        if (base / marker).exists():
            return base
    raise MissingFile(candidates[0] / marker)


def require(path: Path) -> Path:
    """Return the path itself, which must exist."""
    if not path.exists():
        raise MissingFile(path)
    return path


def read_text_lines(file: Path) -> list[str]:
    """Return the non-empty lines of a text file."""
    try:
        text = require(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 text, so it may be damaged; get it again.") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def read_pairs(file: Path) -> list[tuple[str, str]]:
    """Return the lines "key text" in the file's order."""
    rows = [line.partition(" ") for line in read_text_lines(file)]
    return [(key, text.strip()) for key, _, text in rows]
