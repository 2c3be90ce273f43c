"""DCCL through the whole loop: rows of its own, concepts between epochs, and nothing hidden in what it learns from."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from holotype.cluster.evaluate import clustering_accuracy
from holotype.training.progress import Stopped

from .conftest import assert_equal_weights, weights
from .test_loop import interrupt_after


def test_it_trains_with_finite_losses_and_tells_what_it_found(world, tmp_path):
    loop = world.loop("dccl", epochs=3, out=tmp_path)
    loop.fit()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert len(epochs) == 3
    for line in epochs:
        assert all(math.isfinite(line[term]) for term in ("con_u", "con_s", "concept", "loss"))
        assert line["concepts"] > 0
        assert 0 <= line["outliers"] < 48
        assert line["positives"] >= 4
    assert epochs[0]["concept"] > 0


def test_all_that_learns_has_a_gradient(world):
    loop = world.loop("dccl", epochs=1)
    loop.fit()
    for name, parameter in loop.learnable.items():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        if "bias" not in name:  # those of the keys of attention have none by nature
            assert parameter.grad.any(), name


def test_a_resumed_run_keeps_the_concepts_it_has(world, tmp_path):
    settings = {"recluster": 2}
    whole = world.loop("dccl", settings=settings, epochs=3)
    whole.fit()
    for stop_after in (1, 5):  # in the epoch that found them, and in the one after
        out = tmp_path / str(stop_after)
        first = world.loop("dccl", settings=settings, epochs=3, out=out)
        interrupt_after(first, stop_after)
        with pytest.raises(Stopped):
            first.fit()
        second = world.loop("dccl", settings=settings, epochs=3, out=out)
        second.fit()
        assert_equal_weights(weights(whole), weights(second))


def test_it_beats_chance_clearly(world):
    loop = world.loop("dccl", epochs=5)
    placed = loop.fit()
    hidden = ~world.table.labelled
    truth = np.unique(world.table.truth, return_inverse=True)[1][hidden]
    found = clustering_accuracy(truth, placed.category.numpy()[hidden], 2)
    assert found.all > 0.8  # a quarter by chance
    assert found.old > 0.8


def test_hidden_classes_change_no_weight(world):
    shuffled = dataclasses.replace(world.table, truth=np.random.default_rng(1).permutation(world.table.truth))
    mine = world.loop("dccl")
    theirs = world.loop("dccl", table=shuffled)
    mine.fit(), theirs.fit()
    assert_equal_weights(weights(mine), weights(theirs))


def test_views_may_come_from_the_cache(world, tmp_path):
    loop = world.loop("dccl", cache=world.cache(tmp_path))
    loop.fit()
    assert loop.mode == "cached 4+2"
    assert loop.method.count > 0
