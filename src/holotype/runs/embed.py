"""Features of a whole collection from the frozen backbone, in a stream, kept as Parquet shards that a rerun reads.

A folder of embeddings holds `manifest.json`, which says of what they are, and `part-00000.parquet` and so on, each with
the columns path, feature, problem and note of consecutive images. Shards are written beside and renamed, so that a
shard that is there is whole; a rerun computes those that are missing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holotype.data.ingest import Decoded, in_order
from holotype.data.store import CROP_SHARE
from holotype.data.table import Table
from holotype.data.views import centre_crops
from holotype.errors import InputError
from holotype.machine.bars import counting
from holotype.machine.device import Compute
from holotype.machine.files import write_beside, write_text
from holotype.methods import Method
from holotype.models.backbone import Backbone
from holotype.train.encode import Encoder
from holotype.train.progress import StopRequest

FORMAT = 1
"""Raised when shards of an older version can no longer be read."""
MANIFEST = "manifest.json"
IMAGES_PER_SHARD = {"cpu": 512}
"""A stop loses at most one shard, and a large network on a CPU takes a minute for this one."""
LARGEST_SHARD = 4096
"""The same on other devices."""
TOLD = {
    "format": "the version of their format",
    "backbone_digest": "the backbone",
    "image_size": "the image size",
    "images": "the list of images",
    "n": "the number of images",
}
"""What must be equal for shards to be of use, and how a person calls it."""


@dataclass
class Embeddings:
    """Every image of a table as the frozen backbone sees it."""

    features: np.ndarray
    """(N, D) float32; zeros for images that could not be read."""
    problem: np.ndarray
    """(N,) object str: why an image could not be used, "" if it could."""
    note: np.ndarray
    """(N,) object str: what was done to an unusual image, "" for most."""


def embed_table(
    table: Table,
    backbone: Backbone,
    compute: Compute,
    folder: Path,
    *,
    method: Method | None = None,
    images_per_shard: int | None = None,
    progress: bool = False,
) -> Embeddings:
    """Embed the centre crop of every image of `table`; shards that `folder` holds already are read instead.

    Labels play no part, so that a table whose labels have changed finds its shards. Few images are in memory at a
    time. Ctrl-C raises Stopped; the same call goes on. method: one that may encode images itself.
    images_per_shard: of a new folder, 512 on a CPU, else 4096.
    """
    each = images_per_shard or IMAGES_PER_SHARD.get(compute.device.type, LARGEST_SHARD)
    each = _agree(folder, _facts(table, backbone) | {"images_per_shard": each})
    shards = [slice(first, min(first + each, len(table))) for first in range(0, len(table), each)]
    found = Embeddings(
        np.zeros((len(table), backbone.dim), dtype=np.float32),
        np.full(len(table), "", dtype=object),
        np.full(len(table), "", dtype=object),
    )
    missing = {n: rows for n, rows in enumerate(shards) if not _read_shard(folder, n, rows, found)}
    if missing:
        _embed_missing(
            table, Encoder(backbone, compute, method), backbone.image_size, folder, missing, found, progress
        )
    return found


def _embed_missing(
    table: Table,
    encoder: Encoder,
    size: int,
    folder: Path,
    missing: Mapping[int, slice],
    found: Embeddings,
    progress: bool,
) -> None:
    """Compute and write the missing shards, given as number and rows.

    One stream of images runs through all of them, so that reading never waits for a shard to be written.
    """
    paths = [path for rows in missing.values() for path in table.path[rows]]
    done = len(table) - len(paths)
    stream = in_order(paths, int(size / CROP_SHARE), None, progress=False)
    with StopRequest() as stop, counting("Embedding images", len(paths), progress) as advance:
        try:
            for number, shard in missing.items():
                for rows in _batches(shard, encoder.chunk):
                    _fill(found, rows, [next(stream) for _ in range(rows.stop - rows.start)], encoder, size)
                    advance(rows.stop - rows.start)
                    if stop.requested and rows.stop < shard.stop:
                        stop.leave(f"image {done:,} of {len(table):,}")
                _write_shard(folder, number, table, shard, found)
                done += shard.stop - shard.start
                if stop.requested:
                    stop.leave(f"image {done:,} of {len(table):,}")
        finally:
            stream.close()  # type: ignore[attr-defined]


def _batches(rows: slice, size: int) -> Iterator[slice]:
    for first in range(rows.start, rows.stop, size):
        yield slice(first, min(first + size, rows.stop))


@torch.no_grad()
def _fill(found: Embeddings, rows: slice, decoded: Sequence[Decoded], encoder: Encoder, size: int) -> None:
    """Encode the images of consecutive rows and note their problems."""
    found.problem[rows] = [image.problem for image in decoded]
    found.note[rows] = [image.note for image in decoded]
    sound = [i for i, image in enumerate(decoded) if not image.problem]
    if sound:
        images = torch.stack([_centre(decoded[i].pixels, size) for i in sound]).permute(0, 3, 1, 2)
        features = encoder.features(encoder.inputs(images.to(encoder.device)))
        found.features[[rows.start + i for i in sound]] = features.float().cpu().numpy()


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
        "backbone": backbone.name,
        "backbone_digest": backbone.digest,
        "image_size": backbone.image_size,
        "dim": backbone.dim,
        "images": unlabelled.fingerprint(),
        "n": len(table),
    }


def _agree(folder: Path, wanted: dict[str, Any]) -> int:
    """Write the manifest, or check that the one there is of the same images and network; returns images per shard."""
    path = folder / MANIFEST
    if not path.is_file():
        if any(folder.glob("part-*.parquet")):
            raise InputError(
                f"{folder} holds shards but no {MANIFEST}, so that nobody knows of what; remove the folder."
            )
        write_text(path, json.dumps(wanted, indent=1) + "\n")
        return int(wanted["images_per_shard"])
    try:
        there = json.loads(path.read_text(encoding="utf-8"))
        each = int(there["images_per_shard"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(f"{path} cannot be read ({error!r}); remove {folder} and embed again.") from error
    differs = [told for key, told in TOLD.items() if there.get(key) != wanted[key]]
    if differs or each < 1:
        raise InputError(
            f"{folder} holds embeddings of something else (not the same: "
            f"{', '.join(differs) or 'the size of a shard'}); choose another folder, or remove this one to embed again."
        )
    return each


def _shard(folder: Path, number: int) -> Path:
    return folder / f"part-{number:05d}.parquet"


def _write_shard(folder: Path, number: int, table: Table, rows: slice, found: Embeddings) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    features = found.features[rows]
    columns = {
        "path": pa.array(list(table.path[rows]), pa.string()),
        "feature": pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1]),
        "problem": pa.array(list(found.problem[rows]), pa.string()),
        "note": pa.array(list(found.note[rows]), pa.string()),
    }
    write_beside(_shard(folder, number), lambda beside: pq.write_table(pa.table(columns), beside))


def _read_shard(folder: Path, number: int, rows: slice, found: Embeddings) -> bool:
    """Put a shard in its place in `found`; False where it is not there or somebody has damaged it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n, dim = rows.stop - rows.start, found.features.shape[1]
    try:
        shard = pq.read_table(_shard(folder, number), columns=["feature", "problem", "note"])
        feature = shard["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        found.features[rows] = feature.reshape(n, dim)
        for name in ("problem", "note"):
            getattr(found, name)[rows] = np.array(shard[name].to_pylist(), dtype=object)
    except (OSError, ValueError, KeyError, pa.ArrowException):
        return False
    return True
