"""Paths of images as seen from the root of their collection, so that a folder that was moved holds the same images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from holotype.data.addresses import is_address, split_query, with_query


@dataclass(frozen=True)
class Paths:
    """The images of a source one after the other, for whoever has no room for all of them. Gone through once."""

    root: str
    """As Table.root."""
    each: Iterator[str]
    """As Table.path, in the same order."""


def relative(paths: Iterable[str], root: str) -> list[str]:
    """Paths as seen from the root, with slashes, as Table.fingerprint sees them; as they are where there is no root.

    An address (addresses.py) is seen from the root where it begins with it, and stays as it is elsewhere."""
    if not root:
        return list(paths)
    if is_address(root):
        return [_below(path, root) for path in paths]
    return [path if is_address(path) else os.path.relpath(path, root).replace(os.sep, "/") for path in paths]


def absolute(path: str, root: str) -> str:
    """The inverse for one path."""
    if is_address(path) or not root:
        return path
    if is_address(root):
        bare, query = split_query(root)
        return with_query(f"{bare.rstrip('/')}/{path}", query)
    return os.path.normpath(os.path.join(root, path))


def in_quotes(path: str) -> str:
    """A path that somebody wrote, for a sentence: as repr, but with Windows' backslashes as they stand."""
    return repr(path).replace("\\\\", "\\")


def _below(path: str, root: str) -> str:
    bare, query = split_query(root)
    start = bare.rstrip("/") + "/"
    if not path.startswith(start):
        return path
    rest = path[len(start) :]
    return rest.replace(f"?{query}", "", 1) if query else rest
