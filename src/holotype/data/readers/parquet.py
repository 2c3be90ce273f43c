"""Parquet files that hold the images themselves, as Hugging Face data sets do.

A column of images is a struct with the field `bytes`, or plain bytes. An image is written file.parquet#row, rows from
0. A file is read row group by row group, and those that were read last are kept: images are mostly asked for in order.
"""

from __future__ import annotations

import contextlib
import io
import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from threading import Lock
from typing import Any

from PIL import Image

from holotype.data.csv import column_text
from holotype.data.image_files import decoders
from holotype.data.paths import Paths, common_root
from holotype.data.storage import StorageError, random_access, remote_stamp
from holotype.data.table import Table
from holotype.errors import InputError

IMAGE_COLUMNS = ("image", "img", "images", "picture", "photo", "bytes", "jpg", "jpeg", "png")
"""Columns of plain bytes that are images; under another name, the only column of bytes is."""
LABEL_COLUMNS = ("label", "labels", "class")
CACHED_BYTES = 256 << 20
"""Of row groups that are kept; the last one is, however large."""
FIRST_ROWS = 8
"""Rows that are looked at before a file is believed to hold images."""


@dataclass(frozen=True)
class ParquetImages:
    """A Parquet file of images."""

    file: Any
    """pyarrow's ParquetFile."""
    column: str
    """The leaf that holds the bytes: image.bytes, or image."""
    starts: list[int]
    """The first row of each row group, and the number of rows at the end."""


@contextlib.contextmanager
def _explained(file: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except pa.ArrowInvalid as error:
        raise StorageError(f"{file} is not a readable Parquet file; write it again.") from error
    except OSError as error:
        raise StorageError(f"{file} is damaged or cannot be read ({str(error)[:160]}).") from error


@lru_cache(maxsize=256)
def _open_parquet(file: str, stamp: str) -> ParquetImages:
    """stamp is there for the cache: a file that changed is opened again."""
    import pyarrow.parquet as pq

    with _explained(file):
        parquet = pq.ParquetFile(random_access(file))
    column = image_column(parquet.schema_arrow)
    if column is None:
        names = ", ".join(repr(name) for name in parquet.schema_arrow.names)
        raise StorageError(f"{file} has no column of images and none called 'path', only {names}; add one.")
    meta = parquet.metadata
    rows = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
    return ParquetImages(parquet, column, [0, *accumulate(rows)])


def image_column(schema: Any) -> str | None:
    """Return the leaf that holds the bytes of images, image.bytes or image; None where a schema has none.

    A struct with the field `bytes` is an image. Of columns of plain bytes it is the first of IMAGE_COLUMNS, or the only
    one; where there is a column of paths, plain bytes are something else.
    """
    import pyarrow.types as kinds

    def plain(kind: Any) -> bool:
        return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind))

    for field in schema:
        place = field.type.get_field_index("bytes") if kinds.is_struct(field.type) else -1
        if place >= 0 and plain(field.type.field(place).type):
            return f"{field.name}.bytes"
    names = [field.name for field in schema if plain(field.type)]
    if {"path", "file_name"} & {name.lower() for name in schema.names}:
        return None
    known = [name for wanted in IMAGE_COLUMNS for name in names if name.lower() == wanted]
    return (known or (names if len(names) == 1 else [None]))[0]


def holds_images(file: str) -> bool:
    """Return whether a Parquet file has a column of images. A file that cannot be read raises StorageError."""
    import pyarrow.parquet as pq

    with _explained(file):
        return image_column(pq.ParquetFile(random_access(file)).schema_arrow) is not None


_groups: OrderedDict[tuple[str, str, int], Any] = OrderedDict()
_lock = Lock()


def read_row(file: str, key: str) -> bytes:
    """Return the bytes of the image in row `key`. Threads ask for neighbouring images: one of them reads for all."""
    stamp = remote_stamp(file)
    with _lock:
        opened = _open_parquet(file, stamp)
        n = opened.starts[-1]
        if not (key.isascii() and key.isdigit()) or int(key) >= n:
            raise StorageError(f"{file} has {n:,} rows, counted from 0, so there is no image {key!r}.")
        group = bisect_right(opened.starts, int(key)) - 1
        values = _group(file, stamp, opened, group)
        value = values[int(key) - opened.starts[group]].as_py()
    if value is None:
        raise StorageError(f"Row {key} of {file} has no image in it.")
    return bytes(value)


def _group(file: str, stamp: str, opened: ParquetImages, group: int) -> Any:
    """Return the images of a row group, as pyarrow's array."""
    place = (file, stamp, group)
    if place in _groups:
        _groups.move_to_end(place)
        return _groups[place]
    import pyarrow as pa
    import pyarrow.compute as pc

    with _explained(file):
        values = opened.file.read_row_group(group, columns=[opened.column]).column(0)
    if pa.types.is_struct(values.type):
        values = pc.struct_field(values, "bytes")
    _groups[place] = values
    while len(_groups) > 1 and sum(kept.nbytes for kept in _groups.values()) > CACHED_BYTES:
        _groups.popitem(last=False)
    return values


def read_parquet(files: Sequence[str], name: str) -> Table:
    """Return every row of Parquet files with images; a column of labels, `truth` and `group` where there are such.

    files: absolute paths or addresses. The names of a Hugging Face ClassLabel are the labels, -1 means none.
    """
    paths = stream_parquet(files)
    columns: dict[str, list[str]] = {"path": list(paths.each)}
    opened = [_open_parquet(file, remote_stamp(file)) for file in files]
    for what in ("label", "truth", "group"):
        parts = []
        for file, one in zip(files, opened, strict=True):
            with _explained(file):
                parts.append(_texts(one, what))
        if what == "label" or any(part is not None for part in parts):
            sizes = [one.starts[-1] for one in opened]
            columns[what] = [x for part, n in zip(parts, sizes, strict=True) for x in part or [""] * n]
    return Table.from_columns(columns, name=name, root=paths.root)


def stream_parquet(files: Sequence[str]) -> Paths:
    """Return the paths of `read_parquet` in a stream: the columns are not read."""

    def each() -> Iterator[str]:
        checked = False
        for file in files:
            n = _open_parquet(file, remote_stamp(file)).starts[-1]
            if n and not checked:
                _check_images(file, min(n, FIRST_ROWS))
                checked = True
            yield from (f"{file}#{row}" for row in range(n))
        if not checked:
            raise InputError(f"{files[0]} has no rows; there is nothing to look at.")

    return Paths(common_root(files), each())


def _texts(opened: ParquetImages, what: str) -> list[str] | None:
    """Return a column as text, in its order; None where there is none."""
    schema = opened.file.schema_arrow
    classes = _class_names(schema)
    wanted = LABEL_COLUMNS if what == "label" else (what,)
    found = [name for one in wanted for name in schema.names if name.lower() == one]
    if what == "label" and not found and len(classes) == 1:
        found = list(classes)
    if not found or found[0] == opened.column.partition(".")[0]:
        return None
    names = dict(enumerate(classes.get(found[0], ())))
    values = opened.file.read(columns=[found[0]]).column(0).to_pylist()
    numbered = found[0] in classes
    return [names.get(v, "") if numbered and isinstance(v, int) else column_text(v).strip() for v in values]


def _class_names(schema: Any) -> dict[str, list[str]]:
    """Return columns of class numbers and the names of their classes, as Hugging Face writes them into a file."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"].items()
        labels = [(str(name), kind) for name, kind in features if isinstance(kind, dict)]
        return {
            name: list(map(str, kind["names"])) for name, kind in labels if kind.get("_type") == "ClassLabel"
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _check_images(file: str, rows: int) -> None:
    """Raise InputError where none of the first rows holds an image."""
    for row in range(rows):
        with contextlib.suppress(Exception):  # decoders fail in many ways on what is no image
            Image.open(io.BytesIO(read_row(file, str(row))), formats=decoders()).close()
            return
    raise InputError(f"The first rows of {file} hold bytes that are no image; write JPEG or PNG into it.")
