"""Extract features of a collection with the frozen backbone into Parquet shards.

Whoever reads one is told which of its images are no longer as they were.

A folder of embeddings holds `manifest.json`, which says of what they are, and `part-00000.parquet` and so on, each with
the columns path, stamp, feature, problem and note of consecutive images. Paths are relative to the root of the images,
so that a folder that was moved finds its embeddings. Shards are written beside and renamed, so that a shard that is
there is whole; a rerun computes those that are missing, and in the others the images whose files have changed since.

A part has the columns path (relative to the root of the images), stamp, feature (16 bits), problem and note. A part
that is there is looked at: images whose files have changed since are embedded anew, and no others.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from holotype.config.schema import BackboneConfig
from holotype.data.augment import centre_crops
from holotype.data.hashing import file_stamps
from holotype.data.image_store import CROP_FRACTION, Decoded, decode_in_order
from holotype.data.paths import relative
from holotype.data.table import Table
from holotype.embeddings.shards import MANIFEST_FILE, PLAN_FILE, has_manifest, part_file, read_shard_paths
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.training.encoder import Encoder
from holotype.training.progress import StopRequest
from holotype.utils.atomic import write_text
from holotype.utils.console import progress_bar
from holotype.utils.device import Device
from holotype.utils.heartbeat import update_heartbeat
from holotype.utils.serialization import CorruptFile, dump_json, read_json, read_parquet_table, write_parquet

TEXT_COLUMNS = ("problem", "note")
DECIDING_COLUMNS = ("backbone_digest", "image_size", "dim", "pool", "mean", "std")
"""What the manifest of a folder says of the network, and what embeddings depend on."""

log = logging.getLogger("holotype")


@dataclass
class Embeddings:
    """Every image of a table as the frozen backbone sees it."""

    features: np.ndarray
    """(N, D) float32, or 16 bits in a part of a large collection; zeros for images that could not be read."""
    problem: np.ndarray
    """(N,) object str: why an image could not be used, "" if it could."""
    note: np.ndarray
    """(N,) object str: what was done to an unusual image, "" for most."""

    @classmethod
    def blank(cls, n: int, dim: int, dtype: type[np.floating] = np.float32) -> Embeddings:
        """Of n images that are still to come."""
        problem, note = np.full((2, n), "", dtype=object)
        return cls(np.zeros((n, dim), dtype=dtype), problem, note)

    def of(self, rows: slice) -> Embeddings:
        """Those of consecutive images; what is written there is written here."""
        return Embeddings(self.features[rows], self.problem[rows], self.note[rows])


@dataclass(frozen=True)
class ShardFile:
    """Where the embeddings of some images lie."""

    file: Path
    path: Sequence[str]
    """(n,) of the images, relative to their root."""
    stamp: Sequence[str]
    """(n,) of their files (data/hashing.py)."""

    def write(self, found: Embeddings) -> None:
        import pyarrow as pa

        features = found.features
        columns: dict[str, Any] = {
            "path": pa.array(self.path, pa.string()),
            "stamp": pa.array(self.stamp, pa.string()),
            "feature": feature_column(features),
        }
        columns |= {name: pa.array(list(getattr(found, name)), pa.string()) for name in TEXT_COLUMNS}
        write_parquet(self.file, pa.table(columns))

    def read(self, found: Embeddings) -> np.ndarray:
        """Put what the file holds into `found`; returns the rows that it does not hold as the images are now: all
        where it is not there, or was damaged, which is said."""
        every = np.arange(len(self.path))
        try:
            part = read_parquet_table(self.file)
            feature = features_in(part, *found.features.shape)
            there = list(zip(part["path"].to_pylist(), part["stamp"].to_pylist(), strict=True))
            texts = {name: np.array(part[name].to_pylist(), dtype=object) for name in TEXT_COLUMNS}
        except FileNotFoundError:
            return every
        except (OSError, ValueError, KeyError) as error:
            log.warning(f"{self.file} cannot be read ({error}), and is made again.")
            return every
        now = zip(self.path, self.stamp, strict=True)
        changed = np.array([a != b for a, b in zip(there, now, strict=True)], dtype=bool)
        kept = every[~changed]
        found.features[kept] = feature[kept]
        for name, values in texts.items():
            getattr(found, name)[kept] = values[kept]
        return every[changed]


def feature_column(features: np.ndarray) -> Any:
    """(n, D) as the column `feature` of a part."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1])


def features_in(part: Any, n: int, dim: int) -> np.ndarray:
    """The inverse: (n, dim) of a part, as pyarrow has read it. Raises ValueError where they are of another size."""
    values = part["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values.reshape(n, dim))


EMBEDDINGS_FORMAT = 2
"""Raised when shards of an older version can no longer be read."""
IMAGES_PER_SHARD = {"cpu": 512}
"""A stop loses at most one shard, and a large network on a CPU takes a minute for this one."""
MAX_SHARD = 4096
"""The same on other devices."""
LOG_EVERY = {
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
    each = images_per_shard or IMAGES_PER_SHARD.get(compute.device.type, MAX_SHARD)
    each = _check_same_run(folder, _facts(table, backbone) | {"images_per_shard": each})
    shards = EmbeddingShards(folder, each, relative(table.path, table.root), file_stamps(list(table.path)))
    found = Embeddings.blank(len(table), backbone.dim)
    missing = {n: rows for n in range(len(shards)) if len(rows := shards.read(n, found))}
    if missing:
        encoder = encoder or Encoder(backbone, compute)
        embed_rows(table, encoder, backbone.image_size, shards, missing, found, progress)
    return found


class ShardWriter(Protocol):
    """Where embeddings go, shard by shard."""

    def write(self, number: int, found: Embeddings) -> None: ...


def embed_rows(
    table: Table,
    encoder: Encoder,
    size: int,
    shards: ShardWriter,
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
                    fill_shard(found, rows, [next(stream) for _ in rows], encoder, size)
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
def fill_shard(
    found: Embeddings, rows: np.ndarray, decoded: Sequence[Decoded], encoder: Encoder, size: int
) -> None:
    """Encode the images of some rows and note their problems."""
    found.problem[rows] = [image.problem for image in decoded]
    found.note[rows] = [image.note for image in decoded]
    sound = [i for i, image in enumerate(decoded) if not image.problem]
    if sound:
        images = torch.stack([_center_crop(decoded[i].pixels, size) for i in sound]).permute(0, 3, 1, 2)
        features = encoder.embed(encoder.inputs(images.to(encoder.device), encoder.last.needs))
        found.features[rows[sound]] = features.float().cpu().numpy()


def _center_crop(pixels: np.ndarray, size: int) -> Tensor:
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
        "format": EMBEDDINGS_FORMAT,
        **backbone_facts(backbone),
        "images": unlabelled.fingerprint(),
        "n": len(table),
        "root": table.root,
    }


def backbone_facts(backbone: Backbone) -> dict[str, Any]:
    """What decides the features of an image, and the network's name."""
    return {
        "backbone": backbone.name,
        "backbone_digest": backbone.digest,
        "image_size": backbone.image_size,
        "dim": backbone.dim,
        **backbone.changes,
    }


def _check_same_run(folder: Path, wanted: dict[str, Any]) -> int:
    """Write the manifest, or check that the one there is of the same images and network; returns images per shard."""
    path = folder / MANIFEST_FILE
    if not has_manifest(folder):
        write_text(path, dump_json(wanted))
        return int(wanted["images_per_shard"])
    try:
        there = read_json(path)
        each = int(there["images_per_shard"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        reason = str(error) if isinstance(error, CorruptFile) else repr(error)
        raise InputError(f"{path} cannot be read ({reason}); remove {folder} and embed again.") from error
    differs = [told for key, told in LOG_EVERY.items() if there.get(key) != wanted.get(key)]
    if differs or each < 1:
        raise InputError(
            f"{folder} holds embeddings of something else (not the same: "
            f"{', '.join(differs) or 'the size of a shard'}); choose another folder, or remove this one to embed again."
        )
    if there.get("root") != wanted["root"]:  # the images were moved
        write_text(path, dump_json(there | {"root": wanted["root"]}))
    return each


@dataclass(frozen=True)
class EmbeddingShards:
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


SHARD_FORMAT = 3
"""Of the folder: raised when parts of an older version can no longer be used."""
EXTRA_KEYS = "its feature has numbers beyond 16 bits, which were cut"


Advance = Callable[[int], None]
"""Is told how many more images are done."""


@dataclass
class EmbedCounts:
    """What became of the images of some slices."""

    n: int = 0
    dim: int = 0
    broken: int = 0
    example: str = ""
    """Why one of them could not be read."""

    def add(self, other: EmbedCounts) -> None:
        self.n, self.broken, self.dim = self.n + other.n, self.broken + other.broken, other.dim
        self.example = self.example or other.example


_networks: dict[tuple[str, str], Encoder] = {}
"""By digest and device: a process loads its network once."""


@dataclass(frozen=True)
class EmbedShard:
    """Embeds the centre crop of every image of a slice, and writes its part. Plain, and can be pickled."""

    folder: str
    """Absolute."""
    root: str
    """Of the images."""
    backbone: BackboneConfig
    digest: str
    image_size: int
    dim: int
    device: str

    def ready(self) -> None:
        read_shard_paths(Path(self.folder) / PLAN_FILE, 0)

    def __call__(self, number: int, advance: Advance = lambda more: None) -> EmbedCounts:
        paths = read_shard_paths(Path(self.folder) / PLAN_FILE, number)
        part = ShardFile(part_file(Path(self.folder), number), relative(paths, self.root), file_stamps(paths))
        found = Embeddings.blank(len(paths), self.dim, np.float16)
        rows = part.read(found)
        last = len(paths) - len(rows)
        if len(rows):
            last += self._embed([paths[row] for row in rows], rows, found, advance)
            part.write(found)
        advance(last)  # once the part is there: whoever stops here loses nothing
        broken = [problem for problem in found.problem if problem]
        return EmbedCounts(len(paths), self.dim, len(broken), broken[0] if broken else "")

    def _embed(self, paths: list[str], rows: np.ndarray, found: Embeddings, advance: Advance) -> int:
        """Compute some rows; returns how many of them `advance` has not been told of."""
        encoder = self.network()
        stream = decode_in_order(paths, int(self.image_size / CROP_FRACTION), None, progress=False)
        try:
            for first in range(0, len(rows), encoder.chunk):
                some = rows[first : first + encoder.chunk]
                with np.errstate(over="ignore"):
                    fill_shard(found, some, [next(stream) for _ in some], encoder, self.image_size)
                _shard_rows(found, some)
                if first + len(some) < len(rows):
                    advance(len(some))
        finally:
            stream.close()  # type: ignore[attr-defined]
        return len(some)

    def network(self) -> Encoder:
        key = (self.digest, self.device)
        if key not in _networks:
            loaded = load_backbone(self.backbone)
            if loaded.digest != self.digest:
                raise InputError(
                    f"The weights of {self.backbone.name} are not the same on every machine; copy them."
                )
            self.use(loaded)
        return _networks[key]

    def use(self, backbone: Backbone) -> None:
        """Take a network that is loaded already."""
        _networks.clear()
        _networks[self.digest, self.device] = Encoder(backbone, Device.on(self.device))


def _shard_rows(found: Embeddings, rows: np.ndarray) -> None:
    """16 bits end at 65,504; no network of note comes near it."""
    for row in rows[np.isinf(found.features[rows]).any(axis=1)]:
        found.features[row] = np.nan_to_num(found.features[row], nan=np.nan)
        found.note[row] = "; ".join(filter(None, (found.note[row], EXTRA_KEYS)))


# -- the folder -----------------------------------------------------------------------------------------


def embed_facts(backbone: Backbone) -> dict[str, Any]:
    """What the manifest of a folder of embeddings says besides its images."""
    return {"format": SHARD_FORMAT, **backbone_facts(backbone)}


def embed_summary() -> dict[str, str]:
    """Those of them that must be equal."""
    return {key: words for key, words in LOG_EVERY.items() if key not in ("images", "n")}
