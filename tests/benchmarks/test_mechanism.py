"""Watching a run measures what it says, and changes nothing about it."""

from __future__ import annotations

import json
from pathlib import Path

import mechanism
import numpy as np
import pytest
import torch

from holotype.methods import Task
from holotype.methods.rpc import RPC
from holotype.methods.rpc_config import RPCConfig
from holotype.runs.prepared import Shelf
from holotype.runs.run import Run, begin
from holotype.runs.settings import default_experiment
from holotype.training.turns import train_in_turns


def begun(squares: Path, backbone: Path, out: Path) -> Run:
    experiment = default_experiment("rpc", str(squares / "squares.csv"))
    experiment.k, experiment.out, experiment.device, experiment.progress = 4, str(out), "cpu", False
    experiment.backbone.name = str(backbone)
    experiment.train.epochs, experiment.train.batch_size = 3, 16
    run = begin(experiment, Shelf())
    assert isinstance(run, Run)
    return run


def test_a_watched_run_ends_with_the_weights_of_an_unwatched_one(
    squares_folder, tiny_backbone_file, tmp_path
):
    plain = begun(squares_folder, tiny_backbone_file, tmp_path / "plain")
    plain.loop.fit()
    watched = mechanism.Watch(begun(squares_folder, tiny_backbone_file, tmp_path / "watched"), every=2)
    train_in_turns({"watched": watched.run.loop})["watched"].prediction()
    assert watched.epochs == [1, 2]
    assert all(len(values) == 2 for values in watched.series.values())
    for name, tensor in plain.loop.model_tensors().items():
        assert torch.equal(tensor, watched.run.loop.model_tensors()[name]), name


def test_calibration_error_by_hand():
    w, known = np.array([0.95, 0.95, 0.15, 0.15]), np.array([True, False, False, False])
    assert mechanism.calibration_error(w, known) == pytest.approx(0.5 * 0.45 + 0.5 * 0.15)
    assert mechanism.calibration_error(np.array([1.0, 0.0]), np.array([True, False])) == 0


def test_weights_are_told_apart_by_kind_of_image():
    w_old = np.array([1.0, 0.8, 0.4, 0.1])
    true, labelled = np.array([0, 0, 1, 2]), np.array([True, False, False, False])
    found = mechanism.weight_values(w_old, true, labelled, n_known=2)
    assert found["w_old/labelled"] == 1
    assert found["w_old/known"] == pytest.approx(0.6)
    assert found["w_old/novel"] == pytest.approx(0.1)
    assert found["known taken for novel"] == 0.5
    assert found["novel taken for known"] == 0


def test_pairs_are_counted_by_the_classes_of_both_and_make_up_the_whole():
    torch.manual_seed(0)
    method = RPC(RPCConfig(), Task(n_known=2, k=4, dim=8, n_images=30, n_labelled=6))
    method.prototypes.copy_(torch.randn(2, 8))
    f, y = torch.randn(12, 8), torch.arange(12) % 4
    with torch.no_grad():
        found = mechanism.batch_values(method, f, y, y < 2)
        whole = mechanism.pair_values(method, f.repeat(4, 1), np.tile(y.numpy(), 4), np.zeros(48, dtype=bool))
    assert all(value > 0 for name, value in found.items() if name.startswith("weight/"))
    assert -1 <= found["pull"] <= 1
    assert sum(value for name, value in whole.items() if name.startswith("weight/")) == pytest.approx(1)


def test_two_known_images_are_pulled_towards_each_other_and_so_off_their_prototypes():
    """Each leans to its own prototype: whatever makes their signatures alike leads away from it."""
    method = RPC(RPCConfig(), Task(n_known=2, k=4, dim=4, n_images=4, n_labelled=2))
    method.prototypes.copy_(torch.eye(2, 4))
    with torch.no_grad():
        leaning = torch.eye(2, 4) + torch.eye(4)[2:]
        found = mechanism.batch_values(method, leaning, torch.tensor([0, 1]), torch.ones(2).bool())
    assert found["pull"] < -0.4
    assert found["weight/known-known, other class"] > 0
    assert found["weight/known-novel"] == found["weight/novel-novel, same class"] == 0


def test_the_command_writes_a_file_for_each_run_and_tells_what_is_wrong(
    squares_folder, tiny_backbone_file, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    common = f"backbone.name: {tiny_backbone_file}, k: 4, train.batch_size: 16, train.epochs: 1, device: cpu"
    study = tmp_path / "watch.yaml"
    study.write_text(
        f"question: Q?\ndatasets: [{squares_folder / 'squares.csv'}]\nseeds: [0, 1]\n"
        f"settings: {{{common}}}\nrows: {{one: {{method: rpc}}}}\n"
    )
    words = [str(study), "--out", "found", "--every", "1", "--no-progress"]
    assert mechanism.main(words) == 0
    for seed in (0, 1):
        content = json.loads(Path(f"found/one-s{seed}.json").read_text())
        assert (content["name"], content["seed"], content["epochs"]) == ("one", seed, [1])
    assert mechanism.main(["nowhere.yaml"]) == 2
    assert "nowhere.yaml" in capsys.readouterr().err
