"""Preview of a folder that holds no run yet, for the studio: `python -m holotype.discovery.folder_preview IMAGES RUN`.

It prints what it finds as it finds it, a line of JSON each: {"groups": [[row, ...], ...]}, then {"lines": [...]}.
Groups are k-means of what the embedded backbone makes of some images, as many as SECONDS allow; the lines are those of
a dry run. Nothing is written.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holotype.clustering.kmeans import kmeans
from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.discovery.pipeline import preview_discovery
from holotype.embeddings.store import Embeddings, encode_rows
from holotype.errors import InputError
from holotype.models.backbone import load_backbone
from holotype.training.encoder import Encoder
from holotype.utils.device import Device

SECONDS = 5.0
"""Of embedding; starting torch takes about as long."""
MOST_IMAGES, BATCH, LARGEST = 1_000, 32, 20
"""Images that are embedded, at once, and the most groups."""


def look(images: str, run: str) -> None:
    """Print what there is to see."""
    table = load_table(images)
    say(groups=first_groups(table))
    lines = list[str]()
    for line in preview_discovery(table, DiscoverConfig(), Path(run)):
        lines.append(line)
        say(lines=lines)


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def first_groups(table: Table) -> list[list[int]]:
    """Return rows of images that look alike, the largest group first, in each the most typical ones first."""
    backbone, end = load_backbone(BackboneConfig()), time.monotonic() + SECONDS
    encoder = Encoder(backbone, Device.on("auto"))
    some = np.random.default_rng(0).permutation(len(table))[:MOST_IMAGES]
    found, paths = Embeddings.blank(len(table), backbone.dim), [str(path) for path in table.path]
    batches = [some[first : first + BATCH] for first in range(0, len(some), BATCH)]
    done = list[int]()
    for rows, _ in encode_rows(paths, encoder, backbone.image_size, batches, found):
        done += [row for row in rows.tolist() if not found.problem[row]]
        if time.monotonic() > end:
            break
    if len(done) < 2:
        return []
    x = torch.nn.functional.normalize(torch.from_numpy(found.features[done]), dim=-1)
    k = min(LARGEST, max(2, round((len(done) / 2) ** 0.5)))
    result = kmeans(x, k, n_init=3, generator=torch.Generator().manual_seed(0))
    apart = (x - result.centres[result.label]).norm(dim=1)
    order = torch.argsort(apart).tolist()
    groups = [[done[at] for at in order if result.label[at] == group] for group in range(k)]
    return sorted(groups, key=len, reverse=True)


if __name__ == "__main__":
    logging.getLogger("holotype").setLevel(logging.ERROR)
    try:
        look(*sys.argv[1:])
        os._exit(0)  # as in lookup.py
    except InputError as problem:
        sys.exit(" ".join(str(problem).split()))
