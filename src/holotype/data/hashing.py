"""Bytes, content digests and file stamps of images.

Reading every file takes time, so that size and time of change are hints: a file in which neither has
changed is not read again.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence

from holotype.data.boxes import split_box
from holotype.data.image_files import ArchiveProblem, file_of, read_array, split_archive
from holotype.data.paths import is_address, split_member
from holotype.data.readers.parquet import read_row
from holotype.data.readers.webdataset import read_member
from holotype.data.storage import StorageError, read_object, remote_stamp
from holotype.utils.device import thread_map

DIGEST_BYTES = 16
"""Of a digest: among a thousand million pictures no two share one by chance."""

FileStamp = tuple[str, str]
"""Stamp and digest of an image."""


def read_image_bytes(path: str) -> bytes | None:
    """Read an image in a Parquet file, a tar or a store; None for one that is a file of its own. Raises StorageError.

    path: without a box.
    """
    if inside := split_member(path):
        kind, file, key = inside
        return read_row(file, key) if kind == "parquet" else read_member(file, key)
    return read_object(path) if is_address(path) else None


def open_image_bytes(path: str) -> str | io.BytesIO:
    """Return what Pillow opens: the path of a file, or its bytes."""
    content = read_image_bytes(path)
    return path if content is None else io.BytesIO(content)


def image_digests(
    paths: Sequence[str], stamp: Sequence[str], known: Sequence[FileStamp | None], progress: bool = False
) -> list[str]:
    """Return (n,) hexadecimal, "" for a file that cannot be read. paths: "file", "file#index", or with a box.

    stamp: (n,) of the files as they are. known: (n,) what was written down of each the last time.
    """
    found = [
        mark[1] if mark is not None and mark[0] == now else "" for now, mark in zip(stamp, known, strict=True)
    ]
    unread = [row for row, digest in enumerate(found) if not digest]
    parts = [split_box(paths[row]) for row in unread]
    files = list(dict.fromkeys(file for file, _ in parts))  # a picture is read once for all its boxes
    read = dict(zip(files, thread_map(file_digest, files, "Reading images", progress), strict=True))
    for row, (file, box) in zip(unread, parts, strict=True):
        found[row] = read[file]
        if box is not None and read[file]:
            part = f"{read[file]}{box.ending}".encode()
            found[row] = hashlib.blake2b(part, digest_size=DIGEST_BYTES).hexdigest()
    return found


def file_digest(path: str) -> str:
    """Return the digest of a file's bytes, or of the pixels of an image in a container; "" where it cannot be read."""
    total = hashlib.blake2b(digest_size=DIGEST_BYTES)
    try:
        if part := split_archive(path):
            pixels = read_array(*part)
            total.update(f"{pixels.shape} {pixels.dtype} ".encode() + pixels.tobytes())
        elif (content := read_image_bytes(path)) is not None:  # the same as a file with these bytes has
            total.update(content)
        else:
            with open(path, "rb") as stream:
                hashlib.file_digest(stream, lambda: total)
    except (OSError, ValueError, ArchiveProblem, StorageError):
        return ""
    return total.hexdigest()


def file_stamps(paths: Sequence[str]) -> list[str]:
    """Return "size-mtime_ns" of each image's file, "" where it is gone; "file#index" has that of the container.

    Raises StorageError where a store does not answer: what it holds is not gone.
    """
    files = [file_of(path) for path in paths]
    stamp = {file: remote_stamp(file) for file in dict.fromkeys(files)}
    return [stamp[file] for file in files]
