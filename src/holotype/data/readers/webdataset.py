"""Read tars as WebDataset packs them: 0001.jpg, 0001.cls, 0002.jpg, ...

An image is written shard.tar#key, where the key is its name in the tar without the ending. A tar is gone through once,
from head to head, to learn where its images lie; each is then read from its place.
"""

from __future__ import annotations

import json
import logging
import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock

from holotype.data.image_files import IMAGE_EXTENSIONS, no_image
from holotype.data.paths import Paths, common_root
from holotype.data.storage import StorageError, read_part, remote_stamp, stream_file
from holotype.data.table import Table

LABEL_SUFFIXES = (".cls", ".json", ".txt")
"""Files beside an image that may hold its label; the first that does counts."""
BLOCK = 512
LARGEST_LABEL = 1 << 20
"""Bytes of a file beside an image."""
LONGEST = 64
"""Letters of a label in a .txt file; a longer one is a caption."""

log = logging.getLogger("holotype")

MemberPlace = tuple[int, int]
"""Offset and size."""


@dataclass
class TarIndex:
    """What lies where in a tar."""

    images: dict[str, MemberPlace] = field(default_factory=dict)
    """Key to place, in the order of the tar."""
    beside: dict[str, MemberPlace] = field(default_factory=dict)
    """Name to place of files that may hold a label."""


_lock = Lock()


def tar_index(file: str) -> TarIndex:
    """Return the places of a tar's images; it is gone through once as long as it does not change."""
    stamp = remote_stamp(file)
    with _lock:  # threads ask for images of one tar: one of them goes through it for all
        return _index(file, stamp)


@lru_cache(maxsize=4096)
def _index(file: str, stamp: str) -> TarIndex:
    if not stamp:
        raise StorageError(f"{file} does not exist; check the address.")
    found = TarIndex()
    with stream_file(file) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                while (member := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all
                    if member.isreg():
                        _note(found, member.name, (member.offset_data, member.size))
                end: int = tar.offset
                stream.seek(end)
                whole = stream.read(BLOCK) == bytes(BLOCK)  # every tar ends so, and tarfile does not mind
        except tarfile.TarError as error:
            raise StorageError(f"{file} is no tar, or cut off ({error}); copy it again.") from error
    if not whole:
        raise StorageError(f"{file} is cut off or damaged after {len(found.images):,} images; copy it again.")
    return found


def _note(found: TarIndex, name: str, place: MemberPlace) -> None:
    name = name.removeprefix("./")
    stem, ending = os.path.splitext(name)
    if os.path.basename(name).startswith("."):
        return
    if ending.lower() in IMAGE_EXTENSIONS:
        found.images[name if stem in found.images else stem] = place
    elif ending.lower() in LABEL_SUFFIXES and place[1] <= LARGEST_LABEL:
        found.beside[name] = place


def read_member(file: str, key: str) -> bytes:
    """Return the bytes of the image with this key."""
    place = tar_index(file).images.get(key)
    if place is None:
        raise StorageError(f"{file} has no image {key!r}; check the key.")
    content = read_part(file, *place)
    if len(content) < place[1]:
        raise StorageError(f"{file} is cut off in the middle of {key!r}; copy it again.")
    return content


def read_webdataset(files: Sequence[str], name: str) -> Table:
    """Return every image of some tars, with the label of its .cls, .json (its field `label`) or .txt file.

    files: absolute paths or addresses.
    """
    path, label = [], []
    for file in files:
        index = tar_index(file)
        path += [f"{file}#{key}" for key in index.images]
        label += [_label(file, index, key) for key in index.images]
    if not path:
        raise no_image(files[0])
    if captions := label.count(None):
        log.info(f"{captions:,} texts beside images are too long for a label, and count as captions.")
    columns = {"path": path, "label": [text or "" for text in label]}
    return Table.from_columns(columns, name=name, root=common_root(files))


def stream_webdataset(files: Sequence[str]) -> Paths:
    """Return the paths of `read_webdataset` in a stream; the labels are not read, and one tar at a time is held."""

    def each() -> Iterator[str]:
        found = False
        for file in files:
            index = _index.__wrapped__(file, remote_stamp(file))
            yield from (f"{file}#{key}" for key in index.images)
            found = found or bool(index.images)
        if not found:
            raise no_image(files[0])

    return Paths(common_root(files), each())


def _label(file: str, index: TarIndex, key: str) -> str | None:
    """ "" = none; None = a caption. WebDataset ends a key at the first dot of the name: 0001.left.jpg has 0001.cls."""
    folder, name = os.path.split(key)
    for stem in dict.fromkeys((key, os.path.join(folder, name.partition(".")[0]))):
        for ending in LABEL_SUFFIXES:
            if place := index.beside.get(stem + ending):
                told = _text(read_part(file, *place), ending, f"{file}#{stem}{ending}")
                if told != "":
                    return told
    return ""


def _text(content: bytes, ending: str, where: str) -> str | None:
    try:
        text = content.decode("utf-8").strip()
        if ending == ".json":
            told = json.loads(text)
            told = told.get("label", "") if isinstance(told, dict) else ""
            return "" if told is None or isinstance(told, dict | list) else str(told).strip()
    except (UnicodeDecodeError, ValueError) as error:
        raise StorageError(f"{where} is no readable label ({error}); mend it or leave it out.") from error
    return None if ending == ".txt" and (len(text) > LONGEST or "\n" in text) else text
