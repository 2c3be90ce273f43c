"""JSON files of ours: written with a version, and looked at before anything in them is believed.

Each kind of file has a `Form`, which knows its version and what to do about a broken one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.machine.plain import NotPlain, from_plain

FORMAT = "format"
T = TypeVar("T")


class Broken(ValueError):
    """Why a file of ours cannot be believed: the middle of a sentence."""


@dataclass(frozen=True)
class Form:
    """A kind of JSON file."""

    format: int | str
    """The version that is written."""
    cure: str
    """What to do about a broken file; ends the sentence."""

    def write(self, path: Path, content: Mapping[str, Any]) -> None:
        write_text(path, sealed({FORMAT: self.format, **content}))

    def read(self, path: Path) -> dict[str, Any]:
        """The content, without the version. Raises InputError for a file that cannot be believed."""
        try:
            content = read_sealed(path)
            if not isinstance(content, dict):
                raise Broken("it holds no group of keys")
        except (OSError, Broken) as error:
            raise self.broken(path, error) from error
        version = content.pop(FORMAT, None)
        if version != self.format:
            raise InputError(
                f"{path} was written by another version (format {version}, not {self.format}); {self.cure}."
            )
        return content

    def make(self, path: Path, kind: type[T], *, every: bool = True) -> T:
        """The dataclass whose fields the file holds. every: a key that has a default must be there as well."""
        content = self.read(path)
        try:
            return from_plain(kind, content, every=every)
        except NotPlain as problem:
            raise self.broken(path, problem) from problem

    def broken(self, path: Path, reason: Exception | str) -> InputError:
        """The sentence about a file that cannot be believed."""
        said = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
        return InputError(f"{path} cannot be read ({' '.join(said.split())[:200]}); {self.cure}.")


def sealed(content: Mapping[str, Any], *, indent: int | None = 1) -> str:
    """The text of a file that holds `content`. indent: None for one long line."""
    separators = None if indent else (",", ":")
    return json.dumps(content, indent=indent, ensure_ascii=False, separators=separators) + "\n"


def read_sealed(path: Path) -> Any:
    """What the file holds. Raises Broken, and OSError."""
    text = path.read_bytes()
    try:
        return json.loads(text.decode("utf-8"))
    except ValueError as error:
        raise Broken(f"it is not whole: {error}" if text.strip() else "it is empty") from error
