"""Embedding store: features of images on disk, keyed by the content of an image, written and read in parts.

A folder holds `manifest.json`, which says of which network the features are, and `part-000000.parquet` and so on with
the columns digest (of the content), path (from the root), stamp (size and time of the file), feature, problem and note.
Images of the same content share one feature, wherever they lie. Where path and stamp are as they were, a file is not
read again to know its content.

`embed_table` embeds a table that fits in memory, as `discover` and `estimate-k` do, and adds parts with what is new;
nothing is taken away, since an image that is gone may come back. `EmbedShard` embeds one shard of a plan (shards.py)
into the part of its number, in 16 bits, as `holotype embed` does for collections of any size. `EmbeddingParts` reads
either as a stream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holotype.config.schema import BackboneConfig
from holotype.data.augment import centre_crops
from holotype.data.hashing import FileStamp, file_stamps, image_digests
from holotype.data.image_store import CROP_FRACTION, Decoded, decode_in_order
from holotype.data.paths import absolute, relative
from holotype.data.table import Table
from holotype.embeddings.shards import (
    MANIFEST_FILE,
    PLAN_FILE,
    check_manifest,
    existing_parts,
    part_file,
    read_manifest,
    read_shard_paths,
)
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.training.encoder import Encoder
from holotype.training.progress import StopRequest
from holotype.utils.atomic import write_text
from holotype.utils.console import progress_bar
from holotype.utils.device import Device
from holotype.utils.heartbeat import update_heartbeat
from holotype.utils.serialization import dump_json, read_parquet_table, write_parquet

EMBEDDINGS_FORMAT = 4
"""Raised when parts of an older version can no longer be read."""
IMAGES_PER_SHARD = {"cpu": 512}
"""A stop loses at most one shard, and a large network on a CPU takes a minute for this one."""
MAX_SHARD = 4096
"""The same on other devices."""
TEXT_COLUMNS = ("digest", "path", "stamp", "problem", "note")
MAX_FLOAT16 = float(np.finfo(np.float16).max)

log = logging.getLogger("holotype")

Advance = Callable[[int], None]
"""Is told how many more images are done."""


@dataclass
class Embeddings:
    """Images as the frozen backbone sees them."""

    features: np.ndarray
    """(N, D) float32, or 16 bits in a part of a large collection; zeros for images that could not be read."""
    problem: np.ndarray
    """(N,) object str: why an image could not be used, "" if it could."""
    note: np.ndarray
    """(N,) object str: what was done to an unusual image, "" for most."""

    @staticmethod
    def blank(n: int, dim: int) -> Embeddings:
        """Make room for n images that are still to come."""
        problem, note = np.full((2, n), "", dtype=object)
        return Embeddings(np.zeros((n, dim), dtype=np.float32), problem, note)

    def copy_to_duplicates(self, groups: Iterable[Sequence[int]], paths: Sequence[str]) -> None:
        """Give what is known of the first row of each group to its others; a problem names its file."""
        for first, *others in groups:
            self.features[others], self.note[others] = self.features[first], self.note[first]
            for row in others:
                self.problem[row] = self.problem[first].replace(paths[first], paths[row])


@dataclass
class EmbeddingPart(Embeddings):
    """The images of one file, n of them."""

    digest: np.ndarray
    """(n,) object str: of the content (data/hashing.py), "" where the file could not be read."""
    path: np.ndarray
    """(n,) object str: as seen from the root of the collection."""
    stamp: np.ndarray
    """(n,) object str: size and time of the files when they were embedded, "" = not known."""

    @classmethod
    def read(cls, file: Path, dim: int) -> EmbeddingPart:
        """Raise OSError, ValueError or KeyError for a file that is absent or damaged."""
        table = read_parquet_table(file)
        values = table["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        texts = {name: np.array(table[name].to_pylist(), dtype=object) for name in TEXT_COLUMNS}
        return cls(values.reshape(table.num_rows, dim), **texts)

    def write(self, file: Path) -> None:
        import pyarrow as pa

        columns = {name: pa.array(getattr(self, name), pa.string()) for name in TEXT_COLUMNS}
        feature = pa.FixedSizeListArray.from_arrays(pa.array(self.features.ravel()), self.features.shape[1])
        write_parquet(file, pa.table({**columns, "feature": feature}))

    @property
    def usable(self) -> np.ndarray:
        """(n,) bool: could the image be read?"""
        return np.asarray(self.problem == "", dtype=bool)

    def readable(self) -> EmbeddingPart:
        """Return the images that could be read."""
        return EmbeddingPart(*(getattr(self, column.name)[self.usable] for column in fields(self)))

    def move_to(self, groups: dict[str, list[int]], found: Embeddings, broken: bool = False) -> None:
        """Put features in their places in `found`, and take them out of `groups` (digest to rows).

        broken: problems too, as far as the files could be read; else these images are tried again.
        """
        for at in np.flatnonzero(self.usable | broken):
            for row in groups.pop(self.digest[at], ()):
                found.features[row], found.note[row] = self.features[at], self.note[at]
                found.problem[row] = self.problem[at]

    def seen(self) -> dict[str, FileStamp]:
        """Return stamp and digest of the images by path, as far as the stamp is known."""
        rows = zip(self.path, self.stamp, self.digest, strict=True)
        return {path: (stamp, digest) for path, stamp, digest in rows if stamp}


def group_by_content(digest: Sequence[str], rows: range) -> dict[str, list[int]]:
    """Map each content to its rows; an image that has none is alone."""
    groups: dict[str, list[int]] = {}
    for row in rows:
        groups.setdefault(digest[row] or f"row {row}", []).append(row)
    return groups


def backbone_facts(backbone: Backbone) -> dict[str, Any]:
    """Return what decides the features of an image, as it stands in a manifest."""
    return {
        "format": EMBEDDINGS_FORMAT,
        "backbone_digest": backbone.digest,
        "image_size": backbone.image_size,
        "dim": backbone.dim,
        "pool": None,
        "mean": None,
        "std": None,
        **backbone.changes,
    }


# -- a table in memory ----------------------------------------------------------------------------------


def embed_table(
    table: Table,
    backbone: Backbone,
    compute: Device,
    folder: Path,
    *,
    digest: Sequence[str] | None = None,
    source: EmbeddingParts | None = None,
    encoder: Encoder | None = None,
    images_per_shard: int | None = None,
    progress: bool = False,
) -> Embeddings:
    """Embed the centre crop of every image of `table`; what `folder` holds of the same content is read instead.

    Few images are in memory at a time. Images that cannot be read are tried again each time: a repair of their
    permissions changes no content. Ctrl-C raises Stopped; the same call goes on.

    Args:
        digest: (N,) of the contents (data/hashing.py), "" where there is none; by default of the files as they are.
        source: A further store, whose features of these images are copied to `folder`.
        encoder: One that a method has trained, which `backbone` must tell by its digest; by default the backbone's own.
        images_per_shard: By default 512 on a CPU, else 4096.
    """
    _open_store(folder, backbone, table.root)
    paths, stamp = [str(path) for path in table.path], [""] * len(table)
    names = relative(paths, table.root)
    if digest is None:
        stamp, seen = file_stamps(paths), dict[str, FileStamp]()
        for part in _stored(folder, backbone.dim):
            seen |= part.seen()
        digest = image_digests(paths, stamp, [seen.get(name) for name in names])
    found, groups = Embeddings.blank(len(table), backbone.dim), group_by_content(digest, range(len(table)))
    first_rows, tried = {key: rows[0] for key, rows in groups.items()}, set[str]()
    for part in _stored(folder, backbone.dim):
        part.move_to(groups, found)
        tried.update(part.path[~part.usable])

    def save(rows: Iterable[int]) -> None:
        rows = [row for row in rows if not (found.problem[row] and names[row] in tried)]
        if rows:
            columns = ([column[row] for row in rows] for column in (digest, names, stamp))
            texts = (np.array(column, dtype=object) for column in columns)
            part = EmbeddingPart(found.features[rows], found.problem[rows], found.note[rows], *texts)
            part.write(part_file(folder, max(existing_parts(folder), default=-1) + 1))

    if source is not None and groups:
        for rows in _in_shards(_copy(source, table.name, groups, first_rows, found), MAX_SHARD):
            save(rows)
    if groups:
        each = images_per_shard or IMAGES_PER_SHARD.get(compute.device.type, MAX_SHARD)
        missing = [rows[0] for rows in groups.values()]
        # what is tried once more comes last, so that the others are encoded in the same batches after a stop
        shards = _in_shards([row for row in missing if names[row] not in tried], each)
        shards += _in_shards([row for row in missing if names[row] in tried], each)
        encoder = encoder or Encoder(backbone, compute)
        embed_rows(paths, encoder, backbone.image_size, shards, found, save, progress)
        found.copy_to_duplicates(groups.values(), paths)
    return found


def _open_store(folder: Path, backbone: Backbone, root: str) -> None:
    """Write the manifest, or check that the one there is of the same network."""
    manifest, facts = read_manifest(folder), backbone_facts(backbone)
    if manifest is None:
        manifest = {"backbone": backbone.name, **facts}
    check_manifest(folder, manifest, facts)
    if manifest.get("root") != root:  # new, or the images were moved
        write_text(folder / MANIFEST_FILE, dump_json({**manifest, "root": root}))


def _in_shards(rows: Sequence[int], each: int) -> list[np.ndarray]:
    return [np.array(rows[first : first + each], dtype=np.int64) for first in range(0, len(rows), each)]


def _stored(folder: Path, dim: int) -> Iterator[EmbeddingPart]:
    """Read the parts of a store; one that was damaged is removed, which is said."""
    for number in sorted(existing_parts(folder)):
        if (part := _read_or_warn(part_file(folder, number), dim)) is not None:
            yield part
        else:
            part_file(folder, number).unlink(missing_ok=True)


def _read_or_warn(file: Path, dim: int) -> EmbeddingPart | None:
    """Read a part; None where it is not there, or was damaged, which is said."""
    try:
        return EmbeddingPart.read(file, dim)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        log.warning(f"{file} cannot be read ({error}), and is made again.")
        return None


def _copy(
    source: EmbeddingParts,
    name: str,
    groups: dict[str, list[int]],
    first_rows: dict[str, int],
    found: Embeddings,
) -> list[int]:
    """Put the features that another store holds in their places; returns the first row of each content."""
    before = list(groups)
    for part in source:
        part.move_to(groups, found)
    if len(groups) == len(first_rows):
        raise InputError(
            f"None of the {len(found.problem):,} images of {name} is among those of {source.folder}; give the "
            "embeddings that they were drawn from."
        )
    if groups:
        log.info(f"{len(groups):,} images have no features in {source.folder}, and are embedded now.")
    return [first_rows[key] for key in before if key not in groups]


def embed_rows(
    paths: Sequence[str],
    encoder: Encoder,
    size: int,
    shards: Sequence[np.ndarray],
    found: Embeddings,
    save: Callable[[Iterable[int]], None],
    progress: bool,
) -> None:
    """Compute rows of `found` and save them shard by shard."""
    n, waiting = len(paths), iter(shards)
    saved = done = n - sum(map(len, shards))
    with (
        StopRequest() as stop,
        progress_bar("Embedding images", n - done, progress) as advance,
        closing(encode_rows(paths, encoder, size, shards, found)) as chunks,
    ):
        for chunk, ends_shard in chunks:
            advance(len(chunk))
            done += len(chunk)
            update_heartbeat(None, step=done, steps=n)
            if ends_shard:
                save(next(waiting))
                saved = done
            if stop.requested:
                stop.leave(f"image {saved:,} of {n:,}")


def encode_rows(
    paths: Sequence[str], encoder: Encoder, size: int, shards: Sequence[np.ndarray], found: Embeddings
) -> Generator[tuple[np.ndarray, bool], None, None]:
    """Compute rows of `found`; yields those of each batch, and whether it is the last of its shard.

    One stream of images runs through all shards, so that reading never waits for one to be written.
    """
    wanted = [paths[row] for shard in shards for row in shard]
    stream = decode_in_order(wanted, int(size / CROP_FRACTION), None, progress=False)
    try:
        for shard in shards:
            for first in range(0, len(shard), encoder.chunk):
                chunk = shard[first : first + encoder.chunk]
                fill_shard(found, chunk, list(islice(stream, len(chunk))), encoder, size)
                yield chunk, first + len(chunk) == len(shard)
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
        features = encoder.embed(encoder.inputs(images.to(encoder.device), encoder.last.needs)).float()
        if found.features.dtype == np.float16:
            features = features.clamp(-MAX_FLOAT16, MAX_FLOAT16)
        found.features[rows[sound]] = features.cpu().numpy()


def _center_crop(pixels: np.ndarray, size: int) -> Tensor:
    """The evaluation crop of one image. (height, width, 3) -> (size, size, 3), both uint8."""
    height, width = (torch.tensor([side]) for side in pixels.shape[:2])
    crop = centre_crops(height, width, size)
    top, left = int(crop.top), int(crop.left)
    return torch.from_numpy(pixels[top : top + size, left : left + size].copy())


# -- one shard of a plan --------------------------------------------------------------------------------


@dataclass
class EmbedCounts:
    """What became of the images of some shards."""

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
    """Embeds the centre crop of every image of a shard, and writes its part. Plain, and can be pickled.

    Of a part that is there, images whose files have changed since are looked at again, and no others.
    """

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
        file = part_file(Path(self.folder), number)
        paths = read_shard_paths(Path(self.folder) / PLAN_FILE, number)
        names, stamps, before = relative(paths, self.root), file_stamps(paths), _read_or_warn(file, self.dim)
        seen = before.seen() if before is not None else {}
        digest = image_digests(paths, stamps, [seen.get(name) for name in names])
        texts = (np.array(column, dtype=object) for column in (digest, names, stamps))
        problem, note = np.full((2, len(paths)), "", dtype=object)
        part = EmbeddingPart(np.zeros((len(paths), self.dim), np.float16), problem, note, *texts)
        groups, advanced = group_by_content(digest, range(len(paths))), 0
        if before is not None:
            before.move_to(groups, part, broken=True)
        if groups:
            rows = np.array([rows[0] for rows in groups.values()], dtype=np.int64)
            advanced = self._embed(paths, rows, part, advance)
            part.copy_to_duplicates(groups.values(), paths)
        if groups or [seen.get(name) for name in names] != list(zip(stamps, digest, strict=True)):
            part.write(file)
        advance(len(paths) - advanced)  # once the part is there: whoever stops here loses nothing
        broken = part.problem[~part.usable]
        return EmbedCounts(len(paths), self.dim, len(broken), broken[0] if len(broken) else "")

    def _embed(self, paths: Sequence[str], rows: np.ndarray, part: Embeddings, advance: Advance) -> int:
        """Compute some rows; returns how many of them `advance` was told of."""
        advanced = 0
        with closing(encode_rows(paths, self.network(), self.image_size, [rows], part)) as chunks:
            for chunk, is_last in chunks:
                if not is_last:
                    advance(len(chunk))
                    advanced += len(chunk)
        return advanced

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


# -- as a stream ----------------------------------------------------------------------------------------


class EmbeddingParts:
    """The parts of a folder in the order of their numbers; each iteration reads them anew."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        facts = read_manifest(self.folder)
        if facts is None:
            raise InputError(
                f"{folder} is no folder of embeddings (no {MANIFEST_FILE}); make one with holotype embed."
            )
        check_manifest(self.folder, facts, {"format": EMBEDDINGS_FORMAT})
        self.facts, self.root, self.dim = facts, str(facts["root"]), int(facts["dim"])
        self.files = [part_file(self.folder, number) for number in sorted(existing_parts(self.folder))]
        if not self.files:
            raise InputError(f"{folder} holds no part of embeddings yet; run holotype embed to its end.")
        self.n = int(facts["n"]) if "n" in facts else sum(map(_rows, self.files))

    def __iter__(self) -> Iterator[EmbeddingPart]:
        """Raises InputError for a part that is damaged, and at the end where parts are missing."""
        total = 0
        for file in self.files:
            try:
                part = EmbeddingPart.read(file, self.dim)
            except (OSError, ValueError, KeyError) as error:
                reason = " ".join(str(error).split())[:200]
                raise InputError(
                    f"{file} cannot be read ({reason}); run the same command again, which makes it anew."
                ) from error
            total += len(part.path)
            yield part
        if total != self.n:
            raise InputError(
                f"{self.folder} holds {total:,} of the {self.n:,} images that its {MANIFEST_FILE} speaks of; run the "
                "same holotype embed to its end."
            )

    def absolute(self, path: str) -> str:
        """Return a path of a part as it is seen from anywhere."""
        return absolute(path, self.root)

    def check_network(self, backbone: Backbone) -> None:
        """Raise InputError unless the features are of this network."""
        check_manifest(self.folder, self.facts, backbone_facts(backbone))


def _rows(file: Path) -> int:
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(file).num_rows)
    except (OSError, ValueError):
        return 0  # whoever reads it says so
