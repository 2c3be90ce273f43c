"""New images placed slice by slice: the same answers as in one file."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import holotype.export.assign as module
from holotype.errors import InputError
from holotype.export.assign import ASSIGN_COLUMNS, BOX_COLUMNS, assign_images
from holotype.runs.model_io import load_model
from holotype.utils.serialization import read_json
from small_run import small_discovery

from .conftest import draw_new


@pytest.fixture
def images(tmp_path) -> Path:
    return draw_new(tmp_path / "new", [f"{i}.png" for i in range(6)])


@pytest.fixture
def assign(holotype, run, images):
    def call(*more: object, source: object = images):
        return holotype("assign", run, source, "--device", "cpu", "--no-progress", *more)

    return call


def frame_of(folder: Path) -> pd.DataFrame:
    parts = [pd.read_parquet(file) for file in sorted(folder.glob("part-*.parquet"))]
    return pd.concat(parts, ignore_index=True)


def test_a_folder_of_parts_has_what_the_file_has(assign, run, images, tmp_path) -> None:
    outcome = assign("--slice", 3)
    assert outcome.code == 0, outcome.err
    folder = run / "assigned" / "new"
    assert sorted(path.name for path in folder.glob("part-*")) == [f"part-00000{i}.parquet" for i in range(3)]
    for part in ("7 images:", "1 could not be read", str(folder)):
        assert part in outcome.out
    one = pd.read_parquet(assign_images(run, images, out=tmp_path / "a.parquet", device="cpu").out)
    parts = frame_of(folder)
    assert tuple(parts.columns) == ASSIGN_COLUMNS
    exact = ["path", "category", "category_id", "kind", "fits", "problem"]
    pd.testing.assert_frame_equal(parts[exact], one[exact])
    np.testing.assert_allclose(parts["probability"], one["probability"], atol=1e-5)


def test_parts_that_are_there_are_kept_and_changed_images_placed_anew(
    assign, run, images, monkeypatch
) -> None:
    assert assign("--slice", 3).code == 0
    folder = run / "assigned" / "new"
    before = {path.name: path.read_bytes() for path in folder.glob("part-*")}
    placed, asked = module.assign_stream, []
    monkeypatch.setattr(module, "assign_stream", lambda *words: asked.extend(words[1]) or placed(*words))
    outcome = assign("--engine", "local")
    assert "7 images:" in outcome.out
    assert asked == []
    assert {path.name: path.read_bytes() for path in folder.glob("part-*")} == before
    Image.new("RGB", (40, 40), (9, 9, 9)).save(images / "5.png")
    (folder / "part-000002.parquet").write_bytes(b"PAR1 not really")
    assert assign("--engine", "local").code == 0
    assert [Path(path).name for path in asked] == ["3.png", "4.png", "5.png", "broken.jpg"]
    assert len(frame_of(folder)) == 7


def test_shares_and_a_folder_by_name(assign, tmp_path) -> None:
    for share in ("1/2", "2/2"):
        assert assign("--out", tmp_path / "parts", "--only", share, "--slice", 2).code == 0
    assert len(frame_of(tmp_path / "parts")) == 7
    assert assign("--out", tmp_path / "other").code == 0  # a name without an ending is a folder
    assert len(frame_of(tmp_path / "other")) == 7


def test_a_job_can_be_sent_elsewhere(assign, run, images) -> None:
    assert assign("--slice", 3).code == 0
    job = module.assign_job(run, run / "assigned" / "new", "cpu")
    module._load_once.cache_clear()
    (run / "assigned" / "new" / "part-000000.parquet").unlink()
    assert pickle.loads(pickle.dumps(job))(0).n == 3
    assert module._load_once.cache_info().currsize == 1
    with pytest.raises(InputError, match="have changed since"):
        replace(job, digest="of another model")._place([], "", print)


def test_corrections_made_since_are_noticed(assign, run) -> None:
    assert assign("--slice", 3).code == 0
    trained = load_model(run, "cpu")
    found = small_discovery(trained.known, list(trained.ids), trained.run_id)
    found.categories[0].name = "a new name"
    found.save(run)
    outcome = assign("--engine", "local")
    assert outcome.code == 2
    assert "not the same: model" in outcome.err
    manifest = read_json(run / "assigned" / "new" / "manifest.json")
    assert manifest["run_id"] == trained.run_id


def test_boxes_have_their_columns_in_every_part_and_one_image_is_a_source(assign, images, tmp_path) -> None:
    rows = ["path,label,box", '0.png,,"0,0,0.5,0.5"', '1.png,,"0,0,0.5,1"', "2.png,,"]
    (images / "list.csv").write_text("\n".join(rows))
    outcome = assign("--out", tmp_path / "b", "--slice", 1, source=images / "list.csv")
    assert outcome.code == 0, outcome.err
    found = frame_of(tmp_path / "b")
    assert tuple(found.columns) == (*ASSIGN_COLUMNS, *BOX_COLUMNS)
    assert [box != "" for box in found["box"]] == [True] * len(found)
    assert assign("--out", tmp_path / "one", source=images / "1.png").code == 0
    assert list(frame_of(tmp_path / "one")["path"]) == [str(images / "1.png")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--slice", "2", "--copy-to", "x"], "--copy-to goes with one file"),
        (["--slice", "2", "--overwrite"], "--overwrite goes with one file"),
        (["--slice", "2", "--out", "x.csv"], "names a file"),
        (["--only", "0/4"], "is no share of the work"),
        (["--actors", "2"], "says nothing without --engine ray"),
    ],
)
def test_bad_input_is_one_sentence(words, says, assign) -> None:
    outcome = assign(*words)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert says in outcome.err
