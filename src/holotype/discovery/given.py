"""Lists by path from the root of the images: labels.json, rejected.json, earlier.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from holotype.utils.serialization import FileSchema, SchemaError, from_value

GIVEN = FileSchema(2, "restore it from a copy, or run holotype discover with another --out")
T = TypeVar("T")


def write_given(path: Path, content: Mapping[str, Any] | Sequence[str]) -> None:
    """content: by path, or paths alone."""
    GIVEN.write(path, {"by_path": content})


def read_given(path: Path, kind: type[T]) -> T:
    """The content of a file that there is, of the type `kind`, such as dict[str, str]; else InputError."""
    content = GIVEN.read(path).get("by_path")
    try:
        return from_value(kind, content)
    except SchemaError as problem:
        raise GIVEN.broken(path, problem) from problem
