"""New images find their place, by their present names, in a file and in folders; strangers are flagged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from holotype.cli.assign import command
from holotype.errors import InputError
from holotype.export.assign import ASSIGN_COLUMNS, UNFIT_NOTE, assign_images, source_stem
from holotype.runs.model_io import load_model
from holotype.utils.serialization import dump_json, read_json
from small_run import small_discovery

from .conftest import draw_new


@pytest.fixture
def images(tmp_path) -> Path:
    """Under odd names."""
    deeper = ("deeper/a 'quote'.png", "deeper/=cmd().png")
    names = ("=cmd().png", "<b>.png", "two  spaces.png", "Käfer ✓.png", *deeper)
    return draw_new(tmp_path / "new images", names)


def test_a_csv_with_every_image_is_replaced_with_overwrite_alone(run, images) -> None:
    found = assign_images(run, images, device="cpu")
    assert found.out == run / "assigned" / "new images.csv"
    frame = pd.read_csv(found.out, keep_default_na=False)
    assert tuple(frame.columns) == ASSIGN_COLUMNS
    assert (found.n, found.unread, len(frame)) == (7, 1, 7)
    broken = frame[frame.path.str.endswith("broken.jpg")].iloc[0]
    assert (broken.category, broken.kind, broken.fits) == ("", "", False)
    assert "broken.jpg" in broken.problem
    rest = frame[frame.problem == ""]
    assert set(rest.path) == {str(path) for path in images.rglob("*.png")}
    assert set(rest.kind) <= {"known", "novel"}
    assert sum(found.categories.values()) == 6
    direct = load_model(run, "cpu")
    again = direct.place(direct.features(list(rest.path)))
    assert list(again.category_id) == list(rest.category_id)
    with pytest.raises(InputError, match=r"new images\.csv.*--overwrite"):
        assign_images(run, images, device="cpu")
    assert assign_images(run, images / "<b>.png", out=found.out, overwrite=True, device="cpu").n == 1


def test_parquet_holds_the_same_in_several_parts(run, images, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("holotype.runs.model_io.READ_BATCH", 2)
    out = assign_images(run, images, out=tmp_path / "a.csv", device="cpu").out
    csv = pd.read_csv(out, keep_default_na=False)
    parquet = pd.read_parquet(assign_images(run, images, out=tmp_path / "a.parquet", device="cpu").out)
    assert tuple(parquet.columns) == ASSIGN_COLUMNS
    assert list(parquet.path) == list(csv.path)
    assert list(parquet.category_id) == list(csv.category_id)
    assert parquet.probability.isna().sum() == 1
    assert parquet.fits.dtype == bool


def test_a_folder_that_exists_is_replaced_with_overwrite_alone(run, images, tmp_path) -> None:
    out, folder = tmp_path / "notes.csv", tmp_path / "sorted"
    assign_images(run, images, out=out, copy_to=folder, device="cpu")
    out.unlink()
    with pytest.raises(InputError, match=r"sorted.*--overwrite"):
        assign_images(run, images, out=out, copy_to=folder, device="cpu")
    assert not out.exists()  # that was said before the work
    assign_images(run, images, out=out, copy_to=folder, overwrite=True, device="cpu")
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match=r"mine\.txt"):
        assign_images(run, images, out=out, copy_to=folder, overwrite=True, device="cpu")
    assert len(list(folder.rglob("*.png"))) == 6


def test_a_table_is_called_after_its_source(run, images, tmp_path) -> None:
    assert source_stem(str(images)) == "new images"
    assert source_stem(str(tmp_path / "list.parquet")) == "list"
    assert source_stem("s3://bucket/2025/new") == "new"
    one = assign_images(run, images / "<b>.png", device="cpu")
    assert (one.n, one.out.name) == (1, "<b>.csv")
    (tmp_path / "list.csv").write_text("path\nnew images/<b>.png\nnew images/two  spaces.png\n")
    assert assign_images(run, tmp_path / "list.csv", device="cpu").n == 2


def test_a_stranger_fits_nothing(run, tmp_path, monkeypatch) -> None:
    """With the limits of a model that never saw such an image; how strange it must be is told in test_centres.py."""
    trained = load_model(run, "cpu")
    trained.centres.limit = np.float32(0)  # nothing is near enough
    monkeypatch.setattr("holotype.runs.model_io.load_model", lambda *_: trained)
    Image.new("RGB", (40, 40), (255, 0, 255)).save(tmp_path / "odd.png")
    found = assign_images(run, tmp_path / "odd.png", copy_to=tmp_path / "sorted", device="cpu")
    assert found.unfit == 1
    assert (tmp_path / "sorted" / UNFIT_NOTE / "odd.png").is_file()


def test_the_file_and_the_folders_have_the_present_names(run, images, tmp_path) -> None:
    trained = load_model(run, "cpu")
    found = small_discovery(trained.known, list(trained.ids), trained.run_id)
    for category in found.categories:
        category.name = f"=it's <{category.id}>/x"
    found.save(run)
    out = assign_images(run, images, copy_to=tmp_path / "sorted", device="cpu").out
    frame = pd.read_csv(out, keep_default_na=False)
    placed = frame[frame.problem == ""]
    shown = [f"'=it's <{id}>/x" for id in placed.category_id]  # with the apostrophe nothing is computed
    assert list(placed.category) == shown
    linked = list((tmp_path / "sorted").rglob("*.png"))
    assert len(linked) == 6  # both files called =cmd().png are there
    assert {path.parent.name for path in linked} <= {f"=it's _{id}__x" for id in trained.ids} | {UNFIT_NOTE}
    for path in linked:
        assert any(os.path.samefile(path, image) for image in images.rglob("*.png"))


def test_the_command_sums_up(run, images, tmp_path, capsys) -> None:
    words = [run, images, "--out", tmp_path / "a.csv", "--copy-to", tmp_path / "by category"]
    assert command([*map(str, words), "--device", "cpu", "--no-progress"]) == 0
    said = capsys.readouterr().out
    for part in ("7 images:", "1 could not be read", str(tmp_path / "a.csv"), str(tmp_path / "by category")):
        assert part in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{run}", "{tmp}/absent"], "does not exist"),
        (["{tmp}", "{images}"], "holds no trained model"),
        (["{run}", "{images}", "--out", "x.txt"], "does not end in .csv or .parquet"),
        (["{run}", "{images}", "--copy-to", "{images}", "--overwrite"], "holds other files"),
        (["{run}", "{run}"], "There is no image in"),
        (["{run}"], "NEW_IMAGES"),
    ],
)
def test_bad_input_is_one_sentence(words, says, run, images, tmp_path) -> None:
    with pytest.raises(InputError, match=says) as told:
        command([word.format(run=run, images=images, tmp=tmp_path) for word in words])
    assert "\n" not in str(told.value)


def test_a_discovery_of_an_older_version_is_one_sentence(run, images) -> None:
    small_discovery(("green", "red"), ["green", "red"]).save(run)
    content = read_json(run / "discovery.json")
    (run / "discovery.json").write_text(dump_json({**content, "format": 0}))
    with pytest.raises(InputError, match="written by another version"):
        assign_images(run, images, device="cpu")
