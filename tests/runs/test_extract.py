"""Embeddings: the same features as from the image store, in shards that a stopped run continues."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import holotype.embeddings.extract as module
from holotype.config.schema import BackboneConfig
from holotype.data.hashing import file_stamps
from holotype.data.image_store import ImageStore
from holotype.data.table import Table
from holotype.embeddings.extract import embed_table
from holotype.errors import InputError, Stopped
from holotype.models.backbone import Backbone, load_backbone
from holotype.training.encoder import Encoder
from holotype.training.views import FreshViews
from holotype.utils.device import Device
from holotype.utils.locks import lock_folder
from holotype.utils.serialization import read_json

SHAPES = [(40, 40), (80, 33), (31, 90), (37, 41), (64, 64), (20, 25), (50, 50)]
BROKEN = 3
"""Row of the image that cannot be read."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Seven pictures of different shapes, the fourth cut off, in two known classes."""
    folder, noise = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    paths = [str(folder / f"{i}.png") for i in range(len(SHAPES))]
    for path, shape in zip(paths, SHAPES, strict=True):
        Image.fromarray(noise.integers(0, 255, (*shape, 3), dtype=np.uint8)).save(path)
    Path(paths[BROKEN]).write_bytes(Path(paths[BROKEN]).read_bytes()[:200])
    label = np.array(["a", "b", "", "", "", "", ""], dtype=object)
    return Table(np.array(paths, dtype=object), label, ("a", "b"), root=str(folder))


@pytest.fixture(scope="module")
def network(tiny_backbone_file: Path) -> Backbone:
    return load_backbone(BackboneConfig(str(tiny_backbone_file)))


@pytest.fixture(scope="module")
def compute() -> Device:
    return Device.on("cpu", "fp32")


def read_by_hand(folder: Path) -> dict[str, list]:
    """All shards one after the other, as anybody with a Parquet reader sees them."""
    tables = [pq.read_table(file).to_pydict() for file in sorted(folder.glob("part-*.parquet"))]
    return {name: [value for table in tables for value in table[name]] for name in tables[0]}


def test_features_are_those_of_the_image_store(pictures, network, compute, tmp_path) -> None:
    """The stream cuts and encodes what decoding everything first gives."""
    embedded = embed_table(pictures, network, compute, tmp_path / "e", images_per_shard=3)
    store = ImageStore.decode(list(pictures.path), network.image_size, progress=False)
    rows = torch.tensor([i for i in range(len(pictures)) if i != BROKEN])
    with torch.no_grad():
        expected = FreshViews(store, Encoder(network, compute)).centre(rows)
    np.testing.assert_allclose(embedded.features[rows], expected, rtol=0, atol=1e-5)
    assert embedded.features.dtype == np.float32
    assert (embedded.features[BROKEN] == 0).all()
    assert "damaged or cut off" in embedded.problem[BROKEN]
    assert [i for i, problem in enumerate(embedded.problem) if problem] == [BROKEN]


def test_shards_hold_what_is_returned(pictures, network, compute, tmp_path) -> None:
    embedded = embed_table(pictures, network, compute, tmp_path, images_per_shard=3)
    found = read_by_hand(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "manifest.json",
        *(f"part-0000{i}.parquet" for i in range(3)),
    ]
    assert found["path"] == [f"{i}.png" for i in range(7)]
    assert found["stamp"] == file_stamps(list(pictures.path))
    assert found["problem"] == list(embedded.problem)
    assert found["note"] == list(embedded.note)
    np.testing.assert_array_equal(np.array(found["feature"], dtype=np.float32), embedded.features)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["n"], manifest["images_per_shard"], manifest["image_size"]) == (7, 3, 32)


def test_only_missing_and_damaged_shards_are_computed(pictures, network, compute, tmp_path, asked) -> None:
    first = embed_table(pictures, network, compute, tmp_path, images_per_shard=2)
    (tmp_path / "part-00001.parquet").unlink()
    (tmp_path / "part-00003.parquet").write_bytes(b"PAR1 not really")
    asked.clear()
    again = embed_table(pictures, network, compute, tmp_path)  # the folder knows the size of its shards
    assert asked == list(pictures.path[[2, 3, 6]])
    np.testing.assert_array_equal(again.features, first.features)
    assert list(again.problem) == list(first.problem)
    asked.clear()
    embed_table(pictures, network, compute, tmp_path)
    assert asked == []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were read."""
    paths_read: list[str] = []
    in_order = module.decode_in_order

    def watched(paths, *rest, **named):
        paths_read.extend(paths)
        return in_order(paths, *rest, **named)

    monkeypatch.setattr(module, "decode_in_order", watched)
    return paths_read


@pytest.fixture
def own(pictures: Table, tmp_path: Path) -> Table:
    """A copy of the pictures that may be changed."""
    shutil.copytree(pictures.root, tmp_path / "own")
    paths = [str(tmp_path / "own" / Path(path).name) for path in pictures.path]
    return Table(np.array(paths, dtype=object), pictures.label, pictures.known, root=str(tmp_path / "own"))


def test_a_repaired_image_is_embedded_anew_and_no_other(
    pictures, own, network, compute, tmp_path, asked
) -> None:
    first = embed_table(own, network, compute, tmp_path / "e", images_per_shard=3)
    shutil.copy(own.path[0], own.path[BROKEN])
    asked.clear()
    again = embed_table(own, network, compute, tmp_path / "e")
    assert asked == [own.path[BROKEN]]
    assert again.problem[BROKEN] == ""
    np.testing.assert_allclose(again.features[BROKEN], first.features[0], rtol=0, atol=1e-5)
    others = [i for i in range(7) if i != BROKEN]
    np.testing.assert_array_equal(again.features[others], first.features[others])
    asked.clear()
    kept = embed_table(own, network, compute, tmp_path / "e")
    assert asked == []
    np.testing.assert_array_equal(kept.features, again.features)
    assert list(kept.problem) == list(again.problem)


def test_an_image_that_breaks_loses_its_features(own, network, compute, tmp_path) -> None:
    embed_table(own, network, compute, tmp_path / "e")
    Path(own.path[1]).write_bytes(b"no picture any more")
    Path(own.path[2]).unlink()
    again = embed_table(own, network, compute, tmp_path / "e")
    assert "not an image" in again.problem[1]
    assert "not a file" in again.problem[2]
    assert (again.features[[1, 2, BROKEN]] == 0).all()
    assert (again.features[[0, 4, 5, 6]] != 0).any(axis=1).all()


def test_a_moved_folder_finds_its_embeddings(own, network, compute, tmp_path, asked) -> None:
    first = embed_table(own, network, compute, tmp_path / "e")
    shutil.move(own.root, tmp_path / "elsewhere")
    paths = [path.replace("/own/", "/elsewhere/") for path in own.path]
    moved = dataclasses.replace(own, path=np.array(paths, dtype=object), root=str(tmp_path / "elsewhere"))
    asked.clear()
    again = embed_table(moved, network, compute, tmp_path / "e")
    assert asked == []
    np.testing.assert_array_equal(again.features, first.features)
    assert json.loads((tmp_path / "e" / "manifest.json").read_text())["root"] == moved.root


def test_a_shard_of_other_images_is_no_shard(own, network, compute, tmp_path, asked) -> None:
    """Swapped files: the same number of images and the same backbone."""
    first = embed_table(own, network, compute, tmp_path / "e", images_per_shard=3)
    shards = [tmp_path / "e" / f"part-0000{i}.parquet" for i in range(2)]
    one, two = (shard.read_bytes() for shard in shards)
    shards[0].write_bytes(two)
    shards[1].write_bytes(one)
    asked.clear()
    again = embed_table(own, network, compute, tmp_path / "e")
    assert asked == list(own.path[:6])
    np.testing.assert_array_equal(again.features, first.features)


def test_another_version_is_refused(own, network, compute, tmp_path) -> None:
    embed_table(own, network, compute, tmp_path / "e")
    manifest = tmp_path / "e" / "manifest.json"
    manifest.write_text(json.dumps(read_json(manifest) | {"format": 1}))
    with pytest.raises(InputError, match="the version of their format"):
        embed_table(own, network, compute, tmp_path / "e")


def test_ctrl_c_keeps_finished_shards(pictures, network, compute, tmp_path, monkeypatch) -> None:
    whole = embed_table(pictures, network, compute, tmp_path / "whole", images_per_shard=2)
    fill, calls = module.fill_shard, []

    def press_in_second(*words):
        calls.append(words)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        fill(*words)

    monkeypatch.setattr(module, "fill_shard", press_in_second)
    with pytest.raises(Stopped, match="image 4 of 7"):
        embed_table(pictures, network, compute, tmp_path / "part", images_per_shard=2)
    assert len(list((tmp_path / "part").glob("part-*"))) == 2
    monkeypatch.setattr(module, "fill_shard", fill)
    again = embed_table(pictures, network, compute, tmp_path / "part", images_per_shard=2)
    np.testing.assert_array_equal(again.features, whole.features)


def test_other_labels_find_the_same_shards(pictures, network, compute, tmp_path) -> None:
    """Confirmed labels change the table and not the images."""
    embed_table(pictures, network, compute, tmp_path)
    stamp = (tmp_path / "part-00000.parquet").stat().st_mtime_ns
    label = np.array(["b", "b", "a", "", "", "", ""], dtype=object)
    embed_table(dataclasses.replace(pictures, label=label), network, compute, tmp_path)
    assert (tmp_path / "part-00000.parquet").stat().st_mtime_ns == stamp


def test_embeddings_of_something_else_are_refused(pictures, network, compute, tmp_path) -> None:
    embed_table(pictures, network, compute, tmp_path)
    with pytest.raises(InputError, match=r"the list of images, the number of images"):
        embed_table(pictures.take([0, 1, 2]), network, compute, tmp_path)
    with pytest.raises(InputError, match=r"something else \(not the same: the backbone\)"):
        embed_table(pictures, dataclasses.replace(network, digest="1" * 64), compute, tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        embed_table(pictures, network, compute, tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(InputError, match="nobody knows of what"):
        embed_table(pictures, network, compute, tmp_path)


# -- the command ----------------------------------------------------------------------------------------


def test_command(holotype, squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path) -> None:
    words = ["embed", squares_folder, "--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress"]
    for _ in range(2):
        outcome = holotype(*words, "--out", tmp_path / "e")
        assert outcome.code == 0, outcome.err
        assert "64 images" in outcome.out
    assert len(read_by_hand(tmp_path / "e")["path"]) == 64
    outcome = holotype(*words, "--image-size", "48", "--out", tmp_path / "e")
    assert outcome.code == 2
    assert "the image size" in outcome.err
    outcome = holotype("embed", tmp_path / "nowhere")
    assert outcome.code == 2
    assert "nowhere" in outcome.err


def test_command_takes_a_benchmark(holotype, tiny_backbone_file: Path, tmp_path: Path) -> None:
    outcome = holotype(
        "embed", "fashion-sample", "--backbone.name", tiny_backbone_file, "--device", "cpu", "--out", tmp_path
    )
    assert outcome.code == 0, outcome.err
    assert "1,000 images" in outcome.out


def test_of_two_commands_in_a_folder_one_runs(
    holotype, squares_folder: Path, tiny_backbone_file, tmp_path
) -> None:
    words = ("--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress", "--out", tmp_path / "o")
    for command in ("embed", "estimate-k"):
        with lock_folder(tmp_path / "o"):
            outcome = holotype(command, squares_folder, *words)
        assert outcome.code == 2
        assert "in use by" in outcome.err
