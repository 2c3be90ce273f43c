"""Embeddings by content: a picture is embedded once, wherever it lies, and found again after it was gone."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import holotype.embeddings.extract as module
from holotype.config.schema import BackboneConfig
from holotype.data.hashing import file_digest
from holotype.data.table import Table
from holotype.embeddings.extract import Embeddings, embed_table
from holotype.embeddings.store import embed_by_content
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.utils.device import Device


@pytest.fixture(scope="module")
def network(tiny_backbone_file: Path) -> Backbone:
    return load_backbone(BackboneConfig(str(tiny_backbone_file)))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six pictures, the last one cut off."""
    folder, noise = tmp_path / "photos", np.random.default_rng(0)
    folder.mkdir()
    for number in range(6):
        Image.fromarray(noise.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    (folder / "5.png").write_bytes((folder / "5.png").read_bytes()[:200])
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read to be embedded."""
    names: list[str] = []
    in_order = module.decode_in_order

    def watched(paths, *rest, **named):
        names.extend(Path(path).name for path in paths)
        return in_order(paths, *rest, **named)

    monkeypatch.setattr(module, "decode_in_order", watched)
    return names


def table_of(photos: Path) -> Table:
    paths = sorted(str(path) for path in photos.rglob("*.png"))
    return Table(
        np.array(paths, dtype=object), np.array([""] * len(paths), dtype=object), (), root=str(photos)
    )


def embedded(photos: Path, network: Backbone) -> Embeddings:
    table = table_of(photos)
    digests = [file_digest(path) for path in table.path]
    return embed_by_content(table, digests, network, Device.on("cpu", "fp32"), photos.parent / "e")


def test_features_are_those_of_any_embedding(photos: Path, network, tmp_path: Path) -> None:
    found = embedded(photos, network)
    table = table_of(photos)
    usual = embed_table(table, network, Device.on("cpu", "fp32"), tmp_path / "usual")
    np.testing.assert_array_equal(found.features, usual.features)
    assert list(found.problem) == list(usual.problem)
    assert "damaged or cut off" in found.problem[5]


def test_only_what_was_never_seen_is_embedded(photos: Path, network, asked: list[str]) -> None:
    first = embedded(photos, network)
    asked.clear()
    again = embedded(photos, network)
    assert asked == ["5.png"]  # one that cannot be read is tried each time
    np.testing.assert_array_equal(again.features, first.features)
    (photos / "0.png").rename(photos / "9.png")  # renamed
    (photos / "1.png").rename(photos.parent / "away")  # gone
    Image.new("RGB", (40, 40), (9, 99, 199)).save(photos / "5.png")  # repaired
    shutil.copy(photos / "2.png", photos / "8.png")  # a copy
    Image.new("RGB", (40, 40), (199, 9, 99)).save(photos / "7.png")  # new
    asked.clear()
    changed = embedded(photos, network)
    assert asked == ["5.png", "7.png"]
    names = [Path(path).stem for path in table_of(photos).path]
    feature = dict(zip(names, changed.features, strict=True))
    np.testing.assert_array_equal(feature["9"], first.features[0])
    np.testing.assert_array_equal(feature["8"], first.features[2])
    assert (feature["5"] != 0).any()
    assert set(changed.problem) == {""}
    (photos.parent / "away").rename(photos / "1.png")  # back
    asked.clear()
    np.testing.assert_array_equal(embedded(photos, network).features[0], first.features[1])
    assert asked == []


def test_copies_are_embedded_once_and_each_has_its_own_problem(
    photos: Path, network, asked: list[str]
) -> None:
    for source, copy in (("0", "6"), ("5", "7")):
        shutil.copy(photos / f"{source}.png", photos / f"{copy}.png")
    found = embedded(photos, network)
    assert asked == ["0.png", "1.png", "2.png", "3.png", "4.png", "5.png"]
    np.testing.assert_array_equal(found.features[6], found.features[0])
    assert found.problem[7] == found.problem[5].replace("5.png", "7.png")
    assert "7.png" in found.problem[7]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to root")
def test_a_file_that_was_closed_is_tried_again(photos: Path, network) -> None:
    (photos / "3.png").chmod(0)
    assert embedded(photos, network).problem[3]
    (photos / "3.png").chmod(0o644)
    assert embedded(photos, network).problem[3] == ""


def test_a_damaged_part_is_made_anew(photos: Path, network, tmp_path: Path, asked: list[str]) -> None:
    first = embedded(photos, network)
    (part,) = (tmp_path / "e").glob("part-*")
    part.write_bytes(b"PAR1 not really")
    asked.clear()
    np.testing.assert_array_equal(embedded(photos, network).features, first.features)
    assert len(asked) == 6


def test_another_network_or_version_is_refused(photos, network, tmp_path) -> None:
    embedded(photos, network)
    with pytest.raises(InputError, match="other weights"):
        embedded(photos, dataclasses.replace(network, digest="1" * 64))
    with pytest.raises(InputError, match="pool or normalisation"):
        embedded(photos, dataclasses.replace(network, changes={"pool": "mean"}))
    manifest = tmp_path / "e" / "manifest.json"
    manifest.write_text(json.dumps({"format": 2, "n": 6}))
    with pytest.raises(InputError, match="another version"):
        embedded(photos, network)
    manifest.write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        embedded(photos, network)
    manifest.unlink()
    with pytest.raises(InputError, match=r"holds shards but no manifest\.json"):
        embedded(photos, network)
    assert list((tmp_path / "e").glob("part-*"))  # nobody's work is thrown away without a word
