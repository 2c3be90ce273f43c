"""Embeddings as a stream of parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holotype.config.schema import BackboneConfig
from holotype.data.table import Table
from holotype.embeddings.extract import backbone_facts, embed_table
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from holotype.models.backbone import load_backbone
from holotype.utils.device import Device
from tests.conftest import draw_squares
from tests.made_embeddings import write_embeddings

PATHS = [f"a/{row}.jpg" for row in range(23)]
FEATURES = np.random.default_rng(0).normal(size=(23, 4)).astype(np.float32)


@pytest.mark.parametrize(
    ("each", "digits", "kind"), [(5, 5, np.float32), (23, 6, np.float16), (1, 6, np.float32)]
)
def test_every_row_once_in_order(tmp_path: Path, each: int, digits: int, kind: type) -> None:
    folder = write_embeddings(
        tmp_path / "e", PATHS, FEATURES.astype(kind), each=each, digits=digits, problem={7: "cut off"}
    )
    parts = EmbeddingParts(folder)
    assert (parts.n, parts.dim) == (23, 4)
    for _ in range(2):  # a second pass is like the first
        read = list(parts)
        assert [path for part in read for path in part.path] == PATHS
        np.testing.assert_array_equal(np.concatenate([part.feature for part in read]), FEATURES.astype(kind))
        assert all(part.feature.dtype == np.float32 for part in read)
        readable = [path for part in read for path in part.readable().path]
        assert readable == [path for path in PATHS if path != "a/7.jpg"]
    assert parts.absolute("a/0.jpg") == str(tmp_path / "a" / "0.jpg")


def test_parts_come_by_their_numbers(tmp_path: Path) -> None:
    """part-99999 and part-100000 in one folder: by name the second would come first."""
    folder = write_embeddings(tmp_path / "e", PATHS, FEATURES, each=12)
    (folder / "part-00000.parquet").rename(folder / "part-99999.parquet")
    (folder / "part-00001.parquet").rename(folder / "part-100000.parquet")
    assert [path for part in EmbeddingParts(folder) for path in part.path] == PATHS


def test_what_embed_writes_is_read(tmp_path: Path, tiny_backbone_file: Path) -> None:
    draw_squares(tmp_path / "squares")
    files = sorted(str(file) for file in (tmp_path / "squares").rglob("*.png"))[:10]
    table = Table(np.array(files, dtype=object), np.full(10, "", dtype=object), (), root=str(tmp_path))
    backbone = load_backbone(BackboneConfig(str(tiny_backbone_file)))
    found = embed_table(table, backbone, Device.on("cpu", "fp32"), tmp_path / "e", images_per_shard=4)
    parts = EmbeddingParts(tmp_path / "e")
    np.testing.assert_allclose(np.concatenate([part.feature for part in parts]), found.features, rtol=1e-3)
    assert [parts.absolute(path) for part in parts for path in part.path] == files
    parts.check_network(backbone_facts(backbone))
    with pytest.raises(InputError, match="give --backbone"):
        parts.check_network(backbone_facts(backbone) | {"backbone_digest": "another"})


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder of embeddings"):
        EmbeddingParts(tmp_path)
    folder = write_embeddings(tmp_path / "e", PATHS, FEATURES, each=10)
    (folder / "part-00001.parquet").rename(tmp_path / "kept")
    with pytest.raises(InputError, match=r"holds 13 of the 23 images .* to its end"):
        list(EmbeddingParts(folder))
    content = bytearray((tmp_path / "kept").read_bytes())
    content[len(content) // 3] ^= 1
    (folder / "part-00001.parquet").write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"part-00001.parquet cannot be read"):
        list(EmbeddingParts(folder))
    for file in folder.glob("part-*"):
        file.unlink()
    with pytest.raises(InputError, match="holds no part"):
        EmbeddingParts(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        EmbeddingParts(folder)
    (folder / "manifest.json").write_text('{"format": "by content, 1", "dim": 4}')
    with pytest.raises(InputError, match="of another kind"):
        EmbeddingParts(folder)
