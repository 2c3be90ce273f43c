"""Source of a discovery: which images and labels its last command named, for whoever goes on with it."""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holotype.data.paths import is_address
from holotype.errors import InputError
from holotype.utils.serialization import FileSchema

SOURCE_FILE = "source.json"
SOURCE_SCHEMA = FileSchema(1, "name the images once more: holotype discover IMAGES --out RUN")


@dataclass(frozen=True)
class Source:
    """What `holotype discover` reads, by absolute paths or addresses. What was not named is empty, or None."""

    images: str
    labels: str = ""
    unlabelled: tuple[str, ...] = ()
    boxes: str = ""
    box_confidence: float | None = None
    skip_missing: bool = False
    embeddings: str = ""
    vectors: bool = False
    """`images` is a table of vectors."""

    @classmethod
    def of(
        cls,
        images: Path | str,
        labels: Path | str | None = None,
        boxes: Path | str | None = None,
        embeddings: Path | str | None = None,
        **more: Any,
    ) -> Source:
        """Return the source that these arguments of `discover` name, seen from this folder. more: the other fields."""
        return cls(
            _absolute(images),
            labels=_absolute(labels),
            boxes=_absolute(boxes),
            embeddings=_absolute(embeddings),
            **more,
        )

    def save(self, folder: Path) -> None:
        """Write it into a run folder, where it says something new."""
        known = None
        with contextlib.suppress(InputError):  # a damaged one is written anew
            known = Source.load(folder)
        if known != self:
            SOURCE_SCHEMA.write(folder / SOURCE_FILE, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> Source | None:
        """Read what `save` wrote; None where there is none."""
        file = folder / SOURCE_FILE
        return SOURCE_SCHEMA.make(file, cls, every=False) if file.is_file() else None

    def arguments(self) -> list[str]:
        """Return the words of `holotype discover` that name it. Raises InputError where a word could mean a flag."""
        if not (os.path.isabs(self.images) or is_address(self.images)):
            raise InputError(f"{SOURCE_FILE} names no folder or address of images; {SOURCE_SCHEMA.cure}.")
        named = {"labels": self.labels, "boxes": self.boxes, "embeddings": self.embeddings}
        first = f"--features={self.images}" if self.vectors else self.images
        words = [first, *(f"--{name}={place}" for name, place in named.items() if place)]
        words += [f"--unlabelled={name}" for name in self.unlabelled]
        if self.box_confidence is not None:
            words.append(f"--box-confidence={self.box_confidence}")
        return [*words, "--skip-missing"] if self.skip_missing else words


def _absolute(place: Path | str | None) -> str:
    text = "" if place is None else str(place)
    return text if not text or is_address(text) else os.path.abspath(text)
