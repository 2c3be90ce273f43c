"""Bytes of an image that is not a file of its own: in a Parquet file, a tar or remote storage."""

from __future__ import annotations

import io
from collections.abc import Callable

from holotype.data.readers.parquet import read_row
from holotype.data.readers.webdataset import read_member
from holotype.data.storage import is_address, read_file, split_member

BYTE_READERS: dict[str, Callable[[str, str], bytes]] = {"parquet": read_row, "tar": read_member}
"""Kind of a file with images inside to what reads one of them."""


def read_image_bytes(path: str) -> bytes | None:
    """The bytes, as a file would hold them; None for an image that is a file of its own. Raises StoreProblem.

    path: without a box.
    """
    if inside := split_member(path):
        kind, file, key = inside
        return BYTE_READERS[kind](file, key)
    return read_file(path) if is_address(path) else None


def open_image_bytes(path: str) -> str | io.BytesIO:
    """What Pillow opens: the path of a file, or its bytes."""
    content = read_image_bytes(path)
    return path if content is None else io.BytesIO(content)
