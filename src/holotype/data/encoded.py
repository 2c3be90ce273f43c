"""The bytes of an image that is no file of its own here: inside a Parquet file or a tar, or in a store."""

from __future__ import annotations

import io
from collections.abc import Callable

from holotype.data.addresses import is_address, split_inside
from holotype.data.readers.parquet import read_row
from holotype.data.readers.tars import read_member
from holotype.data.stores import read_whole

READ: dict[str, Callable[[str, str], bytes]] = {"parquet": read_row, "tar": read_member}
"""Kind of a file with images inside to what reads one of them."""


def encoded(path: str) -> bytes | None:
    """The bytes, as a file would hold them; None for an image that is a file of its own. Raises StoreProblem.

    path: without a box.
    """
    if inside := split_inside(path):
        kind, file, key = inside
        return READ[kind](file, key)
    return read_whole(path) if is_address(path) else None


def readable(path: str) -> str | io.BytesIO:
    """What Pillow opens: the path of a file, or its bytes."""
    content = encoded(path)
    return path if content is None else io.BytesIO(content)
