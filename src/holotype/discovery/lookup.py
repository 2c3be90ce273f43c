"""Images of a run that look most like a picture: `python -m holotype.discovery.lookup RUN < PICTURE`, for the studio.

It prints a line of JSON: {"digest": cosine of the frozen features, ...}, the most alike first. Nothing is kept.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from holotype.config.schema import DiscoverConfig
from holotype.discovery.pipeline import stored_backbone
from holotype.embeddings.store import EmbeddingPart, Embeddings, encode_rows
from holotype.errors import InputError
from holotype.models.backbone import load_backbone
from holotype.results.lda import unit_rows
from holotype.training.encoder import Encoder
from holotype.utils.device import Device

MOST = 60


def most_alike(run: Path, picture: bytes) -> dict[str, float]:
    """Return the digests of the images of a run that look most like a picture, and their cosines."""
    stored = stored_backbone(run, DiscoverConfig().network)
    if stored is None:
        raise InputError(f"{run} holds no discovery.")
    backbone = load_backbone(stored)
    found = Embeddings.blank(1, backbone.dim)
    with TemporaryDirectory() as private:
        file = Path(private) / "picture"
        file.write_bytes(picture)
        batches = [np.zeros(1, dtype=int)]
        for _ in encode_rows(
            [str(file)], Encoder(backbone, Device.on("cpu")), backbone.image_size, batches, found
        ):
            pass
        if found.problem[0]:
            raise InputError("This picture cannot be read; choose another one.")
    own = unit_rows(found.features)[0]
    cosine: dict[str, float] = {}
    for part in sorted((run / "embeddings").glob("part-*.parquet")):
        held = EmbeddingPart.read(part, backbone.dim)
        likeness = unit_rows(np.asarray(held.features, np.float32)) @ own
        rows = zip(held.digest, likeness.tolist(), held.usable, strict=True)
        cosine |= {digest: value for digest, value, usable in rows if digest and usable}
    best = sorted(cosine, key=lambda digest: -cosine[digest])[:MOST]
    return {digest: round(cosine[digest], 4) for digest in best}


if __name__ == "__main__":
    try:
        print(json.dumps(most_alike(Path(sys.argv[1]), sys.stdin.buffer.read())), flush=True)
        os._exit(0)  # threads of libraries that are still at work must not turn an answer into a crash
    except InputError as problem:
        sys.exit(" ".join(str(problem).split()))
