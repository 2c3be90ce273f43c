"""The loop: every kind of method trains, resumes bit for bit, and never sees the truth."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from itertools import accumulate

import numpy as np
import pytest
import torch

from holotype.errors import InputError, Stopped
from holotype.methods import METHODS
from holotype.methods.simgcd import SimGCD
from holotype.training.checkpoint import read_checkpoint_info

from .conftest import assert_equal_weights, weights
from .stubs import STUBS, ClustersAtTheEnd, TwoStages

TRAINED = {**{name: cls for name, cls in METHODS.items() if name != "kmeans"}, **STUBS}


@pytest.mark.parametrize("name", [*METHODS, *STUBS])
def test_every_kind_of_method_goes_through_the_loop(world, name):
    loop = world.loop(TRAINED.get(name, name))
    placed = loop.fit()
    assert placed.category.shape == (len(world.table),)
    assert placed.category.min() >= 0
    assert placed.category.max() < 4
    assert torch.isfinite(placed.probability).all()
    assert torch.equal(loop.predict().category, placed.category)


@pytest.mark.parametrize("name", TRAINED)
def test_resumed_equals_uninterrupted_bit_for_bit(world, name, tmp_path):
    whole = world.loop(TRAINED[name], epochs=3)
    whole.fit()
    ends = list(accumulate(whole.steps * whole.epochs(stage) for stage in whole.stages))
    # inside the first epoch, inside the second, at its end; or inside one, between two stages, and inside the next
    within = {1, 4, 6} if len(ends) == 1 else {4}
    for stop_after in {*within, *(end + more for end in ends[:-1] for more in (0, 1))}:
        out = tmp_path / str(stop_after)
        first = world.loop(TRAINED[name], epochs=3, out=out)
        interrupt_after(first, stop_after)
        with pytest.raises(Stopped):
            first.fit()
        second = world.loop(TRAINED[name], epochs=3, out=out)
        second.fit()
        assert_equal_weights(weights(whole), weights(second))


@pytest.mark.parametrize("name", ["simgcd", "rpc", "two stages"])
def test_a_run_on_cached_views_resumes_bit_for_bit(world, name, tmp_path):
    cache = world.cache(tmp_path)
    whole = world.loop(TRAINED[name], epochs=3, cache=cache)
    whole.fit()
    assert whole.mode == "cached 4+2"
    first = world.loop(TRAINED[name], epochs=3, cache=cache, out=tmp_path / "run")
    interrupt_after(first, 4)
    with pytest.raises(Stopped):
        first.fit()
    second = world.loop(TRAINED[name], epochs=3, cache=world.cache(tmp_path), out=tmp_path / "run")
    second.fit()
    assert_equal_weights(weights(whole), weights(second))
    exact = world.loop(TRAINED[name], epochs=3)
    exact.fit()
    assert exact.mode == "exact"
    assert not torch.equal(weights(exact)["method.classifier.v"], weights(whole)["method.classifier.v"])


def test_a_method_with_an_encoder_of_its_own_refuses_the_cache(world, tmp_path):
    with pytest.raises(InputError, match="OwnEncoder cannot use cached views"):
        world.loop(STUBS["images"], cache=world.cache(tmp_path))


def interrupt_after(loop, steps: int) -> None:
    """Press Ctrl-C after so many steps."""
    after_step = loop.method.after_step

    def counted():
        after_step()
        interrupt_after.count += 1
        if interrupt_after.count == steps:
            os.kill(os.getpid(), signal.SIGINT)

    interrupt_after.count = 0
    loop.method.after_step = counted


def test_the_log_of_a_resumed_run_has_every_epoch_once(world, tmp_path):
    first = world.loop("simgcd", epochs=4, out=tmp_path, save_seconds=0)
    interrupt_after(first, 5)
    with pytest.raises(Stopped):
        first.fit()
    (tmp_path / "metrics.jsonl").open("a").write('{"kind": "epoch", "epo')  # a line cut by a kill
    world.loop("simgcd", epochs=4, out=tmp_path).fit()
    uninterrupted = tmp_path / "whole"
    world.loop("simgcd", epochs=4, out=uninterrupted).fit()

    def read(folder):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]

    assert read(tmp_path) == read(uninterrupted)


def test_training_never_sees_the_truth(world):
    rng = np.random.default_rng(1)
    shuffled = dataclasses.replace(world.table, truth=rng.permutation(world.table.truth))
    for name in METHODS:
        mine, theirs = world.loop(name), world.loop(name, table=shuffled)
        mine.fit(), theirs.fit()
        assert_equal_weights(weights(mine), weights(theirs))


def test_another_seed_gives_another_run(world):
    mine, theirs = world.loop("simgcd"), world.loop("simgcd", seed=1)
    mine.fit(), theirs.fit()
    assert not torch.equal(weights(mine)["method.classifier.v"], weights(theirs)["method.classifier.v"])


def test_stages_use_their_own_parameters_start_and_length(world):
    loop = world.loop(TwoStages)
    start = weights(loop)
    seen = {}
    run_stage = loop._run_stage

    def spy(stage, *arguments):
        yield from run_stage(stage, *arguments)
        seen[stage.name] = weights(loop)

    loop._run_stage = spy
    loop.fit()
    steps = len(world.table) // 16
    assert int(loop.method.steps_seen) == 3 * steps
    assert torch.equal(seen["represent"]["method.project.weight"], seen["classify"]["method.project.weight"])
    tail = [k for k in start if k.startswith("tail.")]
    assert all(torch.equal(seen["represent"][k], seen["classify"][k]) for k in tail)
    assert any(not torch.equal(start[k], seen["represent"][k]) for k in tail)
    # fresh: the second stage starts from the initial classifier, so one epoch at a small lr stays near it
    fresh = (seen["classify"]["method.classifier.v"] - start["method.classifier.v"]).norm()
    continued = (seen["classify"]["method.classifier.v"] - seen["represent"]["method.classifier.v"]).norm()
    assert fresh < continued


def test_who_looks_on_is_called_after_each_epoch_of_each_stage_and_changes_nothing(world):
    """Two epochs, then a stage of one. Looking puts the modules into another mode, as scoring does."""
    plain, watched = (world.loop(TwoStages) for _ in range(2))
    seen = []

    def look(epoch):
        seen.append((watched.position.stage, epoch, watched.position.counter))
        watched.predict()

    watched.on_epoch = look
    plain.fit()
    watched.fit()
    assert seen == [(0, 1, watched.steps), (0, 2, 2 * watched.steps), (1, 1, 3 * watched.steps)]
    assert_equal_weights(weights(plain), weights(watched))


class OneTerm(SimGCD):
    """A method of somebody else, who knows nothing of the names in the log."""

    def loss(self, batch, now):
        return {"loss": sum(super().loss(batch, now).values())}

    def diagnostics(self):
        return {"epoch": self.classifier.v.new_tensor(-1.0)}


def test_a_term_may_be_called_like_what_the_log_says_itself(world, tmp_path):
    loop = world.loop(OneTerm, out=tmp_path)
    loop.fit()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["epoch"], line["loss"] > 0) for line in lines] == [
        ("epoch", 0, True),
        ("epoch", 1, True),
    ]


def test_before_epoch_offers_every_image_and_every_label(world):
    loop = world.loop(ClustersAtTheEnd)
    loop.fit()
    assert loop.method.epochs_seen == [(0, (48, 32), 12), (1, (48, 32), 12)]


def test_images_with_a_problem_are_left_out_and_marked(world):
    problem = np.full(len(world.table), "", dtype=object)
    problem[[0, 5]] = "it is broken"
    loop = world.loop("simgcd", table=world.table.with_problems(problem))
    drawn = torch.cat([loop.rows.labelled, loop.rows.unlabelled])
    assert not {0, 5} & set(drawn.tolist())
    placed = loop.fit()
    assert placed.category[[0, 5]].tolist() == [-1, -1]
    assert placed.probability[[0, 5]].isnan().all()
    assert (placed.category >= 0).sum() == len(world.table) - 2


def test_a_batch_larger_than_the_data_set_is_refused(world):
    with pytest.raises(InputError, match=r"batch size 64 is larger than the 48 usable images of squares"):
        world.loop("simgcd", batch_size=64)


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_sound_state(world, tmp_path):
    world.loop("simgcd", epochs=2, out=tmp_path).fit()
    sound = read_checkpoint_info(tmp_path)
    loop = world.loop("simgcd", epochs=4, out=tmp_path, lr=1e30)
    with pytest.raises(InputError, match="the loss became"):
        loop.fit()
    assert read_checkpoint_info(tmp_path) == sound
