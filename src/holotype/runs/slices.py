"""Features of one slice of a collection: the job that every engine runs, and the folder that it fills.

A part has the columns path (relative to the root of the images), stamp, feature (16 bits), problem and note. A part
that is there is looked at: images whose files have changed since are embedded anew, and no others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holotype.config.schema import BackboneConfig
from holotype.data.hashing import file_stamps
from holotype.data.image_store import CROP_FRACTION, decode_in_order
from holotype.data.paths import relative
from holotype.data.slices import PLAN, part_file, read_slice
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.runs.embed import TOLD, fill, network_facts
from holotype.runs.shard_file import Embeddings, ShardFile
from holotype.training.encoder import Encoder
from holotype.utils.device import Device

FORMAT = 3
"""Of the folder: raised when parts of an older version can no longer be used."""
BEYOND = "its feature has numbers beyond 16 bits, which were cut"

log = logging.getLogger("holotype")

Advance = Callable[[int], None]
"""Is told how many more images are done."""


@dataclass
class Tally:
    """What became of the images of some slices."""

    n: int = 0
    dim: int = 0
    broken: int = 0
    example: str = ""
    """Why one of them could not be read."""

    def add(self, other: Tally) -> None:
        self.n, self.broken, self.dim = self.n + other.n, self.broken + other.broken, other.dim
        self.example = self.example or other.example


_networks: dict[tuple[str, str], Encoder] = {}
"""By digest and device: a process loads its network once."""


@dataclass(frozen=True)
class EmbedSlice:
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
        read_slice(Path(self.folder) / PLAN, 0)

    def __call__(self, number: int, advance: Advance = lambda more: None) -> Tally:
        paths = read_slice(Path(self.folder) / PLAN, number)
        part = ShardFile(part_file(Path(self.folder), number), relative(paths, self.root), file_stamps(paths))
        found = Embeddings.blank(len(paths), self.dim, np.float16)
        rows = part.read(found)
        last = len(paths) - len(rows)
        if len(rows):
            last += self._embed([paths[row] for row in rows], rows, found, advance)
            part.write(found)
        advance(last)  # once the part is there: whoever stops here loses nothing
        broken = [problem for problem in found.problem if problem]
        return Tally(len(paths), self.dim, len(broken), broken[0] if broken else "")

    def _embed(self, paths: list[str], rows: np.ndarray, found: Embeddings, advance: Advance) -> int:
        """Compute some rows; returns how many of them `advance` has not been told of."""
        encoder = self.network()
        stream = decode_in_order(paths, int(self.image_size / CROP_FRACTION), None, progress=False)
        try:
            for first in range(0, len(rows), encoder.chunk):
                some = rows[first : first + encoder.chunk]
                with np.errstate(over="ignore"):
                    fill(found, some, [next(stream) for _ in some], encoder, self.image_size)
                _cut(found, some)
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


def _cut(found: Embeddings, rows: np.ndarray) -> None:
    """16 bits end at 65,504; no network of note comes near it."""
    for row in rows[np.isinf(found.features[rows]).any(axis=1)]:
        found.features[row] = np.nan_to_num(found.features[row], nan=np.nan)
        found.note[row] = "; ".join(filter(None, (found.note[row], BEYOND)))


# -- the folder -----------------------------------------------------------------------------------------


def embed_facts(backbone: Backbone) -> dict[str, Any]:
    """What the manifest of a folder of embeddings says besides its images."""
    return {"format": FORMAT, **network_facts(backbone)}


def embed_told() -> dict[str, str]:
    """Those of them that must be equal."""
    return {key: words for key, words in TOLD.items() if key not in ("images", "n")}
