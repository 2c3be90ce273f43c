"""The steps of a round, one by one."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from holotype.data.load import load_table
from holotype.discovery.pipeline import discover_table
from holotype.discovery.round_runner import Round, make_experiment
from holotype.export.results_table import write_labels
from holotype.methods import METHODS
from holotype.results.apply_edits import FOLLOWS_NOTE
from holotype.runs.model_io import load_model
from tests.discovery.made_round import edits_file
from tests.training.stubs import STUBS


def test_a_class_that_cannot_be_read_receives_nothing(small, squares_folder, tmp_path, caplog) -> None:
    """Its labelled images are broken: an untrained head would take in other images by chance."""
    photos = Path(shutil.copytree(squares_folder, tmp_path / "photos"))
    (photos / "kite").mkdir()
    for name in ("one.png", "two.png"):
        (photos / "kite" / name).write_bytes(b"no picture")
    for method in ("kmeans", "rpc"):
        run = tmp_path / method
        found = discover_table(load_table(photos), small(method=method, k=5), run, progress=False)
        assert found.known == ("green", "red")
        assert "kite" not in {c.id for c in found.categories} | set(found.images.category_id)
        assert "kite" not in load_model(run, "cpu").ids
        told = (
            "The known class 'kite' takes no part in this round: none of its 2 labelled images can be read."
        )
        assert caplog.text.count(told) == 1
        broken = found.images[found.images.path.str.contains("kite")]
        assert set(broken.note) == {"its label 'kite' takes no part"}
        caplog.clear()


def test_training_is_what_the_settings_say(round: Round) -> None:
    experiment = make_experiment(round, round.table, 4, "rpc")
    assert (experiment.method_name, experiment.k, experiment.cache_views) == ("rpc", 4, "4+2")
    assert experiment.folder == round.own
    steps = experiment.train.epochs * (64 // experiment.train.batch_size)
    assert 100 <= steps < 110
    assert experiment.method.memax_target == "uniform"
    uneven = dataclasses.replace(round, long_tail=True)
    assert make_experiment(uneven, round.table, 4, "rpc").method.memax_target == "estimated"


def test_a_method_that_takes_images_alone_gets_no_token_cache(round: Round, monkeypatch) -> None:
    monkeypatch.setitem(METHODS, "pictures", STUBS["images"])
    monkeypatch.setitem(METHODS, "both", STUBS["tokens then images"])
    assert make_experiment(round, round.table, 4, "pictures").cache_views == "off"
    assert make_experiment(round, round.table, 4, "both").cache_views == "4+2"


@pytest.mark.parametrize("method", ["rpc", "debgcd", "simgcd"])
def test_a_folder_with_the_name_of_a_benchmark_gets_no_recipe(round: Round, method: str) -> None:
    usual = make_experiment(round, round.table, 4, method)
    named = make_experiment(round, dataclasses.replace(round.table, name="aircraft"), 4, method)
    assert named.dataset == "aircraft"
    assert (named.method, named.train, named.backbone) == (usual.method, usual.train, usual.backbone)


def test_labels_that_follow_from_a_merge_are_noted_and_are_not_those_of_people(
    small, squares_folder, tmp_path
) -> None:
    table, asked, run = load_table(squares_folder / "squares.csv"), small(method="kmeans"), tmp_path / "run"
    found = discover_table(table, asked, run, progress=False)
    one, two = (c.id for c in found.categories if c.kind == "novel")
    (image, *_) = found.images.path[found.images.category_id == one]
    file = edits_file(run, ("confirm", image, one, one), ("merge", "", two, one), ("rename", "", one, "sky"))
    images = discover_table(table, asked, run, progress=False, edits=file).images
    noted = images[images.note.str.contains(FOLLOWS_NOTE, regex=False)]
    assert len(noted) > 2
    assert set(noted.label) == {one}
    assert image not in set(noted.path)
    done = write_labels(run, tmp_path / "labels.csv")
    assert done.by_class == {"green": 8, "red": 8, "sky": 1}
