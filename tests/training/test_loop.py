"""The loop: every kind of method trains, resumes bit for bit, and never sees the truth."""

import dataclasses
from functools import partial
from itertools import accumulate

import numpy as np
import pytest
import torch

from holotype.errors import InputError, Stopped
from holotype.methods import METHODS
from holotype.training import loop as module
from holotype.training.checkpoint import read_checkpoint_info
from holotype.training.progress import StopRequest, TrainingBar

from .conftest import assert_equal_weights, interrupt_after, metrics, stop_and_resume, weights
from .stubs import STUBS, TRAINED, TwoStages


@pytest.mark.parametrize("name", TRAINED)
def test_resumed_equals_uninterrupted_bit_for_bit(world, name, tmp_path):
    make = partial(world.loop, TRAINED[name], epochs=3)
    whole = make()
    whole.fit()
    ends = list(accumulate(whole.steps * whole.epochs(stage) for stage in whole.stages))
    # inside the first epoch, inside the second, at its end; or inside one, between two stages, and inside the next
    within = {1, 4, 6} if len(ends) == 1 else {4}
    for stop_after in {*within, *(end + more for end in ends[:-1] for more in (0, 1))}:
        resumed = stop_and_resume(make, tmp_path / str(stop_after), stop_after)
        assert_equal_weights(weights(whole), weights(resumed))


@pytest.mark.parametrize("name", ["simgcd", "rpc", "two stages"])
def test_a_run_on_cached_views_resumes_bit_for_bit(world, name, tmp_path):
    def make(**given):
        return world.loop(TRAINED[name], epochs=3, cache=world.cache(tmp_path), **given)

    whole, exact = make(), world.loop(TRAINED[name], epochs=3)
    whole.fit(), exact.fit()
    assert (whole.mode, exact.mode) == ("cached 4+2", "exact")
    assert_equal_weights(weights(whole), weights(stop_and_resume(make, tmp_path / "run", 4)))
    assert not torch.equal(weights(exact)["method.classifier.v"], weights(whole)["method.classifier.v"])


def test_a_cache_for_an_encoder_of_its_own_and_a_batch_larger_than_the_data_set_are_refused(world, tmp_path):
    with pytest.raises(InputError, match="OwnEncoder cannot use cached views"):
        world.loop(STUBS["images"], cache=world.cache(tmp_path))
    with pytest.raises(InputError, match=r"batch size 64 is larger than the 48 usable images of squares"):
        world.loop("simgcd", batch_size=64)


def test_the_log_of_a_resumed_run_has_every_epoch_once(world, tmp_path):
    make = partial(world.loop, "simgcd", epochs=4)
    with pytest.raises(Stopped):
        interrupt_after(make(out=tmp_path, save_seconds=0), 5).fit()
    (tmp_path / "metrics.jsonl").open("a").write('{"kind": "epoch", "epo')  # a line cut by a kill
    make(out=tmp_path).fit()
    make(out=tmp_path / "whole").fit()
    assert metrics(tmp_path) == metrics(tmp_path / "whole")


def test_training_never_sees_the_truth(world):
    rng = np.random.default_rng(1)
    shuffled = dataclasses.replace(world.table, truth=rng.permutation(world.table.truth))
    for name in METHODS:
        mine, theirs = world.loop(name), world.loop(name, table=shuffled)
        mine.fit(), theirs.fit()
        assert_equal_weights(weights(mine), weights(theirs))


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


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_sound_state(world, tmp_path):
    world.loop("simgcd", epochs=2, out=tmp_path).fit()
    sound = read_checkpoint_info(tmp_path)
    loop = world.loop("simgcd", epochs=4, out=tmp_path, lr=1e30)
    with pytest.raises(InputError, match="the loss became"):
        loop.fit()
    assert read_checkpoint_info(tmp_path) == sound


def test_totals_count_the_steps_that_there_are(world, tmp_path, monkeypatch):
    """Also of a method that draws two steps where the loop's sampler has three, alone, resumed and among others."""
    bars = []

    class Watched(TrainingBar):
        def __init__(self, show, title, total):
            super().__init__(True, title, total)
            bars.append(self)

    monkeypatch.setattr(module, "TrainingBar", Watched)
    make = partial(world.loop, STUBS["own rows"], epochs=3)
    loop = make()
    assert loop.total_steps == 9
    loop.fit()
    assert (loop.total_steps, bars[0].plain.total, bars[0].done) == (6, 6, 6)
    with pytest.raises(Stopped):
        interrupt_after(make(out=tmp_path), 3).fit()
    make(out=tmp_path).fit()
    assert (bars[-1].plain.total, bars[-1].done, bars[-1].plain.before) == (6, 6, 3)
    with TrainingBar(True, "2 runs", 18) as whole:
        for name in ("a", "b"):
            list(make().training(StopRequest(), whole.part(name)))
        assert (whole.plain.total, whole.done) == (12, 12)
