"""Embedding store: features on disk, keyed by image content, read as a stream.

A folder holds `manifest.json`, which says of which network they are, and `part-00000.parquet` and so on, each with the
columns digest, feature and note. What is new comes in further parts; nothing is taken away, since an image that is gone
may come back. Images that cannot be read are tried again each time: a repair of their permissions changes no content.

A discovery knows images by their content; embeddings know them by path, size and time. Where these three are as they
were, the features are still those of the image.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.hashing import file_stamps
from holotype.data.paths import absolute
from holotype.data.table import Table
from holotype.embeddings import extract
from holotype.embeddings.extract import (
    DECIDING_COLUMNS,
    IMAGES_PER_SHARD,
    MAX_SHARD,
    Embeddings,
    backbone_facts,
    feature_column,
    features_in,
)
from holotype.embeddings.shards import MANIFEST_FILE, has_manifest
from holotype.errors import InputError
from holotype.models.backbone import Backbone
from holotype.training.encoder import Encoder
from holotype.utils.atomic import write_text
from holotype.utils.console import progress_bar
from holotype.utils.device import Device
from holotype.utils.serialization import CorruptFile, dump_json, read_json, read_parquet_table, write_parquet

STORE_FORMAT = "by content, 1"
"""Raised when parts of an older version can no longer be read."""

log = logging.getLogger(__name__)


def embed_by_content(
    table: Table,
    digest: Sequence[str],
    backbone: Backbone,
    compute: Device,
    folder: Path,
    *,
    progress: bool = False,
) -> Embeddings:
    """Embed the centre crop of every image of `table`; what `folder` holds of the same content is read instead.

    digest: (N,) of the images (data/hashing.py), "" where there is none. Images of the same content are embedded
    once. Ctrl-C raises Stopped; the same call goes on.
    """
    each = IMAGES_PER_SHARD.get(compute.device.type, MAX_SHARD)
    _check_same_facts(folder, _store_facts(backbone) | {"images_per_shard": each})
    found = Embeddings.blank(len(table), backbone.dim)
    rows: dict[str, list[int]] = {}
    for row, own in enumerate(digest):
        rows.setdefault(own or f"row {row}", []).append(row)
    first = _read_parts(folder, rows, found)
    wanted = np.array([same[0] for same in rows.values()], dtype=np.int64)
    if len(wanted):
        missing = {first + i: wanted[i * each : (i + 1) * each] for i in range(-(-len(wanted) // each))}
        parts = _StoreParts(folder, digest, missing)
        encoder = Encoder(backbone, compute)
        extract.embed_rows(table, encoder, backbone.image_size, parts, missing, found, progress)
    for same in rows.values():
        _log_copies(table, same, found)
    return found


class ContentStore:
    """What a folder of embeddings by content holds, and where more of it goes."""

    def __init__(self, folder: Path, backbone: Backbone) -> None:
        """The folder is made where it is not there; InputError where it is of another network."""
        _check_same_facts(folder, _store_facts(backbone) | {"images_per_shard": MAX_SHARD})
        self.folder = folder
        self.known: set[str] = set()
        """Digests of the images."""
        self.following = 0
        for number, file in _part_number(folder):
            self.following = number + 1
            try:
                self.known.update(read_parquet_table(file)["digest"].to_pylist())
            except (OSError, ValueError, KeyError):
                continue  # whoever reads it for its features says so

    def write(self, digest: Sequence[str], features: np.ndarray, note: Sequence[str]) -> None:
        """Another part. digest: (n,), features: (n, D) float32, note: (n,)."""
        _write_part(self.folder, self.following, digest, features, note)
        self.known.update(digest)
        self.following += 1


def _log_copies(table: Table, same: Sequence[int], found: Embeddings) -> None:
    """Give what is known of the first row to the others; a problem names its file."""
    one, *others = same
    found.features[others], found.note[others] = found.features[one], found.note[one]
    for row in others:
        found.problem[row] = found.problem[one].replace(str(table.path[one]), str(table.path[row]))


# -- on disk --------------------------------------------------------------------------------------------


def _store_facts(backbone: Backbone) -> dict[str, Any]:
    return {"format": STORE_FORMAT, **extract.backbone_facts(backbone)}


def _check_same_facts(folder: Path, wanted: dict[str, Any]) -> None:
    """Write the manifest, or check that the one there is of the same network."""
    path = folder / MANIFEST_FILE
    try:
        if not has_manifest(folder):
            write_text(path, dump_json(wanted))
            return
        there = read_json(path)
    except (CorruptFile, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}); remove {folder} and run again.") from error
    if not isinstance(there, dict) or there.get("format") != STORE_FORMAT:
        raise InputError(
            f"{path} was written by another version (not format {STORE_FORMAT}); remove {folder} and run again."
        )
    if any(there.get(key) != wanted.get(key) for key in DECIDING_COLUMNS):
        raise InputError(
            f"{folder} holds embeddings of {there.get('backbone')} with other weights, or of another image size, "
            "pool or normalisation; choose another folder with --out."
        )


@dataclass(frozen=True)
class _StoreParts:
    """The files that are still to be written."""

    folder: Path
    digest: Sequence[str]
    """(N,) of all images."""
    missing: Mapping[int, np.ndarray]
    """Number of a part to its rows."""

    def write(self, number: int, found: Embeddings) -> None:
        rows = [row for row in self.missing[number] if self.digest[row] and not found.problem[row]]
        if rows:
            digest = [self.digest[row] for row in rows]
            _write_part(self.folder, number, digest, found.features[rows], list(found.note[rows]))


def _write_part(
    folder: Path, number: int, digest: Sequence[str], features: np.ndarray, note: Sequence[str]
) -> None:
    import pyarrow as pa

    columns = {
        "digest": pa.array(digest, pa.string()),
        "feature": feature_column(features),
        "note": pa.array(note, pa.string()),
    }
    write_parquet(folder / f"part-{number:05d}.parquet", pa.table(columns))


def _part_number(folder: Path) -> list[tuple[int, Path]]:
    """The parts that are there, by their numbers."""
    files = ((file.stem.removeprefix("part-"), file) for file in folder.glob("part-*.parquet"))
    return sorted((int(number), file) for number, file in files if number.isdecimal())


def _read_parts(folder: Path, rows: dict[str, list[int]], found: Embeddings) -> int:
    """Put what the parts hold in its place, and take it out of `rows` (digest to its rows); the next free number.

    A part that was damaged is removed, which is said.
    """
    following = 0
    for number, file in _part_number(folder):
        following = number + 1
        try:
            part = read_parquet_table(file)
            feature = features_in(part, part.num_rows, found.features.shape[1])
            known, note = part["digest"].to_pylist(), part["note"].to_pylist()
        except (OSError, ValueError, KeyError) as error:
            log.warning(f"{file} cannot be read ({error}), and is made again.")
            file.unlink(missing_ok=True)
            continue
        for place, digest in enumerate(known):
            for row in rows.pop(digest, ()):
                found.features[row], found.note[row] = feature[place], note[place]
    return following


PART_PATTERN = re.compile(r"part-([0-9]+)\.parquet")
REQUIRED_COLUMNS = ("backbone_digest", "image_size", "dim", "n", "root")
"""What a manifest of embeddings says, whatever else it does."""


@dataclass(frozen=True)
class EmbeddingPart:
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

    def readable(self) -> EmbeddingPart:
        """The images that could be read."""
        rows = np.flatnonzero(self.usable)
        if len(rows) == len(self.path):
            return self
        path, stamp, problem, note = (
            [values[row] for row in rows] for values in (self.path, self.stamp, self.problem, self.note)
        )
        return EmbeddingPart(path, stamp, self.feature[rows], problem, note)


class EmbeddingParts:
    """The parts of a folder in the order of their numbers; each iteration reads them anew."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.facts = _manifest(self.folder)
        self.root = str(self.facts["root"])
        self.n, self.dim = int(self.facts["n"]), int(self.facts["dim"])
        self.files = _files(self.folder)

    def __iter__(self) -> Iterator[EmbeddingPart]:
        """Raises InputError for a part that is damaged, and at the end where parts are missing."""
        total = 0
        for file in self.files:
            part = self._read(file)
            total += len(part.path)
            yield part
        if total != self.n:
            raise InputError(
                f"{self.folder} holds {total:,} of the {self.n:,} images that its {MANIFEST_FILE} speaks of; "
                "run the same "
                "holotype embed to its end."
            )

    def absolute(self, path: str) -> str:
        """A path of a part as it is seen from anywhere."""
        return absolute(path, self.root)

    def check_network(self, wanted: dict[str, Any]) -> None:
        """Raise InputError unless the features are of this network. wanted: what decides them (embed.network_facts)."""
        name = self.facts.get("backbone")
        if any(self.facts.get(key) != wanted.get(key) for key in DECIDING_COLUMNS):
            raise InputError(
                f"{self.folder} holds embeddings of {name} at {self.facts['image_size']} pixels, and not of "
                f"{wanted.get('backbone')} at {wanted.get('image_size')} with the same weights, pool and "
                f"normalisation; give --backbone {name}, or embed again."
            )

    def _read(self, file: Path) -> EmbeddingPart:
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
        return EmbeddingPart(path, stamp, feature, problem, note)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise InputError(
            f"{folder} is no folder of embeddings (no {MANIFEST_FILE}); make one with holotype embed."
        )
    try:
        facts = read_json(path)
    except (OSError, CorruptFile) as error:
        raise InputError(f"{path} cannot be read ({error}); run holotype embed again.") from error
    absent = [key for key in REQUIRED_COLUMNS if not isinstance(facts, dict) or key not in facts]
    if absent:
        raise InputError(
            f"{folder} holds embeddings of another kind (its {MANIFEST_FILE} does not say {absent[0]}); make some with "
            "holotype embed."
        )
    found: dict[str, Any] = facts
    return found


def _files(folder: Path) -> list[Path]:
    numbered = sorted(
        (int(found[1]), name)
        for name in os.listdir(folder)
        if (found := PART_PATTERN.fullmatch(name)) is not None
    )
    if not numbered:
        raise InputError(f"{folder} holds no part of embeddings yet; run holotype embed to its end.")
    return [folder / name for _, name in numbered]


def import_embeddings(
    parts: EmbeddingParts,
    table: Table,
    digest: Sequence[str],
    backbone: Backbone,
    folder: Path,
    progress: bool = False,
) -> None:
    """Write the features of a table's images into the embeddings by content in `folder`, as far as they are known.

    digest: (N,) of the images (data/hashing.py), "" where there is none. What is left is embedded as ever. Raises
    InputError for embeddings of another network, or of other images. One part is in memory at a time.
    """
    parts.check_network(backbone_facts(backbone))
    kept = ContentStore(folder, backbone)
    row = {str(path): i for i, path in enumerate(table.path) if digest[i] and digest[i] not in kept.known}
    if not row:
        return
    now = dict(zip(row, file_stamps(list(row)), strict=True))
    seen, some = 0, _PartialTable(kept, digest)
    with progress_bar("Reading embeddings", parts.n, progress) as advance:
        for part in parts:
            advance(len(part.path))
            for at, path in enumerate(map(parts.absolute, part.path)):
                seen += path in row
                if path in row and part.stamp[at] == now[path] != "" and not part.problem[at]:
                    some.add(row[path], part.feature[at], part.note[at])
    some.write()
    if not seen:
        raise InputError(
            f"None of the {len(row):,} images of {table.name} is among those of {parts.folder}; give the embeddings "
            "that they were drawn from."
        )
    if left := len(row) - some.n:
        log.info(
            f"{some.n:,} images have features in {parts.folder}; {left:,} are not there, could not be read or have "
            "changed since, and are embedded now."
        )


class _PartialTable:
    """Rows on their way from one folder to the other."""

    def __init__(self, kept: ContentStore, digest: Sequence[str]) -> None:
        self.kept, self.digest, self.n = kept, digest, 0
        self.rows: dict[str, tuple[np.ndarray, str]] = {}

    def add(self, row: int, feature: np.ndarray, note: str) -> None:
        self.n += 1
        self.rows[self.digest[row]] = feature.copy(), note
        if len(self.rows) >= MAX_SHARD:
            self.write()

    def write(self) -> None:
        if self.rows:
            features, notes = zip(*self.rows.values(), strict=True)
            self.kept.write(list(self.rows), np.stack(features), notes)
        self.rows = {}
