"""The draws of an epoch: they do not depend on where it is entered, and the time travels with them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from holotype.methods import Stage, Views
from holotype.training import batches as module
from holotype.training.batches import StageDraws

ROWS = torch.randint(48, (37, 16), generator=torch.Generator().manual_seed(0))
STAGE = Stage(views=Views(weak=2, strong=1, share="none"))


def draws(world, first=0, method="rpc", rows=ROWS):
    loop = world.loop(method)
    return loop, list(drawing(loop).draw(rows, 5, first))


def drawing(loop, stage=STAGE, epochs=10):
    return StageDraws(stage, loop.source, loop.method, loop.rows, 16, epochs, (0, 0))


@pytest.mark.parametrize("first", [0, 1, 15, 16, 36])
def test_draws_do_not_depend_on_where_the_epoch_is_entered(world, first):
    loop, whole = draws(world)
    _, later = draws(world, first)
    assert len(whole) == 37
    assert len(later) == 37 - first
    for mine, theirs in zip(later, whole[first:], strict=True):
        assert mine.tensors.keys() == theirs.tensors.keys() == {"image", "clock", "random.pairing"}
        for name, value in mine.tensors.items():
            assert torch.equal(value, theirs.tensors[name]), name
        views = [loop.source.fetch(drawn.request)["inputs"] for drawn in (mine, theirs)]
        assert torch.equal(*views)


def test_every_step_has_its_own_draws(world):
    _, whole = draws(world)
    assert torch.equal(torch.stack([drawn.tensors["image"] for drawn in whole]), ROWS)
    pairing = torch.stack([drawn.tensors["random.pairing"] for drawn in whole])
    assert pairing.shape == (37, 16, 16)
    assert len(pairing.flatten(1).unique(dim=0)) == 37


def test_requests_are_announced_before_they_are_fetched(world, monkeypatch):
    loop = world.loop("simgcd")
    seen = []
    monkeypatch.setattr(loop.source, "expect", lambda request: seen.append("expect"))
    for _ in drawing(loop, Stage()).draw(ROWS[:6], 5):
        seen.append("use")
    ahead = module.EPOCHS_AHEAD
    assert seen[: ahead + 1] == ["expect"] * (ahead + 1)
    assert seen.count("expect") == seen.count("use") == 6


@pytest.mark.parametrize(("method", "own"), [("dccl", True), ("simgcd", False)])
def test_a_method_that_draws_its_images_says_that_frames_of_bursts_count(world, caplog, method, own):
    group = np.array([f"burst {row // 2}" for row in range(len(world.table))], dtype=object)
    for table in (world.table, dataclasses.replace(world.table, group=group)):
        loop = world.loop(method, table=table)
        drawing(loop)
    told = [line for line in caplog.messages if "draws its images itself" in line]
    assert told == (["DCCL draws its images itself, so every frame of a burst counts."] if own else [])
