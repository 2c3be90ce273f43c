"""Images of a run that look most like a picture, or fit words: `python -m holotype.discovery.lookup RUN [words]`, which
reads them from its input, for the studio.

It prints a line of JSON: {"digest": cosine, ...}, the most alike first. For words the network is that by which names
were proposed (results/names.py); what it makes of the images is kept in RUN/tower.parquet.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from holotype.config.schema import DiscoverConfig
from holotype.data.decode import ImageProblem, read_resized
from holotype.discovery.pipeline import stored_backbone
from holotype.embeddings.store import EmbeddingPart, Embeddings, encode_rows
from holotype.errors import InputError
from holotype.models.backbone import load_backbone
from holotype.report.page_data import locate_image
from holotype.results.discovery import Discovery
from holotype.results.lda import unit_rows
from holotype.training.encoder import Encoder
from holotype.utils.device import Device, pick_device
from holotype.utils.serialization import TABLE_MARK, read_parquet_table, write_parquet

if TYPE_CHECKING:
    from holotype.models.text_tower import TextTower

MOST = 60
TOWER_FILE, TOWER_BATCH, TOWER_SIDE = "tower.parquet", 64, 512


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
    cosine = dict[str, float]()
    for part in sorted((run / "embeddings").glob("part-*.parquet")):
        held = EmbeddingPart.read(part, backbone.dim)
        likeness = unit_rows(np.asarray(held.features, np.float32)) @ own
        rows = zip(held.digest, likeness.tolist(), held.usable, strict=True)
        cosine |= {digest: value for digest, value, usable in rows if digest and usable}
    return _best(cosine)


def fit_words(run: Path, words: str) -> dict[str, float]:
    """Return the same for words."""
    from holotype.models.text_tower import TextTower
    from holotype.results.names import NAMES_FILE, NAMES_SCHEMA, NameProposals

    if not (run / NAMES_FILE).is_file():
        raise InputError(
            f"Words need a network that knows them: holotype report {run} --names imagenet --tower NETWORK chooses one."
        )
    if not words.strip():
        raise InputError("There is no word to look for.")
    network = NAMES_SCHEMA.make(run / NAMES_FILE, NameProposals).network
    tower = TextTower(network, pick_device("auto"))
    digests, features = _tower_features(run, tower)
    values = features @ tower.encode_words([words.strip()])[0]
    return _best(dict(zip(digests, values.tolist(), strict=True)))


def _tower_features(run: Path, tower: TextTower) -> tuple[list[str], np.ndarray]:
    """Digests and unit features (n, D) of the images of a run that can be read; those that are kept, or else made."""
    import pyarrow as pa

    found, file = Discovery.load(run), run / TOWER_FILE
    held = dict[str, np.ndarray]()
    if file.is_file():
        table = read_parquet_table(file)
        if (table.schema.metadata or {}).get(TABLE_MARK, b"").decode() == tower.name:
            held = {
                key: np.array(value, np.float32)
                for key, value in zip(
                    *(table[name].to_pylist() for name in ("digest", "feature")), strict=True
                )
            }
    paths = dict(zip(found.digests, found.images["path"], strict=True))
    new = [digest for digest in paths if digest and digest not in held]
    for first in range(0, len(new), TOWER_BATCH):
        pictures = dict[str, Image.Image]()
        for digest in new[first : first + TOWER_BATCH]:
            with contextlib.suppress(ImageProblem):
                path = locate_image(paths[digest], found.facts.root)
                pictures[digest] = read_resized(path, TOWER_SIDE, min_side=TOWER_SIDE)
        if pictures:
            held |= dict(zip(pictures, tower.encode_images([*pictures.values()]), strict=True))
    if new and held:
        columns = {"digest": pa.array(held), "feature": pa.array([*held.values()], pa.list_(pa.float32()))}
        write_parquet(file, pa.table(columns).replace_schema_metadata({TABLE_MARK: tower.name.encode()}))
    digests = [digest for digest in paths if digest in held]
    if not digests:
        raise InputError(f"No image of {run} can be read.")
    return digests, np.stack([held[digest] for digest in digests])


def _best(cosine: dict[str, float]) -> dict[str, float]:
    best = sorted(cosine, key=lambda digest: -cosine[digest])[:MOST]
    return {digest: round(cosine[digest], 4) for digest in best}


def look_up(run: Path, what: str, content: bytes) -> dict[str, float]:
    """Return the images that are most like a picture, or fit words. what: which of the two the content is."""
    return fit_words(run, content.decode()) if what == "words" else most_alike(run, content)


if __name__ == "__main__":
    try:
        found = look_up(Path(sys.argv[1]), "".join(sys.argv[2:]), sys.stdin.buffer.read())
        print(json.dumps(found), flush=True)
        os._exit(0)  # threads of libraries that are still at work must not turn an answer into a crash
    except InputError as problem:
        sys.exit(" ".join(str(problem).split()))
