"""Features that `holotype embed` has written, taken over into the embeddings of a discovery (by_content.py).

A discovery knows images by their content; embeddings know them by path, size and time. Where these three are as they
were, the features are still those of the image.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holotype.data.hashing import file_stamps
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.models.backbone import Backbone
from holotype.runs.by_content import Kept
from holotype.runs.embed import LARGEST_SHARD, network_facts
from holotype.runs.embedded import Parts
from holotype.utils.console import progress_bar

log = logging.getLogger(__name__)


def take_over(
    parts: Parts,
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
    parts.check_network(network_facts(backbone))
    kept = Kept(folder, backbone)
    row = {str(path): i for i, path in enumerate(table.path) if digest[i] and digest[i] not in kept.known}
    if not row:
        return
    now = dict(zip(row, file_stamps(list(row)), strict=True))
    seen, some = 0, _Some(kept, digest)
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


class _Some:
    """Rows on their way from one folder to the other."""

    def __init__(self, kept: Kept, digest: Sequence[str]) -> None:
        self.kept, self.digest, self.n = kept, digest, 0
        self.rows: dict[str, tuple[np.ndarray, str]] = {}

    def add(self, row: int, feature: np.ndarray, note: str) -> None:
        self.n += 1
        self.rows[self.digest[row]] = feature.copy(), note
        if len(self.rows) >= LARGEST_SHARD:
            self.write()

    def write(self) -> None:
        if self.rows:
            features, notes = zip(*self.rows.values(), strict=True)
            self.kept.write(list(self.rows), np.stack(features), notes)
        self.rows = {}
