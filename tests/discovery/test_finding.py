"""The steps of a round, one by one."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.categories.standing import FOLLOWS
from holotype.data.sources import load_table
from holotype.discovery.best_backbone import choose_backbone
from holotype.discovery.config import DiscoverConfig
from holotype.discovery.constraints import Constraints
from holotype.discovery.finding import COUNT, Round, choose_k, count_categories, make_experiment
from holotype.discovery.workflow import discover_table
from holotype.errors import InputError
from holotype.methods import METHODS
from holotype.placing.written import write_labels
from holotype.runs.trained import load_trained
from tests.discovery.made_round import edits_file
from tests.training.stubs import STUBS


@pytest.fixture
def round(squares_folder, tiny_backbone_file, tmp_path) -> Round:
    config = DiscoverConfig(steps=100, backbone=str(tiny_backbone_file), device="cpu")
    chosen = choose_backbone(config.network, "cpu")
    table = load_table(squares_folder / "squares.csv")
    return Round(table, config, chosen, tmp_path, tmp_path / "rounds" / "1", 1)


def change(round: Round, **settings: object) -> Round:
    return dataclasses.replace(round, config=dataclasses.replace(round.config, **settings))


def test_an_estimate_is_kept_and_made_anew_for_other_labels(round: Round, monkeypatch) -> None:
    features = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).numpy()
    first = count_categories(round, features)
    stored = json.loads((round.folder / COUNT).read_text())
    assert stored["best"] == first.best
    monkeypatch.setattr(
        "holotype.discovery.finding.estimate_table", lambda *_, **__: pytest.fail("counted again")
    )
    assert count_categories(round, features) == first
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        count_categories(change(round, seed=1), features)
    (round.folder / COUNT).write_text("{")
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        count_categories(round, features)


def test_a_given_k_counts_at_least_the_known_classes(round: Round, caplog) -> None:
    assert choose_k(change(round, k=4), torch.zeros(64, 8).numpy()) == (4, None)
    assert choose_k(change(round, k=1), torch.zeros(64, 8).numpy()) == (2, None)
    assert "--k 1 becomes 2" in caplog.text


def test_rejected_images_are_neither_counted_nor_trained_on(round: Round, monkeypatch) -> None:
    features = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).numpy()
    count_categories(round, features)
    out = frozenset(
        Path(str(path)).relative_to(round.table.root).as_posix() for path in round.table.path[:10]
    )
    less = dataclasses.replace(round, given=Constraints(rejected=out))
    assert less.out.tolist() == [True] * 10 + [False] * 54
    assert list(np.flatnonzero(less.active.usable)) == [*range(10, 64)]
    seen = []
    monkeypatch.setattr(
        "holotype.discovery.finding.estimate_table",
        lambda table, rows, *_, **__: seen.append((len(table), len(rows))),
    )
    monkeypatch.setattr("holotype.discovery.finding.write_count", lambda *_: None)
    count_categories(less, features)  # what was counted with them does not serve
    assert seen == [(54, 54)]


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
        assert "kite" not in load_trained(run, "cpu").ids
        told = (
            "The known class 'kite' takes no part in this round: none of its 2 labelled images can be read."
        )
        assert caplog.text.count(told) == 1
        broken = found.images[found.images.path.str.contains("kite")]
        assert set(broken.note) == {"its label 'kite' takes no part"}
        caplog.clear()


def test_training_is_what_the_settings_say(round: Round) -> None:
    experiment = make_experiment(round, round.table, 4)
    assert (experiment.method_name, experiment.k, experiment.cache_views) == ("rpc", 4, "4+2")
    assert experiment.folder == round.own
    steps = experiment.train.epochs * (64 // experiment.train.batch_size)
    assert 100 <= steps < 110
    assert experiment.method.memax_target == "uniform"
    uneven = dataclasses.replace(round, long_tail=True)
    assert make_experiment(uneven, round.table, 4).method.memax_target == "estimated"
    with pytest.raises(InputError, match="--long-tail is not for kmeans"):
        make_experiment(change(uneven, method="kmeans"), round.table, 4)


def test_a_method_that_takes_images_alone_gets_no_token_cache(round: Round, monkeypatch) -> None:
    monkeypatch.setitem(METHODS, "pictures", STUBS["images"])
    monkeypatch.setitem(METHODS, "both", STUBS["tokens then images"])
    assert make_experiment(change(round, method="pictures"), round.table, 4).cache_views == "off"
    assert make_experiment(change(round, method="both"), round.table, 4).cache_views == "4+2"


@pytest.mark.parametrize("method", ["rpc", "debgcd", "simgcd"])
def test_a_folder_with_the_name_of_a_benchmark_gets_no_recipe(round: Round, method: str) -> None:
    round = change(round, method=method)
    usual = make_experiment(round, round.table, 4)
    named = make_experiment(round, dataclasses.replace(round.table, name="aircraft"), 4)
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
    noted = images[images.note.str.contains(FOLLOWS, regex=False)]
    assert len(noted) > 2
    assert set(noted.label) == {one}
    assert image not in set(noted.path)
    done = write_labels(run, tmp_path / "labels.csv")
    assert done.by_class == {"green": 8, "red": 8, "sky": 1}
