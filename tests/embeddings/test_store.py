"""The embedding store: a picture is embedded once, wherever it lies, in parts that a stopped run continues."""

import dataclasses
import json
import os
import pickle
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
from holotype.data.load import stream_paths
from holotype.data.table import Table
from holotype.embeddings.shards import ShardRequest, prepare_shards
from holotype.embeddings.store import EmbeddingParts, Embeddings, EmbedShard, backbone_facts, embed_table
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


@pytest.fixture
def pressing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ctrl-C is pressed while the second batch is encoded; the sizes of all that were."""
    fill, calls = module.fill_shard, []

    def press_in_second(found, rows, *rest):
        calls.append(len(rows))
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        fill(found, rows, *rest)

    monkeypatch.setattr(module, "fill_shard", press_in_second)
    return calls


def table_of(photos: Path) -> Table:
    paths = sorted(str(path) for path in photos.rglob("*.png"))
    label = np.full(len(paths), "", dtype=object)
    return Table(np.array(paths, dtype=object), label, (), name="photos", root=str(photos))


def embed(photos: Path, network: Backbone, folder: str = "e", **more: object) -> Embeddings:
    return embed_table(table_of(photos), network, CPU, photos.parent / folder, **more)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*"))


def columns(folder: Path) -> dict[str, list]:
    tables = [pq.read_table(file).to_pydict() for file in parts(folder)]
    return {name: [value for table in tables for value in table[name]] for name in tables[0]}


def picture(file: Path, colour: tuple[int, int, int] = (9, 99, 199)) -> None:
    Image.new("RGB", (40, 40), colour).save(file)


def test_features_are_those_of_the_image_store_and_parts_hold_them(photos, network, tmp_path) -> None:
    """The stream cuts and encodes what decoding everything first gives."""
    found, paths = embed(photos, network, images_per_shard=3), list(table_of(photos).path)
    store = ImageStore.decode(paths, network.image_size, progress=False)
    rows = torch.tensor([i for i in range(len(SHAPES)) if i != BROKEN])
    with torch.no_grad():
        expected = FreshViews(store, Encoder(network, CPU)).centre(rows)
    np.testing.assert_allclose(found.features[rows], expected, rtol=0, atol=1e-5)
    assert [row for row, problem in enumerate(found.problem) if problem] == [BROKEN]
    held = columns(tmp_path / "e")
    assert len(parts(tmp_path / "e")) == 3
    assert held["path"] == [f"{row}.png" for row in range(7)]
    assert (held["problem"], held["stamp"]) == (list(found.problem), file_stamps(paths))
    assert held["digest"] == [file_digest(path) for path in paths]
    np.testing.assert_array_equal(np.array(held["feature"], dtype=np.float32), found.features)
    stream = EmbeddingParts(tmp_path / "e")  # which can be read as a stream, too
    assert (stream.n, sum(part.usable.sum() for part in stream)) == (7, 6)
    np.testing.assert_array_equal(np.concatenate([part.features for part in stream]), found.features)
    stream.check_network(network)
    with pytest.raises(InputError):
        stream.check_network(dataclasses.replace(network, digest="1" * 64))
    parts(tmp_path / "e")[0].write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match="part-000000"):
        EmbeddingParts(tmp_path / "e")


@pytest.mark.parametrize("by_caller", [False, True])
def test_only_what_was_never_seen_is_embedded(by_caller: bool, photos, network, decoded) -> None:
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
    picture(photos / f"{BROKEN}.png")  # repaired
    shutil.copy(photos / "2.png", photos / "8.png")  # a copy
    picture(photos / "7.png", (199, 9, 99))  # new
    changed = again()
    assert decoded == ["7.png", f"{BROKEN}.png"]
    np.testing.assert_array_equal(changed["9"], first["0"])
    np.testing.assert_array_equal(changed["8"], first["2"])
    assert (changed[str(BROKEN)] != 0).any()
    (photos.parent / "away").rename(photos / "1.png")  # back
    np.testing.assert_array_equal(again()["1"], first["1"])
    assert decoded == []


def test_a_file_whose_size_and_time_are_the_same_is_not_read(photos, network, tmp_path, monkeypatch) -> None:
    embed(photos, network)
    read: list[str] = []
    digest = "holotype.data.hashing.file_digest"
    monkeypatch.setattr(digest, lambda path: read.append(path) or file_digest(path))
    embed(photos, network)
    photos.rename(tmp_path / "moved")
    embed(tmp_path / "moved", network)
    assert read == []
    assert json.loads((tmp_path / "e" / "manifest.json").read_text())["root"] == str(tmp_path / "moved")


def test_copies_are_embedded_once_and_one_that_breaks_loses_its_features(photos, network, decoded) -> None:
    for source, copy in (("0", "7"), (str(BROKEN), "8")):
        shutil.copy(photos / f"{source}.png", photos / f"{copy}.png")
    found = embed(photos, network)
    assert decoded == [f"{row}.png" for row in range(7)]
    np.testing.assert_array_equal(found.features[7], found.features[0])
    assert found.problem[8] == found.problem[BROKEN].replace(f"{BROKEN}.png", "8.png")
    (photos / "1.png").write_bytes(b"no picture any more")
    table = table_of(photos)
    (photos / "2.png").unlink()
    again = embed_table(table, network, CPU, photos.parent / "e")
    broken = [row in (1, 2, BROKEN, 8) for row in range(9)]
    assert [bool(problem) for problem in again.problem] == broken
    assert (again.features == 0).all(axis=1).tolist() == broken


def test_missing_and_damaged_parts_are_made_anew(photos, network, tmp_path, decoded) -> None:
    first = embed(photos, network, images_per_shard=2)
    (tmp_path / "e" / "part-000000.parquet").unlink()
    (tmp_path / "e" / "part-000003.parquet").write_bytes(b"PAR1 not really")
    decoded.clear()
    np.testing.assert_allclose(embed(photos, network).features, first.features, rtol=0, atol=1e-5)
    assert decoded == ["0.png", "1.png", "6.png", f"{BROKEN}.png"]


def test_another_network_or_version_is_refused(photos, network, tmp_path) -> None:
    embed(photos, network)
    for other in ({"digest": "1" * 64}, {"changes": {"pool": "mean"}}, {"image_size": 48}):
        with pytest.raises(InputError, match="something else"):
            embed(photos, dataclasses.replace(network, **other))
    manifest = tmp_path / "e" / "manifest.json"
    for content in (json.dumps({"format": 2, "n": 6}), "[]", "{", None):
        manifest.write_text(content) if content else manifest.unlink()
        with pytest.raises(InputError):
            embed(photos, network)
    assert parts(tmp_path / "e")  # nobody's work is thrown away without a word


def test_ctrl_c_keeps_finished_parts(photos, network, tmp_path, pressing) -> None:
    with pytest.raises(Stopped, match="image 4 of 7"):
        embed(photos, network, "part", images_per_shard=2)
    assert len(parts(tmp_path / "part")) == 2
    again = embed(photos, network, "part", images_per_shard=2)
    whole = embed(photos, network, "whole", images_per_shard=2)
    np.testing.assert_array_equal(again.features, whole.features)


PATHS = [f"a/{row}.jpg" for row in range(23)]
FEATURES = np.random.default_rng(0).normal(size=(23, 4)).astype(np.float32)


@pytest.mark.parametrize(("each", "kind"), [(5, np.float32), (23, np.float16), (1, np.float32)])
def test_every_row_once_in_the_order_of_the_numbers(tmp_path: Path, each: int, kind: type) -> None:
    folder = write_embeddings(tmp_path / "e", PATHS, FEATURES.astype(kind), each=each, problem={7: "cut off"})
    if each == 5:  # by name part-1000000 would come before part-999999
        (folder / "part-000004.parquet").rename(folder / "part-1000000.parquet")
        (folder / "part-000003.parquet").rename(folder / "part-999999.parquet")
    store = EmbeddingParts(folder)
    assert (store.n, store.dim) == (23, 4)
    for _ in range(2):  # a second pass is like the first
        read = list(store)
        assert [path for part in read for path in part.path] == PATHS
        np.testing.assert_array_equal(np.concatenate([part.features for part in read]), FEATURES.astype(kind))
        assert [path for part in read for path in part.path[~part.usable]] == ["a/7.jpg"]


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
    _ = [file.unlink() for file in folder.glob("part-*")]
    for text in (None, "{", '{"format": 3, "dim": 4}'):
        (folder / "manifest.json").write_text(text or (folder / "manifest.json").read_text())
        with pytest.raises(InputError):
            EmbeddingParts(folder)


def test_features_of_another_store_are_copied_by_content(photos, network, tmp_path, decoded, caplog) -> None:
    wanted, source = embed(photos, network), EmbeddingParts(tmp_path / "e")
    shutil.copytree(photos, other := tmp_path / "other")
    (other / "5.png").rename(other / f"{BROKEN}.png")
    picture(other / "8.png")
    decoded.clear()
    with caplog.at_level("INFO"):
        found = embed(other, network, "copied", source=source)
    assert decoded == ["8.png"]
    assert "1 images have no features" in caplog.text
    np.testing.assert_array_equal(found.features[:6], wanted.features[[0, 1, 2, 5, 4, 6]])
    decoded.clear()
    again = embed(other, network, "copied")  # the other store is not needed any more
    np.testing.assert_array_equal(again.features, found.features)
    picture(other / "9.png", (199, 9, 99))
    embed(other, network, "copied", source=source)
    assert decoded == ["9.png"]
    (tmp_path / "third").mkdir()
    picture(tmp_path / "third" / "a.png")
    with pytest.raises(InputError, match="No image of photos is among"):
        embed(tmp_path / "third", network, "nothing", source=source)


@pytest.fixture
def job(photos: Path, network: Backbone, tiny_backbone_file: Path, tmp_path: Path) -> EmbedShard:
    """Slices of 3, with a plan."""
    request = ShardRequest(backbone_facts(network), str(photos), lambda: stream_paths(photos), 3)
    prepare_shards(tmp_path / "s", request)
    module._networks.clear()
    return EmbedShard(str(tmp_path / "s"), BackboneConfig(str(tiny_backbone_file)), "cpu")


def test_shards_are_those_of_embed_table_in_16_bits(job, photos, network, tmp_path, decoded, monkeypatch):
    loads: list[str] = []
    load = lambda config: loads.append(config.name) or load_backbone(config)  # noqa: E731
    monkeypatch.setattr(module, "load_backbone", load)
    job.ready()
    sent = [pickle.loads(pickle.dumps(job)) for _ in range(3)]
    tallies = [one(number) for number, one in enumerate(sent)]
    assert (sent[0] == job, len(loads)) == (True, 1)  # it can be sent elsewhere, and loads its network once
    assert [(tally.n, tally.broken) for tally in tallies] == [(3, 0), (3, 1), (1, 0)]
    assert "3.png" in tallies[1].example
    whole, held = embed(photos, network, "whole"), columns(tmp_path / "s")
    np.testing.assert_allclose(held["feature"], whole.features, rtol=2e-3, atol=1e-3)
    assert pq.read_table(parts(tmp_path / "s")[0])["feature"].type.value_type == "halffloat"
    assert held["path"] == [f"{i}.png" for i in range(7)]
    assert held["problem"] == list(whole.problem)
    # parts that are there need no network, and are not written again
    before = [part.read_bytes() for part in parts(tmp_path / "s")]
    module._networks.clear()
    decoded.clear()
    assert [job(number) for number in range(3)] == tallies
    assert (decoded, len(loads)) == ([], 1)
    assert [part.read_bytes() for part in parts(tmp_path / "s")] == before
    # damaged and swapped ones are made anew
    flipped = bytearray(before[0])
    flipped[len(flipped) // 3] ^= 1
    parts(tmp_path / "s")[0].write_bytes(flipped)
    parts(tmp_path / "s")[1].write_bytes(before[2])
    _ = [job(number) for number in range(3)]
    assert decoded == [f"{i}.png" for i in range(6)]
    assert [part.read_bytes() for part in parts(tmp_path / "s")] == before


def test_of_a_shard_only_images_of_new_content_are_embedded(job, photos, decoded, tmp_path) -> None:
    job(1)
    shutil.copy(photos / "4.png", photos / "5.png")  # known by its content
    os.utime(photos / "4.png", (1, 1))
    shutil.copy(photos / "0.png", photos / f"{BROKEN}.png")
    decoded.clear()
    assert job(1).broken == 0
    assert decoded == [f"{BROKEN}.png"]
    rows = columns(tmp_path / "s")["feature"]
    assert rows[2] == rows[1] != rows[0]
    (photos / "4.png").unlink()
    assert job(1).broken == 1
    table = columns(tmp_path / "s")
    assert "not a file" in table["problem"][1]
    assert not any(table["feature"][1])
    shutil.copy(photos / "0.png", photos / "1.png")
    decoded.clear()
    job(0)
    assert decoded == ["0.png", "2.png"]  # copies in a slice are embedded once


def test_a_shard_tells_how_far_it_is_and_cuts_what_16_bits_cannot_hold(job, network, tmp_path, monkeypatch):
    job.use(network, 3)
    encoder, told = job.network(network.digest, 3), []
    embed_inputs = encoder.embed
    monkeypatch.setattr(encoder, "embed", lambda inputs: embed_inputs(inputs) * 0 + 1e6)
    monkeypatch.setattr(encoder, "chunk", 2)
    job(0, advance=lambda more: told.append((more, bool(parts(tmp_path / "s")))))
    assert told == [(2, False), (1, True)]  # the end once the part is there
    assert columns(tmp_path / "s")["feature"][0][0] == 65504
    with pytest.raises(InputError, match="not the same on every machine"):
        job.network("1" * 64, 3)


@pytest.fixture
def command(holotype, photos: Path, tiny_backbone_file: Path, tmp_path: Path):
    def call(*more: object):
        words = ["embed", photos, "--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress"]
        return holotype(*words, "--out", tmp_path / "o", *more)

    return call


def test_the_command_goes_on_and_refuses_what_differs(command, holotype, photos, tmp_path, tiny_flags):
    for _ in range(2):
        outcome = command()
        assert (outcome.code, "7 images, 64 numbers each" in outcome.out) == (0, True), outcome.err
        assert "1 could not be read and have zeros" in outcome.out
    assert command("--image-size", "48").code == 2
    shutil.copy(photos / "0.png", photos / "9.png")
    assert command().code == 2
    outcome = holotype("embed", tmp_path / "nowhere")
    assert (outcome.code, "nowhere" in outcome.err) == (2, True)
    for name in ("embed", "estimate-k"):  # of two commands in a folder one runs
        with lock_folder(tmp_path / "o"):
            outcome = holotype(name, photos, *tiny_flags[:2], "--out", tmp_path / "o")
        assert (outcome.code, "in use by" in outcome.err) == (2, True)
    outcome = holotype("embed", "fashion-sample", *tiny_flags[:2], "--device", "cpu", "--out", tmp_path / "f")
    assert (outcome.code, "1,000 images" in outcome.out) == (0, True), outcome.err


def test_shares_of_one_folder(command, tmp_path) -> None:
    assert command("--slice", 2, "--only", "2/3").code == 0
    assert [part.name for part in parts(tmp_path / "o")] == ["part-000001.parquet"]
    for share in ("1/3", "3/3"):
        with lock_folder(tmp_path / "o"):  # a share is not refused where another command works
            assert command("--only", share).code == 0
    assert len(parts(tmp_path / "o")) == 4
    before = [path.read_bytes() for path in parts(tmp_path / "o")]
    assert "7 images" in command().out
    assert [path.read_bytes() for path in parts(tmp_path / "o")] == before


def test_a_slice_that_fails_ends_with_3_and_ctrl_c_keeps_finished_ones(
    command, tmp_path, monkeypatch, pressing
):
    outcome = command("--slice", 2)
    assert outcome.code == 130
    assert "Stopped at image 4 of 7" in outcome.err
    assert len(parts(tmp_path / "o")) == 2
    fill, broken = module.fill_shard, [True]

    def failing(found, rows, *rest):
        if broken[0] and len(rows) == 1:  # the last slice
            raise RuntimeError("out of memory")
        fill(found, rows, *rest)

    monkeypatch.setattr(module, "fill_shard", failing)
    outcome = command()
    assert (outcome.code, "out of memory" in outcome.err.strip().splitlines()[-1]) == (3, True)
    assert (tmp_path / "o" / "failed.json").exists()
    broken[0] = False
    assert command().code == 0
    assert not list((tmp_path / "o").glob("failed*"))
    assert pressing == [2, 2, 2, 1]
