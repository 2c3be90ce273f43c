"""A folder of embeddings (embed.py) read as a stream: one part after the other, never two in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.paths import absolute
from holotype.errors import InputError
from holotype.runs.shard_file import DECIDE, features_in
from holotype.runs.slice_folder import MANIFEST
from holotype.utils.serialization import CorruptFile, read_json, read_parquet_table

PART = re.compile(r"part-([0-9]+)\.parquet")
NEEDED = ("backbone_digest", "image_size", "dim", "n", "root")
"""What a manifest of embeddings says, whatever else it does."""


@dataclass(frozen=True)
class Part:
    """Some consecutive images of a collection, n of them."""

    path: list[str]
    """As seen from the root of the collection."""
    stamp: list[str]
    """Size and time of the files when they were embedded (data/hashing.py)."""
    feature: np.ndarray
    """(n, D) float32; zeros for images that could not be read."""
    problem: list[str]
    """Why an image could not be used, "" if it could."""
    note: list[str]
    """What was done to an unusual image, "" for most."""

    @property
    def usable(self) -> np.ndarray:
        """(n,) bool: could the image be read?"""
        return np.array([problem == "" for problem in self.problem], dtype=bool)

    def readable(self) -> Part:
        """The images that could be read."""
        rows = np.flatnonzero(self.usable)
        if len(rows) == len(self.path):
            return self
        path, stamp, problem, note = (
            [values[row] for row in rows] for values in (self.path, self.stamp, self.problem, self.note)
        )
        return Part(path, stamp, self.feature[rows], problem, note)


class Parts:
    """The parts of a folder in the order of their numbers; each iteration reads them anew."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.facts = _manifest(self.folder)
        self.root = str(self.facts["root"])
        self.n, self.dim = int(self.facts["n"]), int(self.facts["dim"])
        self.files = _files(self.folder)

    def __iter__(self) -> Iterator[Part]:
        """Raises InputError for a part that is damaged, and at the end where parts are missing."""
        total = 0
        for file in self.files:
            part = self._read(file)
            total += len(part.path)
            yield part
        if total != self.n:
            raise InputError(
                f"{self.folder} holds {total:,} of the {self.n:,} images that its {MANIFEST} speaks of; run the same "
                "holotype embed to its end."
            )

    def absolute(self, path: str) -> str:
        """A path of a part as it is seen from anywhere."""
        return absolute(path, self.root)

    def check_network(self, wanted: dict[str, Any]) -> None:
        """Raise InputError unless the features are of this network. wanted: what decides them (embed.network_facts)."""
        name = self.facts.get("backbone")
        if any(self.facts.get(key) != wanted.get(key) for key in DECIDE):
            raise InputError(
                f"{self.folder} holds embeddings of {name} at {self.facts['image_size']} pixels, and not of "
                f"{wanted.get('backbone')} at {wanted.get('image_size')} with the same weights, pool and "
                f"normalisation; give --backbone {name}, or embed again."
            )

    def _read(self, file: Path) -> Part:
        try:
            table = read_parquet_table(file)
            feature = features_in(table, table.num_rows, self.dim).astype(np.float32)
            path, stamp, problem, note = (
                table[name].to_pylist() for name in ("path", "stamp", "problem", "note")
            )
        except (OSError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{file} cannot be read ({reason}); run the same holotype embed again, which makes it anew."
            ) from error
        return Part(path, stamp, feature, problem, note)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(
            f"{folder} is no folder of embeddings (no {MANIFEST}); make one with holotype embed."
        )
    try:
        facts = read_json(path)
    except (OSError, CorruptFile) as error:
        raise InputError(f"{path} cannot be read ({error}); run holotype embed again.") from error
    absent = [key for key in NEEDED if not isinstance(facts, dict) or key not in facts]
    if absent:
        raise InputError(
            f"{folder} holds embeddings of another kind (its {MANIFEST} does not say {absent[0]}); make some with "
            "holotype embed."
        )
    found: dict[str, Any] = facts
    return found


def _files(folder: Path) -> list[Path]:
    numbered = sorted(
        (int(found[1]), name) for name in os.listdir(folder) if (found := PART.fullmatch(name)) is not None
    )
    if not numbered:
        raise InputError(f"{folder} holds no part of embeddings yet; run holotype embed to its end.")
    return [folder / name for _, name in numbered]
