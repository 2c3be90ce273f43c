"""Tables of feature vectors: a Parquet file with a row for each thing, whatever its vector was made of.

The columns are `vector` (a list of numbers), and where there are such `id`, `label`, `truth`, `group` and `text`. A row
whose `path` is an image that is there is that image, which the report shows. Every other row is called file.parquet#id,
and the report shows its text.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.csv import column_names, column_text
from holotype.data.readers.parquet import LABEL_COLUMNS
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.utils.text import nfc, suggest_path

VECTOR_COLUMNS = ("vector", "vectors", "feature", "features", "embedding", "embeddings")
"""By preference; of other names, the only column of lists."""
ID_COLUMNS = ("id", "path", "file_name")
DIGEST_BYTES = 16


def read_vectors(file: Path, dim: int | None = None) -> Table:
    """Return the rows as a table with features.

    Args:
        file: The Parquet file.
        dim: Numbers that every vector must have; None = as many as the first.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = Path(file)
    if file.suffix.lower() != ".parquet":
        raise InputError(
            f"{file} is no Parquet file, which a table of vectors must be; write it as .parquet."
        )
    if not file.is_file():
        raise InputError(f"The file {file} does not exist{suggest_path(file)}; check its name.")
    try:
        content = pq.read_table(file)
        names = dict(zip(column_names(file, content.column_names), content.column_names, strict=True))
        vectors = _to_matrix(file, content, names, dim)
        texts = {
            name: [column_text(value).strip() for value in content[column].to_pylist()]
            for name, column in names.items()
            if name in (*ID_COLUMNS, *LABEL_COLUMNS, "truth", "group", "text")
        }
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is not a readable Parquet file; write it again.") from error
    label = next((texts[name] for name in LABEL_COLUMNS if name in texts), [""] * len(vectors))
    columns = {
        "path": _row_paths(file, texts, len(vectors)),
        "label": [nfc(one) for one in label],
        "truth": [nfc(one) for one in texts["truth"]] if "truth" in texts else None,
        "group": texts.get("group"),
        "text": texts.get("text"),
    }
    root = os.path.dirname(os.path.abspath(file))
    return Table.from_columns(columns, name=file.stem, root=root, features=vectors)


def vector_digests(features: np.ndarray) -> list[str]:
    """Return (N,) digests of the rows of (N, D)."""
    rows = np.ascontiguousarray(features, dtype=np.float32)
    return [hashlib.blake2b(row.tobytes(), digest_size=DIGEST_BYTES).hexdigest() for row in rows]


def _to_matrix(file: Path, content: Any, names: dict[str, str], dim: int | None) -> np.ndarray:
    """(N, D) float32. Raises InputError for rows that lack a number."""
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    lists = [
        name
        for name, column in names.items()
        if _is_list(kind := content.schema.field(column).type)
        and (kinds.is_floating(kind.value_type) or kinds.is_integer(kind.value_type))
    ]
    known = [name for name in VECTOR_COLUMNS if name in lists] or (lists if len(lists) == 1 else [])
    if not known:
        there = ", ".join(map(repr, names)) or "none"
        raise InputError(
            f"{file} has no column 'vector' with a list of numbers in each row; its columns are {there}."
        )
    if not len(content):
        raise InputError(f"{file} has no rows; there is nothing to look at.")
    column = content[names[known[0]]].combine_chunks()
    length = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    wanted = int(length[0]) if dim is None else dim
    if (wrong := np.flatnonzero(length != wanted)).size or not wanted:
        row = int(wrong[0]) if wrong.size else 0
        like = "the first has" if dim is None else "this run was made of vectors of"
        raise InputError(
            f"Row {row + 1} of {file} has a vector of {int(length[row]):,} numbers, and {like} {wanted:,}; all must be "
            "of one network, and as long as each other."
        )
    flat = column.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    vectors: np.ndarray = flat.reshape(len(content), wanted)
    with np.errstate(over="ignore", under="ignore"):
        square = np.square(vectors).sum(axis=1)
    if (odd := np.flatnonzero(~np.isfinite(square))).size:
        raise InputError(
            f"Row {int(odd[0]) + 1} of {file} has a vector with NaN, infinity or numbers too large to be squared "
            f"({odd.size:,} such rows); remove these rows, or make their vectors again."
        )
    if (zero := np.flatnonzero(square == 0)).size:
        raise InputError(f"Row {int(zero[0]) + 1} of {file} has a vector of zeros; remove it.")
    return vectors


def _is_list(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind))


def _row_paths(file: Path, texts: dict[str, list[str]], n: int) -> list[str]:
    """The image of each row where its path leads to one, else file.parquet#id."""
    full = os.path.abspath(file)
    paths: Sequence[str] = texts.get("path") or texts.get("file_name") or [""] * n
    found = [os.path.normpath(os.path.join(os.path.dirname(full), path)) if path else "" for path in paths]
    ids: Sequence[str] = texts.get("id") or [path or str(row) for row, path in enumerate(paths)]
    if "" in ids:
        raise InputError(f"Row {ids.index('') + 1} of {file} has no id; fill it in.")
    return [
        path if path and os.path.isfile(path) else f"{full}#{id}" for path, id in zip(found, ids, strict=True)
    ]
