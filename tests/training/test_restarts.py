"""Runs that leave their course: back once with half the rate, the same after a kill, and no other run is touched."""

import logging
import math
from functools import partial

import pytest
import torch

from holotype.errors import InputError
from holotype.training.checkpoint import read_checkpoint_info
from holotype.training.divergence import Restart, all_finite
from holotype.utils.atomic import write_text

from .conftest import assert_equal_weights, metrics, stop_and_resume, weights
from .explodes import Explodes


def explosive(world, *, epochs=4, out=None, seed=0, **fuse):
    """What the cosine leaves of 0.1 is too much from epoch 2 on, and half of that is not. Three steps an epoch."""
    given = {"epochs": epochs, "out": out, "seed": seed, **({"save_seconds": -1.0} if out else {})}
    return world.loop(Explodes, lr=0.1, momentum=0.0, settings={"limit": 0.04, "at": 2, **fuse}, **given)


@pytest.mark.parametrize("kept", [False, True], ids=["in memory", "in a folder"])
@pytest.mark.parametrize(("factor", "at", "epochs", "left"), [(math.nan, 2, 4, 2), (1e6, 7, 20, 8)])
def test_a_run_goes_back_once_and_ends_sound(world, tmp_path, caplog, kept, factor, at, epochs, left):
    loop = explosive(world, factor=factor, at=at, epochs=epochs, out=tmp_path if kept else None)
    with caplog.at_level(logging.WARNING, "holotype"):
        placed = loop.fit()
    (restart,) = loop.guard.restarts
    assert restart == Restart("train", left, at, 0.05)
    assert all_finite(loop.model_tensors().values())
    assert torch.isfinite(placed.probability).all()
    sentence = f"left its course in epoch {left + 1} of stage train; training goes back to the start of epoch {at + 1}"
    assert caplog.text.count(sentence) == 1
    if kept:
        lines = metrics(tmp_path)
        assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == list(range(epochs))
        (told,) = [line for line in lines if line["kind"] == "restart"]
        assert told == {"kind": "restart", **vars(restart), "counter": 3 * at}
        assert lines.index(told) == at
        explosive(world, limit=1.0, epochs=epochs, out=tmp_path / "sound").fit()
        rates, sound = ([line["lr"] for line in metrics(x, "epoch")] for x in (tmp_path, tmp_path / "sound"))
        assert rates == pytest.approx([*sound[:at], *(rate / 2 for rate in sound[at:])])


def test_a_run_that_always_explodes_ends_in_a_sentence_and_a_stage_goes_back_to_its_start(world, tmp_path):
    """The same command says the same, and tries no third time."""
    for said in (r"^the loss became \{'cls': nan.* in epoch 3 of stage train, after", "the loss became"):
        with pytest.raises(InputError, match=said):
            explosive(world, limit=0.0, out=tmp_path).fit()
        assert [line["kind"] for line in metrics(tmp_path)] == ["epoch", "epoch", "restart"]
    loop = explosive(world, stages=2, at=0, limit=0.06, epochs=2, out=tmp_path / "stages")
    loop.fit()
    assert loop.guard.restarts == [Restart("second", 0, 0, 0.05)]
    told = [(line["stage"], line["epoch"]) for line in metrics(tmp_path / "stages")]
    assert told == [("first", 0), ("second", 0), ("second", 0), ("second", 1)]


class Killed(BaseException):
    """The process is gone; nothing is saved on its way out."""


def kill_after(loop, steps: int):
    after_step, taken = loop.method.after_step, []

    def counted():
        after_step()
        taken.append(None)
        if len(taken) == steps:
            raise Killed

    loop.method.after_step = counted
    return loop


@pytest.fixture(scope="module")
def uninterrupted(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    loop = explosive(world, out=folder)
    loop.fit()
    return weights(loop), metrics(folder)


@pytest.mark.parametrize("steps", [2, 5, 8, 9, 10, 11, 14])
def test_a_run_that_was_killed_ends_as_one_that_was_not(world, tmp_path, uninterrupted, steps):
    """It leaves its course with step 9 and takes steps 7 to 9 again; a state is saved after every step."""
    with pytest.raises(Killed):
        kill_after(explosive(world, out=tmp_path), steps).fit()
    loop = explosive(world, out=tmp_path)
    loop.fit()
    assert len(loop.guard.restarts) == 1
    assert_equal_weights(weights(loop), uninterrupted[0])
    assert metrics(tmp_path) == uninterrupted[1]


def test_a_state_written_after_the_restart_never_takes_the_place_of_one_before(world, tmp_path, monkeypatch):
    """The same counters come again: a kill between tensors and facts must leave a pair that belongs together."""
    with pytest.raises(Killed):
        kill_after(explosive(world, out=tmp_path), 9).fit()
    before = read_checkpoint_info(tmp_path)
    tensors = (tmp_path / before["tensors"]).read_bytes()

    def dies(path, text):
        if path.name == "state.json":
            raise Killed
        write_text(path, text)

    loop = explosive(world, out=tmp_path)
    loop.config.save_seconds = 1e9
    after_step = loop.method.after_step

    def due():
        after_step()
        if loop.guard.restarts and loop.position.counter + 1 == before["counter"]:
            loop.config.save_seconds = -1.0
            monkeypatch.setattr("holotype.utils.serialization.write_text", dies)

    loop.method.after_step = due
    with pytest.raises(Killed):
        loop.fit()
    assert read_checkpoint_info(tmp_path) == before
    assert (tmp_path / before["tensors"]).read_bytes() == tensors


def test_without_the_guard_a_run_goes_on_and_ends_at_a_loss_that_is_no_number(world, tmp_path):
    """Of a run on its course nothing changes."""
    with pytest.raises(InputError, match="guard false"):
        world.loop(Explodes, lr=0.1, momentum=0.0, settings={"limit": 0.0}, guard=False).fit()
    spike = {"limit": 0.04, "at": 7, "factor": 1e6}
    loop = world.loop(Explodes, lr=0.1, momentum=0.0, settings=spike, epochs=20, guard=False)
    loop.fit()
    assert loop.guard.restarts == []
    plain, unwatched = world.loop("simgcd"), world.loop("simgcd", guard=False)
    plain.fit(), unwatched.fit()
    assert_equal_weights(weights(plain), weights(unwatched))
    assert unwatched.guard._sound is None
    resumed = stop_and_resume(partial(world.loop, "simgcd", guard=False), tmp_path, 4)
    assert_equal_weights(weights(plain), weights(resumed))
