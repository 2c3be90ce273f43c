"""The steps of a discovery, one by one."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from holotype.data.sources import load_table
from holotype.data.table import Table
from holotype.discovery.best_backbone import choose_backbone
from holotype.discovery.finding import (
    COUNT,
    Placed,
    Round,
    clear_other,
    count_categories,
    make_experiment,
    make_frame,
    name_categories,
)
from holotype.discovery.workflow import DiscoverConfig
from holotype.errors import InputError
from holotype.models.backbone import BackboneConfig
from holotype.runs.embed import Embeddings


@pytest.fixture
def round(squares_folder, tiny_backbone_file, tmp_path) -> Round:
    config = DiscoverConfig(steps=100, backbone=BackboneConfig(str(tiny_backbone_file)), device="cpu")
    chosen = choose_backbone(config.backbone, "cpu")
    return Round(load_table(squares_folder / "squares.csv"), config, chosen, tmp_path, 1, 0, False)


def small_table() -> Table:
    label = np.array(["a", "b", "", "", "", ""], dtype=object)
    problem = ["", "", "", "", "", "broken"]
    return Table(np.array([f"{i}.png" for i in range(6)], dtype=object), label, ("a", "b"), problem=problem)


def test_an_estimate_is_kept_and_made_anew_for_other_labels(round: Round, monkeypatch) -> None:
    features = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).numpy()
    first = count_categories(round, features)
    stored = json.loads((round.folder / COUNT).read_text())
    assert stored["best"] == first.best
    monkeypatch.setattr(
        "holotype.discovery.finding.estimate_table", lambda *_, **__: pytest.fail("counted again")
    )
    assert count_categories(round, features) == first
    round.config.seed = 1
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        count_categories(round, features)
    (round.folder / COUNT).write_text("{")
    with pytest.raises(pytest.fail.Exception, match="counted again"):
        count_categories(round, features)


def test_new_categories_are_numbered_by_size_and_empty_ones_come_last() -> None:
    category = np.array([0, 1, 4, 4, 2, -1])
    assert name_categories(category, small_table(), 5) == ["a", "b", "new-02", "new-03", "new-01"]
    assert name_categories(np.array([0, 1]), small_table(), 2) == ["a", "b"]


def test_a_label_that_the_model_contradicts_is_doubtful_and_told() -> None:
    table = small_table()
    ids = ["a", "b", "new-01"]
    category, said = np.array([0, 1, 2, 0, 2, -1]), np.array([0, 2, 2, 0, 2, -1])
    numbers = np.linspace(0, 1, 6)
    placed = Placed(np.zeros((6, 2)), category, said, numbers, numbers, ids, {})
    note = np.array(["", "", "first of 3 frames used", "", "", ""], dtype=object)
    embedded = Embeddings(np.zeros((6, 2)), table.problem, note)
    frame = make_frame(table, embedded, placed, numbers, np.zeros(6, bool), np.zeros((6, 2)))
    assert frame.category.tolist() == ["a", "b", "new-01", "a", "new-01", ""]
    assert frame.kind.tolist() == ["known", "known", "novel", "known", "novel", ""]
    assert frame.doubtful.tolist() == [False, True, False, False, False, False]
    assert frame.note[1] == "the model would say new-01"
    assert frame.note[2] == "first of 3 frames used"


def test_training_is_what_the_settings_say(round: Round) -> None:
    experiment = make_experiment(round, round.table, 4)
    assert (experiment.method_name, experiment.k, experiment.cache_views) == ("rpc", 4, "4+2")
    steps = experiment.train.epochs * (64 // experiment.train.batch_size)
    assert 100 <= steps < 110
    assert experiment.method.memax_target == "uniform"
    round.config.long_tail = True
    assert make_experiment(round, round.table, 4).method.memax_target == "estimated"
    round.config.method = "kmeans"
    with pytest.raises(InputError, match="--long-tail is not for kmeans"):
        make_experiment(round, round.table, 4)


@pytest.mark.parametrize("method", ["rpc", "debgcd", "simgcd"])
def test_a_folder_with_the_name_of_a_benchmark_gets_no_recipe(round: Round, method: str) -> None:
    round.config.method = method
    usual = make_experiment(round, round.table, 4)
    named = make_experiment(round, dataclasses.replace(round.table, name="aircraft"), 4)
    assert named.dataset == "aircraft"
    assert (named.method, named.train, named.backbone) == (usual.method, usual.train, usual.backbone)


def test_the_training_of_other_labels_makes_way(round: Round, tmp_path) -> None:
    training = tmp_path / "training"
    training.mkdir()
    clear_other(training, round.table)  # nothing there yet
    (training / "identity.json").write_text(json.dumps({"table": round.table.fingerprint()}))
    clear_other(training, round.table)
    assert training.is_dir()
    clear_other(training, round.table.take(range(10)))
    assert not training.exists()
