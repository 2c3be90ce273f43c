"""Features on their way from `holotype embed` to a discovery: none is computed twice, and none is taken by mistake."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import holotype.embeddings.extract as embed
from holotype.config.schema import BackboneConfig
from holotype.data.hashing import file_stamps, image_digests
from holotype.data.table import Table
from holotype.embeddings.extract import Embeddings, embed_table
from holotype.embeddings.store import EmbeddingParts, embed_by_content, import_embeddings
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.utils.device import Device
from tests.conftest import draw_squares


@pytest.fixture(scope="module")
def network(tiny_backbone_file: Path) -> Backbone:
    return load_backbone(BackboneConfig(str(tiny_backbone_file)))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    root = tmp_path / "squares"
    files = [str(root / path) for path, _, _ in draw_squares(root)][:24]
    return Table(np.array(files, dtype=object), np.full(24, "", dtype=object), (), name="s", root=str(root))


@pytest.fixture
def parts(table: Table, network: Backbone, tmp_path: Path) -> EmbeddingParts:
    embed_table(table, network, Device.on("cpu", "fp32"), tmp_path / "e", images_per_shard=7)
    return EmbeddingParts(tmp_path / "e")


def content(table: Table) -> list[str]:
    paths = [str(path) for path in table.path]
    return image_digests(paths, file_stamps(paths), [None] * len(paths))


def embedded(table: Table, network: Backbone, folder: Path) -> Embeddings:
    return embed_by_content(table, content(table), network, Device.on("cpu", "fp32"), folder)


def test_nothing_is_computed_again(
    table: Table, parts: EmbeddingParts, network: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = table.take(np.arange(3, 20, 2))
    wanted = embedded(some, network, tmp_path / "own")
    monkeypatch.setattr(embed, "embed_rows", lambda *given: pytest.fail("computed again"))
    for _ in range(2):  # the second time finds all of it there
        import_embeddings(parts, some, content(some), network, tmp_path / "taken")
    found = embedded(some, network, tmp_path / "taken")
    np.testing.assert_allclose(found.features, wanted.features, rtol=2e-3, atol=2e-3)
    assert len(list((tmp_path / "taken").glob("part-*"))) == 1


def test_a_file_that_has_changed_is_embedded_anew(
    table: Table, parts: EmbeddingParts, network: Backbone, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = str(table.path[0]), str(table.path[23])
    Path(one).write_bytes(Path(other).read_bytes())
    os.utime(one, (1, 1))
    with caplog.at_level("INFO"):
        import_embeddings(parts, table, content(table), network, tmp_path / "taken")
    assert "23 images have features" in caplog.text
    assert "1 are not there" in caplog.text
    found = embedded(table, network, tmp_path / "taken")
    assert np.array_equal(found.features[0], found.features[23])


def test_embeddings_of_others(table: Table, parts: EmbeddingParts, network: Backbone, tmp_path: Path) -> None:
    elsewhere = Table(
        np.array([str(tmp_path / "x.png")], dtype=object), np.array([""], dtype=object), (), name="x"
    )
    with pytest.raises(InputError, match=r"None of the 1 images of x"):
        import_embeddings(parts, elsewhere, ["d"], network, tmp_path / "taken")
    parts.facts["backbone_digest"] = "another"
    with pytest.raises(InputError, match="holds embeddings of"):
        import_embeddings(parts, table, content(table), network, tmp_path / "taken")
