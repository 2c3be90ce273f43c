"""The embedding store: a picture is embedded once, wherever it lies, in parts that a stopped run continues."""

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

import holotype.embeddings.store as module
from holotype.config.schema import BackboneConfig
from holotype.data.hashing import file_digest, file_stamps
from holotype.data.image_store import ImageStore
from holotype.data.table import Table
from holotype.embeddings.store import EmbeddingParts, Embeddings, embed_table
from holotype.errors import InputError, Stopped
from holotype.models.backbone import Backbone, load_backbone
from holotype.training.encoder import Encoder
from holotype.training.views import FreshViews
from holotype.utils.device import Device
from holotype.utils.locks import lock_folder
from tests.made_embeddings import write_embeddings

SHAPES = [(40, 40), (80, 33), (31, 90), (37, 41), (64, 64), (20, 25), (50, 50)]
BROKEN = 3
"""Row of the image that cannot be read."""
CPU = Device.on("cpu", "fp32")


@pytest.fixture(scope="module")
def network(tiny_backbone_file: Path) -> Backbone:
    return load_backbone(BackboneConfig(str(tiny_backbone_file)))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Seven pictures of different shapes, the fourth cut off."""
    folder, noise = tmp_path / "photos", np.random.default_rng(0)
    folder.mkdir()
    for number, shape in enumerate(SHAPES):
        Image.fromarray(noise.integers(0, 255, (*shape, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    broken = folder / f"{BROKEN}.png"
    broken.write_bytes(broken.read_bytes()[:200])
    return folder


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read to be embedded."""
    names: list[str] = []
    in_order = module.decode_in_order

    def watched(paths, *rest, **named):
        names.extend(Path(path).name for path in paths)
        return in_order(paths, *rest, **named)

    monkeypatch.setattr(module, "decode_in_order", watched)
    return names


def table_of(photos: Path, **more: object) -> Table:
    paths = sorted(str(path) for path in photos.rglob("*.png"))
    label = np.full(len(paths), "", dtype=object)
    return Table(np.array(paths, dtype=object), label, (), name="photos", root=str(photos), **more)


def embed(photos: Path, network: Backbone, folder: str = "e", **more: object) -> Embeddings:
    return embed_table(table_of(photos), network, CPU, photos.parent / folder, **more)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def test_features_are_those_of_the_image_store(photos: Path, network: Backbone) -> None:
    """The stream cuts and encodes what decoding everything first gives."""
    found = embed(photos, network, images_per_shard=3)
    store = ImageStore.decode(list(table_of(photos).path), network.image_size, progress=False)
    rows = torch.tensor([i for i in range(len(SHAPES)) if i != BROKEN])
    with torch.no_grad():
        expected = FreshViews(store, Encoder(network, CPU)).centre(rows)
    np.testing.assert_allclose(found.features[rows], expected, rtol=0, atol=1e-5)
    assert found.features.dtype == np.float32
    assert (found.features[BROKEN] == 0).all()
    assert [row for row, problem in enumerate(found.problem) if problem] == [BROKEN]


def test_parts_hold_what_is_returned(photos: Path, network: Backbone, tmp_path: Path) -> None:
    found = embed(photos, network, images_per_shard=3)
    tables = [pq.read_table(file).to_pydict() for file in parts(tmp_path / "e")]
    held = {name: [value for table in tables for value in table[name]] for name in tables[0]}
    paths = list(table_of(photos).path)
    assert len(tables) == 3
    assert held["path"] == [f"{row}.png" for row in range(7)]
    assert held["problem"] == list(found.problem)
    assert held["stamp"] == file_stamps(paths)
    assert held["digest"] == [file_digest(path) for path in paths]
    np.testing.assert_array_equal(np.array(held["feature"], dtype=np.float32), found.features)


@pytest.mark.parametrize("by_caller", [False, True])
def test_only_what_was_never_seen_is_embedded(
    by_caller: bool, photos: Path, network: Backbone, decoded: list[str]
) -> None:
    def again() -> dict[str, np.ndarray]:
        table = table_of(photos)
        digest = [file_digest(path) for path in table.path] if by_caller else None
        decoded.clear()
        found = embed(photos, network, digest=digest)
        return dict(zip((Path(path).stem for path in table.path), found.features, strict=True))

    first = again()
    again()
    assert decoded == [f"{BROKEN}.png"]  # one that cannot be read is tried each time
    (photos / "0.png").rename(photos / "9.png")  # renamed
    (photos / "1.png").rename(photos.parent / "away")  # gone
    Image.new("RGB", (40, 40), (9, 99, 199)).save(photos / f"{BROKEN}.png")  # repaired
    shutil.copy(photos / "2.png", photos / "8.png")  # a copy
    Image.new("RGB", (40, 40), (199, 9, 99)).save(photos / "7.png")  # new
    changed = again()
    assert decoded == ["7.png", f"{BROKEN}.png"]
    np.testing.assert_array_equal(changed["9"], first["0"])
    np.testing.assert_array_equal(changed["8"], first["2"])
    assert (changed[str(BROKEN)] != 0).any()
    (photos.parent / "away").rename(photos / "1.png")  # back
    np.testing.assert_array_equal(again()["1"], first["1"])
    assert decoded == []


def test_a_file_is_not_read_again_where_size_and_time_are_the_same(
    photos: Path, network: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(photos, network)
    read: list[str] = []
    monkeypatch.setattr(
        "holotype.data.hashing.file_digest", lambda path: read.append(path) or file_digest(path)
    )
    embed(photos, network)
    photos.rename(tmp_path / "moved")
    embed(tmp_path / "moved", network)
    assert read == []
    assert json.loads((tmp_path / "e" / "manifest.json").read_text())["root"] == str(tmp_path / "moved")


def test_copies_are_embedded_once_and_each_has_its_own_problem(
    photos: Path, network: Backbone, decoded: list[str]
) -> None:
    for source, copy in (("0", "7"), (str(BROKEN), "8")):
        shutil.copy(photos / f"{source}.png", photos / f"{copy}.png")
    found = embed(photos, network)
    assert decoded == [f"{row}.png" for row in range(7)]
    np.testing.assert_array_equal(found.features[7], found.features[0])
    assert found.problem[8] == found.problem[BROKEN].replace(f"{BROKEN}.png", "8.png")
    assert "8.png" in found.problem[8]


def test_an_image_that_breaks_loses_its_features(photos: Path, network: Backbone) -> None:
    embed(photos, network)
    (photos / "1.png").write_bytes(b"no picture any more")
    table = table_of(photos)
    (photos / "2.png").unlink()
    again = embed_table(table, network, CPU, photos.parent / "e")
    assert [bool(problem) for problem in again.problem] == [row in (1, 2, BROKEN) for row in range(7)]
    assert (again.features != 0).any(axis=1).tolist() == [row not in (1, 2, BROKEN) for row in range(7)]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to root")
def test_a_file_that_was_closed_is_tried_again(photos: Path, network: Backbone) -> None:
    (photos / "0.png").chmod(0)
    assert embed(photos, network).problem[0]
    (photos / "0.png").chmod(0o644)
    assert embed(photos, network).problem[0] == ""


def test_missing_and_damaged_parts_are_made_anew(
    photos: Path, network: Backbone, tmp_path: Path, decoded: list[str]
) -> None:
    first = embed(photos, network, images_per_shard=2)
    assert [file.name for file in parts(tmp_path / "e")] == [f"part-00000{i}.parquet" for i in range(4)]
    (tmp_path / "e" / "part-000000.parquet").unlink()
    (tmp_path / "e" / "part-000003.parquet").write_bytes(b"PAR1 not really")
    decoded.clear()
    np.testing.assert_allclose(embed(photos, network).features, first.features, rtol=0, atol=1e-5)
    assert decoded == ["0.png", "1.png", "6.png", f"{BROKEN}.png"]


def test_another_network_or_version_is_refused(photos: Path, network: Backbone, tmp_path: Path) -> None:
    embed(photos, network)
    for other in ({"digest": "1" * 64}, {"changes": {"pool": "mean"}}, {"image_size": 48}):
        with pytest.raises(InputError):
            embed(photos, dataclasses.replace(network, **other))
    manifest = tmp_path / "e" / "manifest.json"
    for content in (json.dumps({"format": 2, "n": 6}), "[]", "{"):
        manifest.write_text(content)
        with pytest.raises(InputError):
            embed(photos, network)
    manifest.unlink()
    with pytest.raises(InputError):
        embed(photos, network)
    assert parts(tmp_path / "e")  # nobody's work is thrown away without a word


def test_ctrl_c_keeps_finished_parts(photos: Path, network: Backbone, tmp_path: Path, monkeypatch) -> None:
    whole = embed(photos, network, "whole", images_per_shard=2)
    fill, calls = module.fill_shard, []

    def press_in_second(*words):
        calls.append(words)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        fill(*words)

    monkeypatch.setattr(module, "fill_shard", press_in_second)
    with pytest.raises(Stopped, match="image 4 of 7"):
        embed(photos, network, "part", images_per_shard=2)
    assert len(parts(tmp_path / "part")) == 2
    again = embed(photos, network, "part", images_per_shard=2)
    np.testing.assert_array_equal(again.features, whole.features)


# -- as a stream, and from one store to another -----------------------------------------------------------

PATHS = [f"a/{row}.jpg" for row in range(23)]
FEATURES = np.random.default_rng(0).normal(size=(23, 4)).astype(np.float32)


@pytest.mark.parametrize(("each", "kind"), [(5, np.float32), (23, np.float16), (1, np.float32)])
def test_every_row_once_in_order(tmp_path: Path, each: int, kind: type) -> None:
    folder = write_embeddings(tmp_path / "e", PATHS, FEATURES.astype(kind), each=each, problem={7: "cut off"})
    store = EmbeddingParts(folder)
    assert (store.n, store.dim) == (23, 4)
    for _ in range(2):  # a second pass is like the first
        read = list(store)
        assert [path for part in read for path in part.path] == PATHS
        np.testing.assert_array_equal(np.concatenate([part.features for part in read]), FEATURES.astype(kind))
        readable = [path for part in read for path in part.readable().path]
        assert readable == [path for path in PATHS if path != "a/7.jpg"]
    assert store.absolute("a/0.jpg") == str(tmp_path / "a" / "0.jpg")


def test_parts_come_by_their_numbers(tmp_path: Path) -> None:
    """By name part-1000000 would come before part-999999."""
    folder = write_embeddings(tmp_path / "e", PATHS, FEATURES, each=12)
    (folder / "part-000000.parquet").rename(folder / "part-999999.parquet")
    (folder / "part-000001.parquet").rename(folder / "part-1000000.parquet")
    assert [path for part in EmbeddingParts(folder) for path in part.path] == PATHS


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder of embeddings"):
        EmbeddingParts(tmp_path)
    folder = write_embeddings(tmp_path / "e", PATHS, FEATURES, each=10)
    (folder / "part-000001.parquet").rename(tmp_path / "kept")
    with pytest.raises(InputError, match="13 of the 23 images"):
        list(EmbeddingParts(folder))
    content = bytearray((tmp_path / "kept").read_bytes())
    content[len(content) // 3] ^= 1
    (folder / "part-000001.parquet").write_bytes(bytes(content))
    with pytest.raises(InputError, match=r"part-000001.parquet"):
        list(EmbeddingParts(folder))
    for file in folder.glob("part-*"):
        file.unlink()
    for content in (None, "{", '{"format": 3, "dim": 4}'):
        if content:
            (folder / "manifest.json").write_text(content)
        with pytest.raises(InputError):
            EmbeddingParts(folder)


def test_what_a_table_left_is_read_as_a_stream(photos: Path, network: Backbone, tmp_path: Path) -> None:
    found = embed(photos, network, images_per_shard=4)
    store = EmbeddingParts(tmp_path / "e")
    assert store.n == 7
    np.testing.assert_array_equal(np.concatenate([part.features for part in store]), found.features)
    assert sum(part.usable.sum() for part in store) == 6
    store.check_network(network)
    with pytest.raises(InputError):
        store.check_network(dataclasses.replace(network, digest="1" * 64))
    parts(tmp_path / "e")[0].write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="part-000000"):
        list(EmbeddingParts(tmp_path / "e"))


def test_features_of_another_store_are_copied_by_content(
    photos: Path, network: Backbone, tmp_path: Path, decoded: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    wanted = embed(photos, network)
    source = EmbeddingParts(tmp_path / "e")
    shutil.copytree(photos, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "5.png").rename(tmp_path / "elsewhere" / f"{BROKEN}.png")
    Image.new("RGB", (40, 40), (9, 99, 199)).save(tmp_path / "elsewhere" / "8.png")
    decoded.clear()
    with caplog.at_level("INFO"):
        found = embed(tmp_path / "elsewhere", network, "copied", source=source)
    assert decoded == ["8.png"]
    assert "1 images have no features" in caplog.text
    np.testing.assert_array_equal(found.features[:6], wanted.features[[0, 1, 2, 5, 4, 6]])
    decoded.clear()
    again = embed(tmp_path / "elsewhere", network, "copied")  # the other store is not needed any more
    np.testing.assert_array_equal(again.features, found.features)
    Image.new("RGB", (40, 40), (199, 9, 99)).save(tmp_path / "elsewhere" / "9.png")
    embed(tmp_path / "elsewhere", network, "copied", source=source)
    assert decoded == ["9.png"]


def test_a_store_of_other_images(photos: Path, network: Backbone, tmp_path: Path) -> None:
    embed(photos, network)
    (tmp_path / "other").mkdir()
    for name in "ab":  # the same content twice
        Image.new("RGB", (40, 40), (9, 99, 199)).save(tmp_path / "other" / f"{name}.png")
    with pytest.raises(InputError, match="None of the 2 images"):
        embed(tmp_path / "other", network, "copied", source=EmbeddingParts(tmp_path / "e"))


# -- the command ----------------------------------------------------------------------------------------


def test_of_two_commands_in_a_folder_one_runs(
    holotype, squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path
) -> None:
    words = ("--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress", "--out", tmp_path / "o")
    for command in ("embed", "estimate-k"):
        with lock_folder(tmp_path / "o"):
            outcome = holotype(command, squares_folder, *words)
        assert outcome.code == 2
        assert "in use by" in outcome.err
