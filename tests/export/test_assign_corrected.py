"""New images see what people have corrected: names, merges, rejections, and categories that were split off."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from export import made_results
from export.made_results import paths
from holotype.data.load import load_table
from holotype.export.assign import NO_CATEGORY, CorrectedModel, load_corrected
from holotype.results.discovery import Discovery, write_features
from holotype.runs.model_io import TrainedModel, load_model
from small_run import seen, small_discovery, train_small


@pytest.fixture(scope="module")
def model(tmp_path_factory, squares_folder, tiny_backbone_file) -> Path:
    """k-means finds several new categories in an instant."""
    folder = tmp_path_factory.mktemp("run")
    train_small(folder, squares_folder, tiny_backbone_file, "kmeans", k=7)
    return folder


@pytest.fixture(scope="module")
def features(model, squares_folder) -> np.ndarray:
    return load_model(model, "cpu").features(list(load_table(squares_folder / "squares.csv").path)).features


@pytest.fixture
def run(model, features, tmp_path) -> Path:
    """The run folder with its features, to be written to."""
    for name in ("model.json", "model.safetensors"):
        os.link(model / name, tmp_path / name)
    Discovery.load(model).save(tmp_path)
    write_features(tmp_path, features)
    return tmp_path


@pytest.fixture
def trained(run) -> TrainedModel:
    return load_model(run, "cpu")


def edit(run: Path, trained: TrainedModel, *rows: tuple[str, str, str, str]) -> CorrectedModel:
    """The model after edits of the discovery in `run`."""
    made_results.edit(run, *rows)
    return load_corrected(run, trained)


def novel(run: Path) -> list[str]:
    return [c.id for c in Discovery.load(run).categories if c.kind == "novel" and c.n > 3]


def place(model: CorrectedModel | TrainedModel, features: np.ndarray) -> pd.DataFrame:
    return model.place(seen(features))


def test_names_are_those_of_today_and_else_nothing_changes(run, trained, features) -> None:
    plain = place(trained, features)
    frame = place(edit(run, trained), features)
    assert list(frame.category) == list(frame.category_id)
    pd.testing.assert_frame_equal(frame[list(plain.columns)], plain)
    id = novel(run)[0]
    model = edit(run, trained, ("rename", "", id, "=boots <b>"), ("rename", "", "red", "crimson"))
    assert (model.names[id], model.names["red"]) == (("=boots <b>", "novel"), ("crimson", "known"))
    frame = place(model, features)
    assert set(frame.category[frame.category_id == id]) == {"=boots <b>"}
    assert list(frame.typicality) == list(plain.typicality)


def test_merged_ones_are_one_and_rejected_ones_none(run, trained, features) -> None:
    one, two, three = novel(run)[:3]
    model = edit(run, trained, ("merge", "", one, two), ("merge", "", two, "red"), ("reject", "", three, ""))
    assert model.names[one] == model.names[two] == ("red", "known")
    assert model.names[three] == NO_CATEGORY
    before, frame = place(trained, features), place(model, features)
    own = frame[before.category_id.isin([one, two])]
    assert set(own.category_id) == {"red"}
    assert set(own.kind) == {"known"}
    # a merged category is as wide as both: its own images fit, and are spread over all of its range
    assert own.fits.mean() > 0.8
    assert own.typicality.min() < 0.3
    gone = frame[(before.category_id == three).to_numpy()]
    assert set(gone.category_id) == {""}
    assert not gone.fits.any()
    assert gone.typicality.isna().all()


def test_a_category_that_was_split_off_receives_images(run, trained, features) -> None:
    """Those that lie nearer to its centre than to that of what stayed, and only from where it was taken."""
    id = novel(run)[0]
    found = Discovery.load(run)
    rows = np.flatnonzero(found.images.category_id == id)
    unit = features[rows] / np.linalg.norm(features[rows], axis=1, keepdims=True)
    side = unit @ np.linalg.svd(unit - unit.mean(0))[2][0]
    taken = rows[side > np.median(side)]
    model = edit(run, trained, *[("move", found.images.path[row], id, "odd ones") for row in taken])
    assert model.split_off == ["odd ones"]
    before, frame = place(trained, features), place(model, features)
    there = np.flatnonzero(frame.category_id == "odd ones")
    assert len(set(there) & set(taken)) > 0.8 * len(taken)
    assert set(before.category_id[there]) == {id}
    stayed = np.setdiff1d(rows, taken)
    assert len(set(there) & set(stayed)) < 0.2 * len(stayed)
    assert set(frame.kind[there]) == {"novel"}


def test_where_everything_was_moved_out_images_follow(run, trained, features) -> None:
    one, two = novel(run)[:2]
    model = edit(run, trained, *[("move", path, one, two) for path in paths(run, one)])
    before, frame = place(trained, features), place(model, features)
    assert set(frame.category_id[before.category_id == one]) == {two}
    model = edit(run, trained, *[("reject", path, two, "") for path in paths(run, two)])
    assert set(place(model, features).category_id[before.category_id == two]) == {""}


def test_without_features_it_is_told(run, trained, features, caplog) -> None:
    one, two = novel(run)[:2]
    (run / "features.npy").unlink()
    model = edit(run, trained, ("move", paths(run, one)[0], one, "odd ones"), ("merge", "", two, one))
    assert f"holotype cut {run} makes it." in caplog.text
    assert not {"odd ones", two} & set(place(model, features).category_id)


def test_a_discovery_of_another_round_does_not_name(run, trained, features, caplog) -> None:
    found = small_discovery(trained.known, list(trained.ids), "another")
    found.categories[0].name = "wrong"
    found.save(run)
    assert load_corrected(run, trained).names[trained.ids[0]].name == trained.ids[0]
    assert "another round" in caplog.text
    (run / "discovery.json").unlink()
    unread = np.full((1, features.shape[1]), np.nan)
    frame = place(load_corrected(run, trained), np.vstack([features[:2], unread]))
    assert list(frame.category[:2]) == list(frame.category_id[:2])
    assert list(frame.loc[2, ["category_id", "category", "kind"]]) == ["", "", ""]


def test_probabilities_of_new_images_are_read_off_the_run_s_curve(run, trained, features) -> None:
    found = Discovery.load(run)
    halved = ((0.0, 0.0), (1.0, 0.5))
    dataclasses.replace(found, facts=dataclasses.replace(found.facts, calibration_curve=halved)).save(run)
    frame, plain = place(edit(run, trained), features), place(trained, features)
    np.testing.assert_allclose(frame.probability, plain.probability / 2, atol=1e-6)
