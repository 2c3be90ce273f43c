"""JSON files of ours: written with a version and a checksum, and looked at before anything in them is believed.

A file says `format` first and `check` last. The checksum is of the values, not of their layout, so that a file may be
indented anew, and a flipped bit in a value is noticed. A file without one was written by an older version, or by hand.
Each kind of file has a `Form`, which knows its version and what to do about a broken one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.machine.json_text import parsed
from holotype.machine.plain import NotPlain, from_plain
from holotype.machine.regular import read_bytes

CHECK, FORMAT = "check", "format"
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
    older: tuple[int | str | None, ...] = ()
    """Versions that can be read as well; None for files that do not say theirs."""

    def write(self, path: Path, content: Mapping[str, Any]) -> None:
        write_text(path, sealed({FORMAT: self.format, **content}))

    def read(self, path: Path) -> dict[str, Any]:
        """The content, without version and checksum. Raises InputError for a file that cannot be believed."""
        return self.believed(path)[1]

    def believed(self, path: Path) -> tuple[int | str | None, dict[str, Any]]:
        """Its version, and the content."""
        try:
            content = read_sealed(path)
            if not isinstance(content, dict):
                raise Broken("it holds no group of keys")
        except (OSError, Broken) as error:
            raise self.broken(path, error) from error
        version = content.pop(FORMAT, None)
        if version != self.format and version not in self.older:
            raise InputError(
                f"{path} was written by another version (format {version}, not {self.format}); {self.cure}."
            )
        return version, content

    def make(self, path: Path, kind: type[T], *, every: bool = True) -> T:
        """The dataclass whose fields the file holds. every: a key that has a default must be there as well."""
        return self.make_of_version(path, kind, every=every)[1]

    def make_of_version(self, path: Path, kind: type[T], *, every: bool = True) -> tuple[int | str | None, T]:
        """The version of the file, and the same."""
        version, content = self.believed(path)
        try:
            return version, from_plain(kind, content, every=every)
        except NotPlain as problem:
            raise self.broken(path, problem) from problem

    def broken(self, path: Path, reason: Exception | str) -> InputError:
        """The sentence about a file that cannot be believed."""
        said = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
        return InputError(f"{path} cannot be read ({' '.join(said.split())[:200]}); {self.cure}.")


def sealed(content: Mapping[str, Any], *, indent: int | None = 1) -> str:
    """The text of a file that holds `content` and its checksum. indent: None for one long line."""
    plain = json.loads(json.dumps({key: value for key, value in content.items() if key != CHECK}))
    separators = None if indent else (",", ":")
    told = plain | {CHECK: _checksum(plain)}
    return json.dumps(told, indent=indent, ensure_ascii=False, separators=separators) + "\n"


def read_sealed(path: Path) -> Any:
    """What the file holds, without its checksum, which is compared where there is one. Raises Broken, and OSError."""
    return unsealed(read_bytes(path))


def unsealed(text: bytes | str) -> Any:
    """The same of its text."""
    try:
        content = parsed(text.decode("utf-8") if isinstance(text, bytes) else text)
    except ValueError as error:
        raise Broken(f"it is not whole: {error}" if text.strip() else "it is empty") from error
    if isinstance(content, dict) and CHECK in content and content.pop(CHECK) != _checksum(content):
        raise Broken("it does not match its checksum: something has changed it since it was written")
    return content


def _checksum(content: Any) -> str:
    """Of plain values, in whichever order their keys come."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
