"""The file of a sample: Parquet with path, label, weight and cell. Its weights say how many images each stands for.

A column `weight` in any other file means something else, such as what an animal weighs, and is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from holotype.errors import InputError
from holotype.utils.atomic import refuse_existing
from holotype.utils.serialization import TABLE_MARK, write_parquet

KIND = "sample"


def write_sample(
    file: Path,
    path: list[str],
    label: list[str],
    weight: np.ndarray,
    cell: np.ndarray,
    facts: Mapping[str, Any],
) -> None:
    """facts: how it was drawn; they stand in the footer."""
    import pyarrow as pa

    columns = {
        "path": pa.array(path, pa.string()),
        "label": pa.array(label, pa.string()),
        "weight": pa.array(weight, pa.float64()),
        "cell": pa.array(cell, pa.int32()),
    }
    told = json.dumps({KIND: dict(facts)}, sort_keys=True)
    write_parquet(file, pa.table(columns).replace_schema_metadata({TABLE_MARK: told.encode()}))


def sample_facts(file: Path) -> dict[str, Any] | None:
    """How a sample was drawn; None for a file that is none."""
    if file.suffix.lower() != ".parquet" or not file.is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        told = json.loads((pq.read_schema(file).metadata or {}).get(TABLE_MARK, b"{}"))
    except (OSError, ValueError, pa.ArrowException):
        return None
    found = told.get(KIND) if isinstance(told, dict) else None
    return found if isinstance(found, dict) else None


def check_target(file: Path, overwrite: bool = False) -> None:
    """Raise InputError where a sample cannot be written, or would replace a file without `overwrite`."""
    if file.suffix.lower() != ".parquet":
        raise InputError(
            f"A sample is written as .parquet, not as {file.name!r}; give such a name with --out."
        )
    refuse_existing(file, overwrite)
