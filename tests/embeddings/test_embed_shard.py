"""Embeddings in slices: the features of embed_table in 16 bits, and only what changed is embedded again."""

from __future__ import annotations

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
from holotype.data.load import load_table, stream_paths
from holotype.embeddings.shards import PLAN_FILE, write_shard_plan
from holotype.embeddings.store import EmbedShard, embed_table
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.utils.device import Device


@pytest.fixture(scope="module")
def network(tiny_backbone_file: Path) -> Backbone:
    return load_backbone(BackboneConfig(str(tiny_backbone_file)))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Seven squares; the third is no image."""
    noise, folder = np.random.default_rng(0), tmp_path / "images"
    folder.mkdir()
    for i in range(7):
        Image.fromarray(noise.integers(0, 255, (36, 36, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    (folder / "2.png").write_bytes(b"no picture")
    return folder


@pytest.fixture
def job(images: Path, network: Backbone, tiny_backbone_file: Path, tmp_path: Path) -> EmbedShard:
    """Slices of 3, with a plan."""
    (tmp_path / "e").mkdir()
    write_shard_plan(tmp_path / "e" / PLAN_FILE, stream_paths(images), 3)
    config = BackboneConfig(str(tiny_backbone_file))
    module._networks.clear()
    return EmbedShard(
        str(tmp_path / "e"), str(images), config, network.digest, network.image_size, network.dim, "cpu"
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    read: list[str] = []
    in_order = module.decode_in_order

    def watched(paths, *rest, **named):
        read.extend(Path(path).name for path in paths)
        return in_order(paths, *rest, **named)

    monkeypatch.setattr(module, "decode_in_order", watched)
    return read


def parts(job: EmbedShard) -> list[Path]:
    return sorted(Path(job.folder).glob("part-*.parquet"))


def test_features_are_those_of_embed_table_in_16_bits(job, images, network, tmp_path) -> None:
    tallies = [job(number) for number in range(3)]
    assert [tally.n for tally in tallies] == [3, 3, 1]
    assert [tally.broken for tally in tallies] == [1, 0, 0]
    assert "2.png" in tallies[0].example
    whole = embed_table(load_table(images), network, Device.on("cpu"), tmp_path / "whole")
    tables = [pq.read_table(part) for part in parts(job)]
    assert [part.name for part in parts(job)] == [f"part-00000{i}.parquet" for i in range(3)]
    assert tables[0].column_names == ["digest", "path", "stamp", "problem", "note", "feature"]
    features = np.array([row for table in tables for row in table["feature"].to_pylist()])
    assert tables[0]["feature"].combine_chunks().flatten().to_numpy(zero_copy_only=False).dtype == np.float16
    np.testing.assert_allclose(features, whole.features, rtol=2e-3, atol=1e-3)
    assert (features[2] == 0).all()
    assert [name for table in tables for name in table["path"].to_pylist()] == [f"{i}.png" for i in range(7)]
    assert [text for table in tables for text in table["problem"].to_pylist()] == list(whole.problem)


def test_a_job_can_be_sent_elsewhere_and_loads_its_network_once(job, monkeypatch) -> None:
    sent = pickle.loads(pickle.dumps(job))
    assert sent == job
    loads: list[str] = []
    monkeypatch.setattr(
        module, "load_backbone", lambda config: loads.append(config.name) or load_backbone(config)
    )
    assert not loads
    for number in range(3):
        pickle.loads(pickle.dumps(job))(number)
    assert len(loads) == 1


def test_parts_that_are_there_need_no_network(job, asked, monkeypatch) -> None:
    first = [job(number) for number in range(3)]
    before = [part.read_bytes() for part in parts(job)]
    module._networks.clear()
    monkeypatch.setattr(module, "load_backbone", lambda config: pytest.fail("the network was loaded"))
    asked.clear()
    assert [job(number) for number in range(3)] == first
    assert asked == []
    assert [part.read_bytes() for part in parts(job)] == before


def test_only_images_of_new_content_are_embedded(job, images, asked) -> None:
    job(0)
    shutil.copy(images / "0.png", images / "1.png")  # known by its content
    os.utime(images / "0.png", (1, 1))
    shutil.copy(images / "5.png", images / "2.png")
    asked.clear()
    assert job(0).broken == 0
    assert asked == ["2.png"]
    rows = pq.read_table(parts(job)[0])["feature"].to_pylist()
    assert rows[1] == rows[0] != rows[2]
    asked.clear()
    job(0)
    assert asked == []


def test_copies_in_a_slice_are_embedded_once(job, images, asked) -> None:
    shutil.copy(images / "0.png", images / "1.png")
    job(0)
    assert asked == ["0.png", "2.png"]
    rows = pq.read_table(parts(job)[0])["feature"].to_pylist()
    assert rows[1] == rows[0]
    assert any(rows[0])


def test_damaged_and_swapped_parts_are_made_anew(job, asked) -> None:
    for number in range(3):
        job(number)
    before = [part.read_bytes() for part in parts(job)]
    flipped = bytearray(before[0])
    flipped[len(flipped) // 3] ^= 1
    parts(job)[0].write_bytes(flipped)
    parts(job)[1].write_bytes(before[2])
    asked.clear()
    for number in range(3):
        job(number)
    assert asked == [f"{i}.png" for i in range(6)]
    assert [part.read_bytes() for part in parts(job)] == before


def test_an_image_that_is_gone_has_a_problem_and_zeros(job, images) -> None:
    job(1)
    (images / "4.png").unlink()
    assert job(1).broken == 1
    table = pq.read_table(parts(job)[0]).to_pydict()
    assert "not a file" in table["problem"][1]
    assert not any(table["feature"][1])


def test_numbers_beyond_16_bits_are_cut(job, monkeypatch) -> None:
    encoder = job.network()
    embed = encoder.embed
    monkeypatch.setattr(encoder, "embed", lambda inputs: embed(inputs) * 0 + 1e6)
    job(1)
    assert pq.read_table(parts(job)[0]).to_pydict()["feature"][0][0] == 65504


def test_other_weights_on_another_machine_are_refused(job, network) -> None:
    from dataclasses import replace

    with pytest.raises(InputError, match="not the same on every machine"):
        replace(job, digest="1" * 64)(0)


def test_it_tells_how_far_it_is_and_ends_once_the_part_is_there(job, monkeypatch) -> None:
    job.use(load_backbone(job.backbone))
    monkeypatch.setattr(job.network(), "chunk", 2)
    told: list[tuple[int, bool]] = []
    job(0, advance=lambda more: told.append((more, bool(parts(job)))))
    assert told == [(2, False), (1, True)]
    torch.manual_seed(0)


# -- the command ------------------------------------------------------------------------------------------


@pytest.fixture
def embed(holotype, images: Path, tiny_backbone_file: Path, tmp_path: Path):
    def call(*more: object):
        words = ["embed", images, "--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress"]
        return holotype(*words, "--out", tmp_path / "o", *more)

    return call


def names(folder: Path, pattern: str = "part-*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def test_command(embed, holotype, tmp_path) -> None:
    for _ in range(2):
        outcome = embed()
        assert outcome.code == 0, outcome.err
        assert "7 images" in outcome.out
    assert embed("--image-size", "48").code == 2
    outcome = holotype("embed", tmp_path / "nowhere")
    assert outcome.code == 2
    assert "nowhere" in outcome.err


def test_command_takes_a_benchmark(holotype, tiny_backbone_file: Path, tmp_path: Path) -> None:
    outcome = holotype(
        "embed", "fashion-sample", "--backbone.name", tiny_backbone_file, "--device", "cpu", "--out", tmp_path
    )
    assert outcome.code == 0, outcome.err
    assert "1,000 images" in outcome.out


def test_shares_of_one_folder(embed, tmp_path) -> None:
    assert embed("--slice", 2, "--only", "2/3").code == 0
    assert names(tmp_path / "o") == ["part-000001.parquet"]
    for share in ("1/3", "3/3"):
        outcome = embed("--only", share)
        assert outcome.code == 0, outcome.err
    assert names(tmp_path / "o") == [f"part-00000{i}.parquet" for i in range(4)]
    before = [path.read_bytes() for path in sorted((tmp_path / "o").glob("part-*"))]
    assert "7 images" in embed().out
    assert [path.read_bytes() for path in sorted((tmp_path / "o").glob("part-*"))] == before
    from holotype.utils.locks import lock_folder

    with lock_folder(tmp_path / "o"):  # a share is not refused where another command works
        assert embed("--only", "1/3").code == 0


def test_new_images_are_noticed(embed, images, tmp_path) -> None:
    assert embed("--slice", 2).code == 0
    shutil.copy(images / "0.png", images / "9.png")
    outcome = embed()
    assert outcome.code == 2


def test_a_slice_that_cannot_be_done_ends_with_3(embed, tmp_path, monkeypatch) -> None:
    fill, broken = module.fill_shard, [True]

    def failing(found, rows, decoded, encoder, size):
        if broken[0] and len(rows) == 1:  # the last slice
            raise RuntimeError("out of memory")
        fill(found, rows, decoded, encoder, size)

    monkeypatch.setattr(module, "fill_shard", failing)
    outcome = embed("--slice", 2)
    assert outcome.code == 3
    assert "out of memory" in outcome.err.strip().splitlines()[-1]
    assert names(tmp_path / "o", "failed*") == ["failed.json"]
    broken[0] = False
    assert embed().code == 0
    assert names(tmp_path / "o", "failed*") == []


def test_ctrl_c_keeps_finished_slices(embed, tmp_path, monkeypatch) -> None:
    fill, calls = module.fill_shard, []

    def press_in_second(*words):
        calls.append(words)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        fill(*words)

    monkeypatch.setattr(module, "fill_shard", press_in_second)
    outcome = embed("--slice", 2)
    assert outcome.code == 130
    assert "Stopped at image 4 of 7" in outcome.err
    assert len(names(tmp_path / "o")) == 2
    assert embed().code == 0
    assert len(calls) == 4
