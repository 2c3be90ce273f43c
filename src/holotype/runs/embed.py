"""Features of a whole collection from the frozen backbone, in a stream, kept as Parquet shards that a rerun reads.

A folder of embeddings holds `manifest.json`, which says of what they are, and `part-00000.parquet` and so on, each with
the columns path, stamp, feature, problem and note of consecutive images. Paths are relative to the root of the images,
so that a folder that was moved finds its embeddings. Shards are written beside and renamed, so that a shard that is
there is whole; a rerun computes those that are missing, and in the others the images whose files have changed since.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from holotype.data.augment import centre_crops
from holotype.data.hashing import file_stamps
from holotype.data.image_store import CROP_FRACTION, Decoded, decode_in_order
from holotype.data.paths import relative
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.models.backbone import Backbone
from holotype.runs.shard_file import Embeddings, ShardFile
from holotype.runs.slice_folder import MANIFEST, is_begun
from holotype.training.encoder import Encoder
from holotype.training.progress import StopRequest
from holotype.utils.atomic import write_text
from holotype.utils.console import progress_bar
from holotype.utils.device import Device
from holotype.utils.heartbeat import update_heartbeat
from holotype.utils.serialization import CorruptFile, dump_json, read_json

FORMAT = 2
"""Raised when shards of an older version can no longer be read."""
IMAGES_PER_SHARD = {"cpu": 512}
"""A stop loses at most one shard, and a large network on a CPU takes a minute for this one."""
LARGEST_SHARD = 4096
"""The same on other devices."""
TOLD = {
    "format": "the version of their format",
    "backbone_digest": "the backbone",
    "image_size": "the image size",
    "pool": "the pool",
    "mean": "the mean of the colours",
    "std": "their standard deviation",
    "images": "the list of images",
    "n": "the number of images",
}
"""What must be equal for shards to be of use, and how a person calls it."""

log = logging.getLogger("holotype")


def embed_table(
    table: Table,
    backbone: Backbone,
    compute: Device,
    folder: Path,
    *,
    encoder: Encoder | None = None,
    images_per_shard: int | None = None,
    progress: bool = False,
) -> Embeddings:
    """Embed the centre crop of every image of `table`; what `folder` holds already of the same files is read instead.

    Labels play no part, so that a table whose labels have changed finds its shards. Few images are in memory at a
    time. Ctrl-C raises Stopped; the same call goes on. encoder: one that a method has trained, which
    `backbone` must tell by its digest; by default the backbone's own. images_per_shard: of a new folder, 512 on a CPU,
    else 4096.
    """
    each = images_per_shard or IMAGES_PER_SHARD.get(compute.device.type, LARGEST_SHARD)
    each = _agree(folder, _facts(table, backbone) | {"images_per_shard": each})
    shards = Shards(folder, each, relative(table.path, table.root), file_stamps(list(table.path)))
    found = Embeddings.blank(len(table), backbone.dim)
    missing = {n: rows for n in range(len(shards)) if len(rows := shards.read(n, found))}
    if missing:
        encoder = encoder or Encoder(backbone, compute)
        embed_rows(table, encoder, backbone.image_size, shards, missing, found, progress)
    return found


class Written(Protocol):
    """Where embeddings go, shard by shard."""

    def write(self, number: int, found: Embeddings) -> None: ...


def embed_rows(
    table: Table,
    encoder: Encoder,
    size: int,
    shards: Written,
    missing: Mapping[int, np.ndarray],
    found: Embeddings,
    progress: bool,
) -> None:
    """Compute the missing rows, given by the number of their shard, and write these shards.

    One stream of images runs through all of them, so that reading never waits for a shard to be written.
    """
    paths = [path for rows in missing.values() for path in table.path[rows]]
    done = len(table) - len(paths)
    stream = decode_in_order(paths, int(size / CROP_FRACTION), None, progress=False)
    with StopRequest() as stop, progress_bar("Embedding images", len(paths), progress) as advance:
        try:
            for number, wanted in missing.items():
                for first in range(0, len(wanted), encoder.chunk):
                    rows = wanted[first : first + encoder.chunk]
                    fill(found, rows, [next(stream) for _ in rows], encoder, size)
                    advance(len(rows))
                    update_heartbeat(None, step=done + first + len(rows), steps=len(table))
                    if stop.requested and first + encoder.chunk < len(wanted):
                        stop.leave(f"image {done:,} of {len(table):,}")
                shards.write(number, found)
                done += len(wanted)
                if stop.requested:
                    stop.leave(f"image {done:,} of {len(table):,}")
        finally:
            stream.close()  # type: ignore[attr-defined]


@torch.no_grad()
def fill(
    found: Embeddings, rows: np.ndarray, decoded: Sequence[Decoded], encoder: Encoder, size: int
) -> None:
    """Encode the images of some rows and note their problems."""
    found.problem[rows] = [image.problem for image in decoded]
    found.note[rows] = [image.note for image in decoded]
    sound = [i for i, image in enumerate(decoded) if not image.problem]
    if sound:
        images = torch.stack([_centre(decoded[i].pixels, size) for i in sound]).permute(0, 3, 1, 2)
        features = encoder.embed(encoder.inputs(images.to(encoder.device), encoder.last.needs))
        found.features[rows[sound]] = features.float().cpu().numpy()


def _centre(pixels: np.ndarray, size: int) -> Tensor:
    """The evaluation crop of one image. (height, width, 3) -> (size, size, 3), both uint8."""
    height, width = (torch.tensor([side]) for side in pixels.shape[:2])
    crop = centre_crops(height, width, size)
    top, left = int(crop.top), int(crop.left)
    return torch.from_numpy(pixels[top : top + size, left : left + size].copy())


# -- on disk --------------------------------------------------------------------------------------------


def _facts(table: Table, backbone: Backbone) -> dict[str, Any]:
    """What decides the content of the shards, and a few words for readers."""
    unlabelled = dataclasses.replace(table, label=np.full(len(table), "", dtype=object), known=())
    return {
        "format": FORMAT,
        **network_facts(backbone),
        "images": unlabelled.fingerprint(),
        "n": len(table),
        "root": table.root,
    }


def network_facts(backbone: Backbone) -> dict[str, Any]:
    """What decides the features of an image, and the network's name."""
    return {
        "backbone": backbone.name,
        "backbone_digest": backbone.digest,
        "image_size": backbone.image_size,
        "dim": backbone.dim,
        **backbone.changes,
    }


def _agree(folder: Path, wanted: dict[str, Any]) -> int:
    """Write the manifest, or check that the one there is of the same images and network; returns images per shard."""
    path = folder / MANIFEST
    if not is_begun(folder):
        write_text(path, dump_json(wanted))
        return int(wanted["images_per_shard"])
    try:
        there = read_json(path)
        each = int(there["images_per_shard"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = str(error) if isinstance(error, CorruptFile) else repr(error)
        raise InputError(f"{path} cannot be read ({reason}); remove {folder} and embed again.") from error
    differs = [told for key, told in TOLD.items() if there.get(key) != wanted.get(key)]
    if differs or each < 1:
        raise InputError(
            f"{folder} holds embeddings of something else (not the same: "
            f"{', '.join(differs) or 'the size of a shard'}); choose another folder, or remove this one to embed again."
        )
    if there.get("root") != wanted["root"]:  # the images were moved
        write_text(path, dump_json(there | {"root": wanted["root"]}))
    return each


@dataclass(frozen=True)
class Shards:
    """The files of a folder of embeddings."""

    folder: Path
    each: int
    """Images per shard."""
    path: Sequence[str]
    """(N,) of the images, relative to their root."""
    stamp: Sequence[str]
    """(N,) of their files (data/hashing.py)."""

    def __len__(self) -> int:
        return -(-len(self.path) // self.each)

    def rows(self, number: int) -> slice:
        return slice(number * self.each, min((number + 1) * self.each, len(self.path)))

    def part(self, number: int) -> ShardFile:
        rows = self.rows(number)
        return ShardFile(self.folder / f"part-{number:05d}.parquet", self.path[rows], self.stamp[rows])

    def write(self, number: int, found: Embeddings) -> None:
        self.part(number).write(found.of(self.rows(number)))

    def read(self, number: int, found: Embeddings) -> np.ndarray:
        """Put a shard in its place in `found`. Returns the rows that it does not hold as the files are now."""
        rows = self.rows(number)
        return rows.start + self.part(number).read(found.of(rows))
