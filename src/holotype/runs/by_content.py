"""Features of a collection that changes: each picture is embedded once, and found again by its content.

A folder holds `manifest.json`, which says of which network they are, and `part-00000.parquet` and so on, each with the
columns digest, feature and note. What is new comes in further parts; nothing is taken away, since an image that is gone
may come back. Images that cannot be read are tried again each time: a repair of their permissions changes no content.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holotype.data.table import Table
from holotype.errors import InputError
from holotype.models.backbone import Backbone
from holotype.runs import embed
from holotype.runs.embed import IMAGES_PER_SHARD, LARGEST_SHARD
from holotype.runs.shard_file import DECIDE, Embeddings, feature_column, features_in
from holotype.runs.slice_folder import MANIFEST, is_begun
from holotype.training.encoder import Encoder
from holotype.utils.atomic import write_text
from holotype.utils.device import Device
from holotype.utils.serialization import CorruptFile, dump_json, read_json, read_parquet_table, write_parquet

FORMAT = "by content, 1"
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
    each = IMAGES_PER_SHARD.get(compute.device.type, LARGEST_SHARD)
    _agree(folder, _facts(backbone) | {"images_per_shard": each})
    found = Embeddings.blank(len(table), backbone.dim)
    rows: dict[str, list[int]] = {}
    for row, own in enumerate(digest):
        rows.setdefault(own or f"row {row}", []).append(row)
    first = _read_parts(folder, rows, found)
    wanted = np.array([same[0] for same in rows.values()], dtype=np.int64)
    if len(wanted):
        missing = {first + i: wanted[i * each : (i + 1) * each] for i in range(-(-len(wanted) // each))}
        parts = _Parts(folder, digest, missing)
        encoder = Encoder(backbone, compute)
        embed.embed_rows(table, encoder, backbone.image_size, parts, missing, found, progress)
    for same in rows.values():
        _tell_copies(table, same, found)
    return found


class Kept:
    """What a folder of embeddings by content holds, and where more of it goes."""

    def __init__(self, folder: Path, backbone: Backbone) -> None:
        """The folder is made where it is not there; InputError where it is of another network."""
        _agree(folder, _facts(backbone) | {"images_per_shard": LARGEST_SHARD})
        self.folder = folder
        self.known: set[str] = set()
        """Digests of the images."""
        self.following = 0
        for number, file in _numbered(folder):
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


def _tell_copies(table: Table, same: Sequence[int], found: Embeddings) -> None:
    """Give what is known of the first row to the others; a problem names its file."""
    one, *others = same
    found.features[others], found.note[others] = found.features[one], found.note[one]
    for row in others:
        found.problem[row] = found.problem[one].replace(str(table.path[one]), str(table.path[row]))


# -- on disk --------------------------------------------------------------------------------------------


def _facts(backbone: Backbone) -> dict[str, Any]:
    return {"format": FORMAT, **embed.network_facts(backbone)}


def _agree(folder: Path, wanted: dict[str, Any]) -> None:
    """Write the manifest, or check that the one there is of the same network."""
    path = folder / MANIFEST
    try:
        if not is_begun(folder):
            write_text(path, dump_json(wanted))
            return
        there = read_json(path)
    except (CorruptFile, OSError) as error:
        raise InputError(f"{path} cannot be read ({error}); remove {folder} and run again.") from error
    if not isinstance(there, dict) or there.get("format") != FORMAT:
        raise InputError(
            f"{path} was written by another version (not format {FORMAT}); remove {folder} and run again."
        )
    if any(there.get(key) != wanted.get(key) for key in DECIDE):
        raise InputError(
            f"{folder} holds embeddings of {there.get('backbone')} with other weights, or of another image size, "
            "pool or normalisation; choose another folder with --out."
        )


@dataclass(frozen=True)
class _Parts:
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


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """The parts that are there, by their numbers."""
    files = ((file.stem.removeprefix("part-"), file) for file in folder.glob("part-*.parquet"))
    return sorted((int(number), file) for number, file in files if number.isdecimal())


def _read_parts(folder: Path, rows: dict[str, list[int]], found: Embeddings) -> int:
    """Put what the parts hold in its place, and take it out of `rows` (digest to its rows); the next free number.

    A part that was damaged is removed, which is said.
    """
    following = 0
    for number, file in _numbered(folder):
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
