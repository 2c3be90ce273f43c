"""Parquet files of ours: the checksum of their values stands in the footer, and is compared when they are read.

A shard is a block: what a flipped bit has changed is noticed before any of its rows counts. Parquet's own checksums
are of pages, and leave out the footer, in which names, types and our own entry stand.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from holotype.machine.files import write_beside
from holotype.machine.sealed import Broken

if TYPE_CHECKING:
    import pyarrow as pa

OURS = b"holotype"
"""The entry of the footer that is ours; it counts as well."""
CHECK = b"holotype_check"


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table with its checksum; a kill at any moment leaves the old file or the new one."""
    import pyarrow.parquet as pq

    told = dict(table.schema.metadata or {}) | {CHECK: checksum(table).encode()}
    whole = table.replace_schema_metadata(told)
    write_beside(path, lambda beside: pq.write_table(whole, beside))


def read_table(path: Path) -> pa.Table:
    """The table, once its checksum was compared. Raises Broken, and OSError where there is no file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = path.read_bytes()
    try:
        table = pq.read_table(pa.BufferReader(content))
        told = (table.schema.metadata or {}).get(CHECK)
        right = told == checksum(table).encode()
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise Broken(" ".join(str(error).split())[:200]) from error
    if not right:
        raise Broken("it does not match its checksum: something has changed it since it was written")
    return table


def checksum(table: pa.Table) -> str:
    """Of names, values and our own entry; of the bits of numbers, and of NaN whichever its bits are."""
    found = zlib.crc32((table.schema.metadata or {}).get(OURS, b""))
    for name in table.column_names:
        found = zlib.crc32(f"{name}:{table.num_rows}".encode(), found)
        found = zlib.crc32(_bits(table[name]), found)
    return f"{found:08x}"


def _bits(column: pa.ChunkedArray) -> bytes:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind):
        flat = column.combine_chunks().flatten()
        return _number_bits(flat.to_numpy(zero_copy_only=False))
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _number_bits(column.to_numpy())
    return "\0".join("" if text is None else str(text) for text in column.to_pylist()).encode(
        errors="replace"
    )


def _number_bits(values: np.ndarray) -> bytes:
    if values.dtype.kind == "f" and np.isnan(values).any():
        values = np.where(np.isnan(values), np.array(np.nan, values.dtype), values)
    return np.ascontiguousarray(values).tobytes()
