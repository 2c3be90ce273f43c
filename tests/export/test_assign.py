"""New images find their place, by their present names, in a file, in parts and in folders; strangers are flagged."""

import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import holotype.export.assign as module
from holotype.errors import InputError
from holotype.export.assign import ASSIGN_COLUMNS, BOX_COLUMNS, UNFIT_NOTE, assign_images, source_stem
from holotype.runs.model_io import load_model
from holotype.utils.serialization import dump_json, read_json
from small_run import small_discovery

from .conftest import draw_new

NAMES = ["<b>.png", "=cmd().png", "Käfer ✓.png", "deeper/=cmd().png", "a 'quote'.png", "two  spaces.png"]


@pytest.fixture
def images(tmp_path) -> Path:
    """Under odd names, and one that is broken."""
    return draw_new(tmp_path / "new images", NAMES)


@pytest.fixture
def assign(holotype, run, images):
    def call(*more: object, source: object = images):
        return holotype("assign", run, source, "--device", "cpu", "--no-progress", *more)

    return call


def renamed(run: Path, name: str) -> None:
    """Let the run have a discovery whose categories have other names."""
    trained = load_model(run, "cpu")
    found = small_discovery(trained.known, list(trained.ids), trained.run_id)
    for category in found.categories:
        category.name = name.format(category.id)
    found.save(run)


def test_a_csv_with_every_image_is_replaced_with_overwrite_alone(run, images, assign) -> None:
    found = assign_images(run, images, device="cpu")
    assert found.out == run / "assigned" / "new images.csv"
    frame = pd.read_csv(found.out, keep_default_na=False)
    assert tuple(frame.columns) == ASSIGN_COLUMNS
    assert (found.n, found.unread, len(frame)) == (7, 1, 7)
    broken = frame[frame.problem.str.contains("broken.jpg")].iloc[0]
    assert (broken.category, broken.kind, broken.fits) == ("", "", False)
    rest = frame[frame.problem == ""]
    assert set(rest.path) == {str(path) for path in images.rglob("*.png")}
    assert sum(found.categories.values()) == 6
    direct = load_model(run, "cpu")
    again = direct.place(direct.features(list(rest.path)))
    assert list(again.category_id) == list(rest.category_id)
    refused = assign()
    assert (refused.code, "--overwrite" in refused.err) == (2, True)
    said = assign("--overwrite").out
    assert all(part in said for part in ("7 images:", "1 could not be read", str(found.out)))


def test_a_table_is_called_after_its_source(run, images, tmp_path) -> None:
    assert source_stem(str(images)) == "new images"
    assert source_stem(str(tmp_path / "list.parquet")) == "list"
    assert source_stem("s3://bucket/2025/new") == "new"
    one = assign_images(run, images / "<b>.png", device="cpu")
    assert (one.n, one.out.name) == (1, "<b>.csv")
    (tmp_path / "list.csv").write_text("path\nnew images/<b>.png\nnew images/two  spaces.png\n")
    assert assign_images(run, tmp_path / "list.csv", device="cpu").n == 2


def test_a_stranger_fits_nothing(run, tmp_path, monkeypatch) -> None:
    """With the limits of a model that never saw such an image; tests/results/test_lda.py has how strange it must be."""
    trained = load_model(run, "cpu")
    trained.centres.limit = np.float32(0)  # nothing is near enough
    monkeypatch.setattr("holotype.runs.model_io.load_model", lambda *_: trained)
    Image.new("RGB", (40, 40), (255, 0, 255)).save(tmp_path / "odd.png")
    found = assign_images(run, tmp_path / "odd.png", copy_to=tmp_path / "sorted", device="cpu")
    assert found.unfit == 1
    assert (tmp_path / "sorted" / UNFIT_NOTE / "odd.png").is_file()


def test_folders_have_the_present_names_and_need_overwrite(run, images, tmp_path, assign) -> None:
    renamed(run, "=it's <{}>/x")
    out, folder, ids = tmp_path / "a.csv", tmp_path / "sorted", load_model(run, "cpu").ids
    said = assign("--out", out, "--copy-to", folder).out
    assert str(folder) in said
    frame = pd.read_csv(out, keep_default_na=False)
    placed = frame[frame.problem == ""]  # with the apostrophe nothing is computed
    assert list(placed.category) == [f"'=it's <{id}>/x" for id in placed.category_id]
    linked = list(folder.rglob("*.png"))
    assert len(linked) == 6  # both files called =cmd().png are there
    assert {path.parent.name for path in linked} <= {f"=it's _{id}__x" for id in ids} | {UNFIT_NOTE}
    for path in linked:
        assert any(os.path.samefile(path, image) for image in images.rglob("*.png"))
    out.unlink()
    assert "--overwrite" in assign("--out", out, "--copy-to", folder).err
    assert not out.exists()  # that was said before the work
    assert assign("--out", out, "--copy-to", folder, "--overwrite").code == 0
    (folder / "mine.txt").write_text("mine")
    assert "mine.txt" in assign("--out", out, "--copy-to", folder, "--overwrite").err
    assert len(list(folder.rglob("*.png"))) == 6


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("{tmp}/absent", "does not exist"),
        ("{run}", "There is no image in"),
        ("{new} --out x.txt", "does not end in .csv or .parquet"),
        ("{new} --slice 2 --copy-to x", "--copy-to goes with one file"),
        ("{new} --slice 2 --out x.csv", "names a file"),
        ("{new} --only 0/4", "is no share of the work"),
        ("{new} --actors 2", "says nothing without --engine ray"),
    ],
)
def test_bad_input_is_one_sentence(words, says, run, tmp_path, holotype) -> None:
    new = draw_new(tmp_path / "new", ["0.png"])
    words = words.format(run=run, new=new, tmp=tmp_path)
    outcome = holotype("assign", run, *words.split(), "--device", "cpu")
    assert outcome.code == 2
    assert says in outcome.err.splitlines()[-1]


def test_a_folder_without_a_model_or_of_another_version_is_one_sentence(run, images, assign) -> None:
    with pytest.raises(InputError, match="holds no trained model"):
        assign_images(images, images)
    small_discovery(("green", "red"), ["green", "red"]).save(run)
    content = read_json(run / "discovery.json")
    (run / "discovery.json").write_text(dump_json({**content, "format": 0}))
    assert "written by another version" in assign().err


def frame_of(folder: Path) -> pd.DataFrame:
    parts = [pd.read_parquet(file) for file in sorted(folder.glob("part-*.parquet"))]
    return pd.concat(parts, ignore_index=True)


def test_a_folder_of_parts_has_what_the_file_has_and_parts_are_kept_while_images_are(
    assign, run, images, tmp_path, monkeypatch
) -> None:
    outcome = assign("--slice", 3)
    assert outcome.code == 0, outcome.err
    folder = run / "assigned" / "new images"
    before = {path.name: path.read_bytes() for path in folder.glob("part-*")}
    assert sorted(before) == [f"part-00000{i}.parquet" for i in range(3)]
    assert all(part in outcome.out for part in ("7 images:", "1 could not be read", str(folder)))
    one = pd.read_parquet(assign_images(run, images, out=tmp_path / "a.parquet", device="cpu").out)
    parts = frame_of(folder)
    assert tuple(parts.columns) == ASSIGN_COLUMNS
    exact = ["path", "category", "category_id", "kind", "fits", "problem"]
    pd.testing.assert_frame_equal(parts[exact], one[exact])
    np.testing.assert_allclose(parts["probability"], one["probability"], atol=1e-5)
    placed, asked = module.assign_stream, []
    monkeypatch.setattr(module, "assign_stream", lambda *words: asked.extend(words[1]) or placed(*words))
    assert "7 images:" in assign("--engine", "local").out
    assert asked == []
    assert {path.name: path.read_bytes() for path in folder.glob("part-*")} == before
    Image.new("RGB", (40, 40), (9, 9, 9)).save(parts.path[4])
    (folder / "part-000002.parquet").write_bytes(b"PAR1 not really")
    assert assign("--engine", "local").code == 0
    assert asked == list(parts.path[3:])
    assert len(frame_of(folder)) == 7


def test_a_job_can_be_sent_elsewhere_and_corrections_made_since_are_noticed(assign, run) -> None:
    assert assign("--slice", 3).code == 0
    folder = run / "assigned" / "new images"
    job = module.assign_job(run, folder, "cpu")
    module._load_once.cache_clear()
    (folder / "part-000000.parquet").unlink()
    assert pickle.loads(pickle.dumps(job))(0).n == 3
    assert module._load_once.cache_info().currsize == 1
    with pytest.raises(InputError, match="have changed since"):
        replace(job, digest="of another model")._place([], "", print)
    renamed(run, "another name of {}")
    outcome = assign("--engine", "local")
    assert (outcome.code, "not the same: model" in outcome.err) == (2, True)
    assert read_json(folder / "manifest.json")["run_id"] == job.run_id


def test_boxes_shares_and_one_image_in_a_folder_by_name(assign, images, tmp_path) -> None:
    rows = ["path,label,box", '<b>.png,,"0,0,0.5,0.5"', '=cmd().png,,"0,0,0.5,1"', "two  spaces.png,,"]
    (images / "list.csv").write_text("\n".join(rows))
    outcome = assign("--out", tmp_path / "b", "--slice", 1, source=images / "list.csv")
    assert outcome.code == 0, outcome.err
    found = frame_of(tmp_path / "b")
    assert tuple(found.columns) == (*ASSIGN_COLUMNS, *BOX_COLUMNS)
    assert all(found["box"] != "")
    for share in ("1/2", "2/2"):
        assert assign("--out", tmp_path / "parts", "--only", share, "--slice", 2).code == 0
    assert len(frame_of(tmp_path / "parts")) == 7
    assert assign("--out", tmp_path / "one", source=images / "<b>.png").code == 0
    assert list(frame_of(tmp_path / "one")["path"]) == [str(images / "<b>.png")]
