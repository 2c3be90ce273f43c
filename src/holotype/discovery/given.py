"""Lists by path from the root of the images: labels.json, rejected.json, earlier.json.

Older versions wrote them bare, without version and checksum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from holotype.machine.plain import NotPlain, from_value
from holotype.machine.sealed import Form

GIVEN = Form(2, "restore it from a copy, or run holotype discover with another --out")
T = TypeVar("T")


def write_given(path: Path, content: Mapping[str, Any] | Sequence[str]) -> None:
    """content: by path, or paths alone."""
    GIVEN.write(path, {"by_path": content})


def read_given(path: Path, kind: type[T]) -> T:
    """The content of a file that there is, of the type `kind`, such as dict[str, str]; else InputError."""
    bare = _bare(path)
    content = GIVEN.read(path).get("by_path") if bare is None else bare
    try:
        return from_value(kind, content)
    except NotPlain as problem:
        raise GIVEN.broken(path, problem) from problem


def _bare(path: Path) -> Any:
    """What an older version wrote; None where the file says its version, or cannot be read."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    told = isinstance(content, dict) and isinstance(content.get("format"), int)
    return None if told else content
