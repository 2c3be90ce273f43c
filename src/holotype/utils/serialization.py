"""Read and write dataclasses as JSON, and tables as Parquet, each with a format version.

Each kind of file has a `FileSchema`, which knows its version and what to do about a broken one.

A shard is a block: what a flipped bit has changed is noticed before any of its rows counts. Parquet's own checksums
are of pages, and leave out the footer, in which names, types and our own entry stand.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

import numpy as np

from holotype.errors import InputError
from holotype.utils.atomic import atomic_write, write_text

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}
_field_types = functools.cache(typing.get_type_hints)  # slow, and a discovery has many categories


class SchemaError(ValueError):
    """Why values do not make a dataclass: the middle of a sentence, such as `k is 'many', not a whole number`."""


def to_dict(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, with those of dataclasses inside it; JSON makes lists of tuples."""
    return dataclasses.asdict(value)


def from_dict(cls: type[T], content: Any, *, every: bool = True) -> T:
    """Return the dataclass that `content`, as read from JSON, holds the fields of. Raises SchemaError.

    every: a key that has a default must be there as well.
    """
    return typing.cast(T, _convert(cls, content, "", every))


def _convert(kind: Any, value: Any, key: str, every: bool) -> Any:
    """Return the value as its type wants it: lists become tuples where these are asked for."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, key, every)
    if origin in (Union, types.UnionType):
        problems = []
        for option in inner:
            try:
                return _convert(option, value, key, every)
            except SchemaError as problem:
                problems.append(str(problem))  # the exception itself would keep every caller's objects alive
        raise SchemaError(problems[0])
    if origin is Literal:
        _check(value in inner, key, value, f"one of {', '.join(map(str, inner))}")
    elif origin in (tuple, list):
        _check(isinstance(value, list | tuple), key, value, "a list")
        fixed = origin is tuple and Ellipsis not in inner
        if fixed and len(inner) != len(value):
            raise SchemaError(f"{key} holds {len(value)} values, not {len(inner)}")
        kinds = inner if fixed else inner[:1] * len(value)
        pairs = enumerate(zip(kinds, value, strict=True))
        return origin(_convert(part, v, f"{key}[{i}]", every) for i, (part, v) in pairs)
    elif origin in (dict, Mapping):
        _check(isinstance(value, Mapping), key, value, "a group of keys")
        return {name: _convert(inner[1], part, f"{key}.{name}", every) for name, part in value.items()}
    elif kind in TYPE_NAMES:
        right = isinstance(value, int | float if kind is float else kind)
        _check(right and (kind is bool or not isinstance(value, bool)), key, value, TYPE_NAMES[kind])
    return value


def _dataclass(cls: Any, content: Any, key: str, every: bool) -> Any:
    _check(isinstance(content, Mapping), key or "the content", content, "a group of keys")
    kinds, start = _field_types(cls), f"{key}." if key else ""
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    for name in content:
        if name not in fields:
            raise SchemaError(f"{start}{name} is not known")
    for name, field in fields.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if name not in content and (every or required):
            raise SchemaError(f"{start}{name} is missing")
    return cls(**{name: _convert(kinds[name], part, start + name, every) for name, part in content.items()})


def _check(right: bool, key: str, value: Any, wanted: str) -> None:
    if not right:
        text = repr(value)
        raise SchemaError(f"{key} is {text if len(text) <= 40 else text[:37] + '...'}, not {wanted}")


FORMAT_KEY = "format"


class CorruptFile(ValueError):
    """Why a file of ours cannot be believed: the middle of a sentence."""


@dataclass(frozen=True)
class FileSchema:
    """A kind of JSON file."""

    format: int | str
    """The version that is written."""
    cure: str
    """What to do about a broken file; ends the sentence."""

    def write(self, path: Path, content: Mapping[str, Any]) -> None:
        write_text(path, dump_json({FORMAT_KEY: self.format, **content}))

    def read(self, path: Path) -> dict[str, Any]:
        """Return the content, without the version. Raises InputError for a file that cannot be believed."""
        try:
            content = read_json(path)
            if not isinstance(content, dict):
                raise CorruptFile("it holds no group of keys")
        except (OSError, CorruptFile) as error:
            raise self.broken(path, error) from error
        version = content.pop(FORMAT_KEY, None)
        if version != self.format:
            other = f"format {version}, not {self.format}"
            raise InputError(f"{path} was written by another version ({other}); {self.cure}.")
        return content

    def make(self, path: Path, kind: type[T], *, every: bool = True) -> T:
        """Return the dataclass whose fields the file holds. every: a key with a default must be there as well."""
        content = self.read(path)
        try:
            return from_dict(kind, content, every=every)
        except SchemaError as problem:
            raise self.broken(path, problem) from problem

    def broken(self, path: Path, reason: Exception | str) -> InputError:
        """Return the error of a file that cannot be believed."""
        said = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
        return InputError(f"{path} cannot be read ({' '.join(said.split())[:200]}); {self.cure}.")


def dump_json(content: Mapping[str, Any], *, indent: int | None = 1) -> str:
    """Return the text of a file that holds `content`. indent: None for one long line."""
    separators = None if indent else (",", ":")
    return json.dumps(content, indent=indent, ensure_ascii=False, separators=separators) + "\n"


def read_json(path: Path) -> Any:
    """Return what the file holds. Raises CorruptFile, and OSError."""
    text = path.read_bytes()
    try:
        return json.loads(text.decode("utf-8"))
    except ValueError as error:
        raise CorruptFile(f"it is not whole: {error}" if text.strip() else "it is empty") from error


TABLE_MARK = b"holotype"
"""The entry of the footer that is ours; it counts as well."""
TABLE_CHECKSUM_KEY = b"holotype_check"


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write a table with its checksum; a kill at any moment leaves the old file or the new one."""
    import pyarrow.parquet as pq

    told = dict(table.schema.metadata or {}) | {TABLE_CHECKSUM_KEY: table_checksum(table).encode()}
    whole = table.replace_schema_metadata(told)
    atomic_write(path, lambda beside: pq.write_table(whole, beside))


def read_parquet_table(path: Path) -> pa.Table:
    """Return the table, once its checksum was compared. Raises CorruptFile, and OSError where there is no file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = path.read_bytes()
    try:
        table = pq.read_table(pa.BufferReader(content))
        told = (table.schema.metadata or {}).get(TABLE_CHECKSUM_KEY)
        right = told == table_checksum(table).encode()
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise CorruptFile(" ".join(str(error).split())[:200]) from error
    if not right:
        raise CorruptFile("it does not match its checksum: something has changed it since it was written")
    return table


def table_checksum(table: pa.Table) -> str:
    """Return the checksum of names, values and our own entry: of the bits of numbers, of NaN whichever its bits are."""
    found = zlib.crc32((table.schema.metadata or {}).get(TABLE_MARK, b""))
    for name in table.column_names:
        found = zlib.crc32(f"{name}:{table.num_rows}".encode(), found)
        found = zlib.crc32(_bits(table[name]), found)
    return f"{found:08x}"


def _bits(column: pa.ChunkedArray) -> bytes:
    from pyarrow import types as kinds

    if kinds.is_fixed_size_list(column.type) or kinds.is_list(column.type):
        column = column.combine_chunks().flatten()
    if not (kinds.is_floating(column.type) or kinds.is_integer(column.type) or kinds.is_boolean(column.type)):
        texts = ("" if text is None else str(text) for text in column.to_pylist())
        return "\0".join(texts).encode(errors="replace")
    values = np.asarray(column)
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return np.ascontiguousarray(values).tobytes()
