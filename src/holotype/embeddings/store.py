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
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holotype.config.schema import BackboneConfig
from holotype.data.augment import centre_crops
from holotype.data.decode import DRAFT, Decoded, DecodedImages, decode_in_order
from holotype.data.hashing import FileStamp, file_stamps, image_digests
from holotype.data.image_store import CROP_FRACTION
from holotype.data.paths import relative
from holotype.data.readers.vectors import vector_digests
from holotype.data.table import Table
from holotype.embeddings import shards
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.training.build_token_cache import trunk_encoder
from holotype.training.encoder import Encoder
from holotype.training.progress import StopRequest
from holotype.utils.atomic import write_text
from holotype.utils.console import progress_bar
from holotype.utils.device import Device, run_ahead
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
    def blank(n: int, dim: int, kind: type = np.float32) -> Embeddings:
        """Make room for n images that are still to come."""
        return Embeddings(np.zeros((n, dim), dtype=kind), *np.full((2, n), "", dtype=object))

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


def group_by_content(digest: Iterable[str]) -> dict[str, list[int]]:
    """Map each content to its rows; an image that has none is alone."""
    groups: dict[str, list[int]] = {}
    for row, content in enumerate(digest):
        groups.setdefault(content or f"row {row}", []).append(row)
    return groups


def identify_files(paths: Sequence[str], root: str, stored: Iterable[EmbeddingPart]) -> list[list[str]]:
    """Return path from the root, stamp and digest of files; those that are as they were stored are not read again."""
    names, stamps, seen = relative(paths, root), file_stamps(paths), dict[str, FileStamp]()
    for part in stored:
        seen |= part.seen()
    return [names, stamps, image_digests(paths, stamps, [seen.get(name) for name in names])]


def backbone_facts(backbone: Backbone) -> dict[str, Any]:
    """Return what decides the features of an image, as it stands in a manifest."""
    network = {"backbone_digest": backbone.digest, "image_size": backbone.image_size, "dim": backbone.dim}
    usual = {"pool": None, "mean": None, "std": None}
    return {"format": EMBEDDINGS_FORMAT, **network, **usual, **backbone.changes}


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
    decoded: DecodedImages | None = None,
    progress: bool = False,
) -> Embeddings:
    """Embed the centre crop of every image of `table`; what `folder` holds of the same content is read instead.

    Images that cannot be read are tried again each time. Ctrl-C raises Stopped; the same call goes on.

    Args:
        digest: (N,) of the contents (data/hashing.py), "" where there is none; by default of the files as they are.
        source: A further store, whose features of these images are copied to `folder`.
        encoder: One that a method has trained, which `backbone` must tell by its digest; by default the backbone's own.
        images_per_shard: By default 512 on a CPU, else 4096.
        decoded: Takes in the images that are read here, for whoever reads them next.
    """
    manifest = _claim(folder, backbone, table.root)
    if table.features is not None:
        return _store_vectors(table, table.features, folder, digest, encoder)
    paths = [str(path) for path in table.path]
    if digest is None:
        names, stamp, digest = identify_files(paths, table.root, _stored(folder, backbone.dim))
    else:
        names, stamp = relative(paths, table.root), [""] * len(table)
    found, groups = Embeddings.blank(len(table), backbone.dim), group_by_content(digest)
    texts, tried = [np.array(column, dtype=object) for column in (digest, names, stamp)], set[str]()
    for part in _stored(folder, backbone.dim):
        part.move_to(groups, found)
        tried.update(part.path[~part.usable])

    def save(rows: Iterable[int]) -> None:
        rows = [row for row in rows if not (found.problem[row] and names[row] in tried)]
        if rows:
            own = found.features[rows], found.problem[rows], found.note[rows]
            part = EmbeddingPart(*own, *(column[rows] for column in texts))
            part.write(shards.part_file(folder, max(shards.existing_parts(folder), default=-1) + 1))

    if source is not None and groups:
        for rows in _in_batches(_copy(source, table.name, groups, found), MAX_SHARD):
            save(rows)
    if groups:
        each = images_per_shard or IMAGES_PER_SHARD.get(compute.device.type, MAX_SHARD)
        missing = [rows[0] for rows in groups.values()]
        # what is tried once more comes last, so that the others are encoded in the same batches after a stop
        batches = _in_batches([row for row in missing if names[row] not in tried], each)
        batches += _in_batches([row for row in missing if names[row] in tried], each)
        encoder = encoder or trunk_encoder(backbone, compute, len(missing))
        how = {"draft": manifest.get("draft", 0), "decoded": decoded}
        embed_rows(paths, encoder, backbone.image_size, batches, found, save, progress, **how)
        found.copy_to_duplicates(groups.values(), paths)
    return found


def _store_vectors(
    table: Table, vectors: np.ndarray, folder: Path, digest: Sequence[str] | None, encoder: Encoder | None
) -> Embeddings:
    """Return vectors (N, D) in the place of features, and add to the folder what it does not hold."""
    digest = digest or vector_digests(vectors)
    found = Embeddings.blank(len(table), vectors.shape[1])
    found.features[:] = _encode_vectors(vectors, encoder)
    stored = {one for part in _stored(folder, vectors.shape[1]) for one in part.digest}
    if rows := [group[0] for key, group in group_by_content(digest).items() if key not in stored]:
        names = relative([str(path) for path in table.path], table.root)
        digests, paths, stamps = (np.array(c, dtype=object)[rows] for c in (digest, names, [""] * len(names)))
        own = found.features[rows], found.problem[rows], found.note[rows]
        part = EmbeddingPart(*own, digests, paths, stamps)
        part.write(shards.part_file(folder, max(shards.existing_parts(folder), default=-1) + 1))
    return found


@torch.no_grad()
def _encode_vectors(vectors: np.ndarray, encoder: Encoder | None) -> np.ndarray:
    """(n, D) as they are, or as the trained encoder sees them."""
    if encoder is None:
        return vectors
    parts = (torch.from_numpy(part.copy()) for part in np.array_split(vectors, 1 + len(vectors) // MAX_SHARD))
    return torch.cat([encoder.embed(part.to(encoder.device)).float().cpu() for part in parts]).numpy()


def _claim(folder: Path, backbone: Backbone, root: str) -> dict[str, Any]:
    """Return the manifest of a store for a table, written where it is new or the images were moved."""
    manifest, facts = shards.read_manifest(folder), backbone_facts(backbone)
    manifest = {"backbone": backbone.name, "draft": DRAFT, **facts} if manifest is None else manifest
    shards.check_manifest(folder, manifest, facts)
    if manifest.get("root") != root:
        write_text(folder / shards.MANIFEST_FILE, dump_json({**manifest, "root": root}))
    return manifest


def _in_batches(rows: Sequence[int], each: int) -> list[np.ndarray]:
    return [np.array(rows[first : first + each], dtype=np.int64) for first in range(0, len(rows), each)]


def _stored(folder: Path, dim: int) -> Iterator[EmbeddingPart]:
    """Read the parts of a store."""
    parts = (_read_part(shards.part_file(folder, n), dim) for n in sorted(shards.existing_parts(folder)))
    return (part for part in parts if part is not None)


def _read_part(file: Path, dim: int) -> EmbeddingPart | None:
    """Read a part; None where it is not there, or was damaged, which is said, and removed."""
    try:
        return EmbeddingPart.read(file, dim)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        log.warning(f"{file} cannot be read ({error}), and is made again.")
        file.unlink(missing_ok=True)
        return None


def _copy(source: EmbeddingParts, name: str, groups: dict[str, list[int]], found: Embeddings) -> list[int]:
    """Put the features that another store holds in their places; returns the first row of each content."""
    before = {key: rows[0] for key, rows in groups.items()}
    for part in source:
        part.move_to(groups, found)
    if not found.features.any():
        raise InputError(f"No image of {name} is among those of {source.folder}; give other embeddings.")
    if groups:
        log.info(f"{len(groups):,} images have no features in {source.folder}, and are embedded now.")
    return [row for key, row in before.items() if key not in groups]


def embed_rows(
    paths: Sequence[str],
    encoder: Encoder,
    size: int,
    batches: Sequence[np.ndarray],
    found: Embeddings,
    save: Callable[[Iterable[int]], None],
    progress: bool,
    **how: Any,
) -> None:
    """Compute rows of `found` and save them batch by batch. how: of encode_rows."""
    n, waiting = len(paths), iter(batches)
    saved = done = n - sum(map(len, batches))
    with (
        StopRequest() as stop,
        progress_bar("Embedding images", n - done, progress) as advance,
        closing(encode_rows(paths, encoder, size, batches, found, **how)) as chunks,
    ):
        for chunk, ends_batch in chunks:
            advance(len(chunk))
            done += len(chunk)
            update_heartbeat(None, step=done, steps=n)
            if ends_batch:
                save(next(waiting))
                saved = done
            if stop.requested:
                stop.leave(f"image {saved:,} of {n:,}")


def encode_rows(
    paths: Sequence[str],
    encoder: Encoder,
    size: int,
    batches: Sequence[np.ndarray],
    found: Embeddings,
    *,
    draft: int = DRAFT,
    decoded: DecodedImages | None = None,
) -> Generator[tuple[np.ndarray, bool], None, None]:
    """Compute rows of `found`; yields those of each batch, and whether it is the last of its batch.

    One stream of images runs through all batches, so that reading never waits for one to be written.
    draft: of decode_one. decoded: takes the images in.
    """
    wanted, short = [paths[row] for batch in batches for row in batch], int(size / CROP_FRACTION)

    def read() -> Generator[tuple[np.ndarray, bool, list[Decoded]], None, None]:
        with closing(decode_in_order(wanted, short, None, progress=False, draft=draft)) as stream:
            for batch in batches:
                for first in range(0, len(batch), encoder.chunk):
                    chunk = batch[first : first + encoder.chunk]
                    images = list(islice(stream, len(chunk)))
                    for row, image in zip(chunk, images, strict=True):
                        if decoded is not None:
                            decoded.add(paths[row], short, image)
                    yield chunk, first + len(chunk) == len(batch), images

    with closing(read()) as chunks:
        # a GPU need not wait for the next images while it computes
        for chunk, ends, images in chunks if encoder.device.type == "cpu" else run_ahead(chunks):
            fill_shard(found, chunk, images, encoder, size)
            yield chunk, ends


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
    rows, columns = (slice(int(start), int(start) + size) for start in (crop.top, crop.left))
    return torch.from_numpy(pixels[rows, columns].copy())


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
    """Absolute; its manifest says of which network and of which root."""
    backbone: BackboneConfig
    device: str

    def ready(self) -> None:
        shards.read_shard_paths(self.folder, 0)

    def __call__(self, number: int, advance: Callable[[int], None] = lambda more: None) -> EmbedCounts:
        """Embed a shard. advance: is told how many more images are done."""
        file = shards.part_file(Path(self.folder), number)
        facts = shards.read_manifest(Path(self.folder)) or {}
        paths, dim = shards.read_shard_paths(self.folder, number), facts["dim"]
        before, left = _read_part(file, dim), len(paths)
        columns = identify_files(paths, facts["root"], [] if before is None else [before])
        names, stamps, digest = (np.array(column, dtype=object) for column in columns)
        blank, groups = Embeddings.blank(len(paths), dim, np.float16), group_by_content(digest)
        part = EmbeddingPart(blank.features, blank.problem, blank.note, digest, names, stamps)
        if before is not None:
            before.move_to(groups, part, broken=True)
        if groups:
            rows = np.array([rows[0] for rows in groups.values()], dtype=np.int64)
            encoder = self.network(facts["backbone_digest"], facts["n"])
            stream = encode_rows(
                paths, encoder, facts["image_size"], [rows], part, draft=facts.get("draft", 0)
            )
            with closing(stream) as chunks:
                for chunk, is_last in chunks:
                    if not is_last:
                        advance(len(chunk))
                        left -= len(chunk)
            part.copy_to_duplicates(groups.values(), paths)
        if groups or before is None or before.seen() != part.seen():
            part.write(file)
        advance(left)  # once the part is there: whoever stops here loses nothing
        broken = part.problem[~part.usable]
        return EmbedCounts(len(paths), dim, len(broken), broken[0] if len(broken) else "")

    def network(self, digest: str, images: int) -> Encoder:
        """Return the network of the manifest, loaded once. images: of all shards."""
        if (digest, self.device) not in _networks:
            loaded = load_backbone(self.backbone)
            if loaded.digest != digest:
                raise InputError(f"{self.backbone.name} is not the same on every machine; copy its weights.")
            self.use(loaded, images)
        return _networks[digest, self.device]

    def use(self, backbone: Backbone, images: int) -> None:
        """Take a network that is loaded already. images: that it will see."""
        _networks.clear()
        network = trunk_encoder(backbone, Device.on(self.device), images)
        _networks[backbone.digest, self.device] = network


class EmbeddingParts:
    """The parts of a folder in the order of their numbers; each iteration reads them anew."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        facts = shards.read_manifest(self.folder)
        if facts is None:
            raise InputError(f"{folder} is no folder of embeddings; make one with holotype embed.")
        shards.check_manifest(self.folder, facts, {"format": EMBEDDINGS_FORMAT})
        self.facts, self.root, self.dim = facts, str(facts["root"]), int(facts["dim"])
        self.files = [shards.part_file(self.folder, n) for n in sorted(shards.existing_parts(self.folder))]
        if not self.files:
            raise InputError(f"{folder} holds no part of embeddings yet; run holotype embed to its end.")
        self.n: int = facts.get("n", -1)
        if self.n < 0:  # a store of `embed_table`, which grows
            self.n = sum(len(part.path) for part in self)

    def __iter__(self) -> Iterator[EmbeddingPart]:
        """Raises InputError for a part that is damaged, and at the end where parts are missing."""
        total = 0
        for file in self.files:
            try:
                part = EmbeddingPart.read(file, self.dim)
            except (OSError, ValueError, KeyError) as error:
                reason = " ".join(str(error).split())[:200]
                raise InputError(f"{file} cannot be read ({reason}); run holotype embed again.") from error
            total += len(part.path)
            yield part
        if self.n not in (total, -1):
            what = f"{self.folder} holds {total:,} of the {self.n:,} images of its {shards.MANIFEST_FILE}"
            raise InputError(f"{what}; run the same holotype embed to its end.")

    def check_network(self, backbone: Backbone) -> None:
        """Raise InputError unless the features are of this network."""
        shards.check_manifest(self.folder, self.facts, backbone_facts(backbone))
