"""A run that leaves its course goes back once with half the rate, and one that does not is left alone."""

from __future__ import annotations

import json
import logging
import math

import pytest
import torch

from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.training.guard import SETTLED, Course, Guard, LeftCourse, Restart, all_finite
from holotype.training.journal import Position, State
from holotype.training.state import read_facts
from holotype.training.turns import train_in_turns

from .conftest import assert_equal_weights, weights
from .stubs import Explodes

# -- the rule -------------------------------------------------------------------------------------------


def fall(epoch: int, start: float = 8.0, end: float = 3.0) -> float:
    """A loss that learns, with a little noise."""
    noise = 0.1 * math.sin(7.0 * epoch)
    return end + (start - end) * math.exp(-epoch / 4) + noise


def left_at(epochs, settled: int = SETTLED) -> int | None:
    """The epoch in which the course was left. epochs: the terms of each."""
    course = Course()
    for epoch, means in enumerate(epochs):
        course.follow(means, settled)
        if course.far >= 2:
            return epoch
    return None


SCHEDULES = {
    "none": lambda e: 0.0,
    "linear ramp": lambda e: 4.0 * min(e / 10, 1),
    "steep ramp": lambda e: 40.0 * min(e / 5, 1),
    "ramp from little": lambda e: 30.0 * min((e + 1) / 20, 1),
    "square ramp": lambda e: 20.0 * min(e / 15, 1) ** 2,
    "sigmoid ramp": lambda e: 20.0 * math.exp(-5 * (1 - min(e / 20, 1)) ** 2),
    "late switch": lambda e: 50.0 * (e >= 12),
    "falling": lambda e: 6.0 * max(1 - e / 30, 0.1),
    "reward": lambda e: -9.0 + 0.1 * math.cos(3.0 * e),
    "slow rise": lambda e: 1.0 + 0.05 * e,
}


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_are_no_departure_and_the_scale_is_none_either(schedule, scale):
    term = SCHEDULES[schedule]
    assert left_at({"a": scale * fall(e), "b": scale * term(e)} for e in range(40)) is None
    bad = [{"a": scale * fall(e if e < 25 else 0), "b": scale * term(e)} for e in range(40)]
    assert left_at(bad) == 26


def test_a_term_alone_that_only_ramps_up_or_slowly_returns():
    for term in (*SCHEDULES.values(), lambda e: 6.0 * abs(1 - e / 20)):
        assert left_at({"b": term(e)} for e in range(40)) is None


def test_a_flat_noisy_loss_is_on_its_course_and_a_burst_is_not():
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(200, generator=generator).tolist()
    flat = [{"a": 1.0 + 0.05 * value} for value in noise]
    assert left_at(flat) is None
    assert left_at([*flat[:50], {"a": 4.0}, {"a": 4.0}]) == 51
    assert left_at([*flat[:50], {"a": 4.0}, *flat[:50]]) is None  # one epoch is an accident


def test_nothing_is_judged_before_the_stage_has_settled():
    epochs = [{"a": value} for value in (5.0, 1.0, 5.0, 5.0, 5.0)]
    assert left_at(epochs) is None
    assert left_at([*epochs[:2], *[{"a": 1.0}] * 4, *epochs[2:4]]) == 7
    assert left_at([*epochs[:2], *[{"a": 1.0}] * 4, *epochs[2:4]], settled=9) is None


def test_an_epoch_that_rises_a_little_is_not_sound_though_no_departure():
    course = Course()
    for epoch in range(20):
        course.follow({"a": fall(epoch)}, SETTLED)
    assert course.sound
    course.follow({"a": fall(20) + 0.8}, SETTLED)
    assert (course.sound, course.far) == (False, 0)
    for _ in range(3):  # a level that lasts is the course
        course.follow({"a": fall(20) + 0.8}, SETTLED)
    assert course.sound


def test_weights_that_are_no_numbers():
    sound = torch.ones(3, requires_grad=True)
    assert all_finite([])
    assert all_finite([sound])
    for bad in (float("nan"), float("inf")):
        assert not all_finite([sound, torch.tensor([1.0, bad])])
        with pytest.raises(LeftCourse):
            Guard().judge(0, {"a": bad}, [sound])
        with pytest.raises(LeftCourse):
            Guard().judge(0, {"a": 1.0}, [torch.tensor(bad)])


# -- the state to go back to ----------------------------------------------------------------------------


def watched(losses, tensors=None) -> Guard:
    """A guard that saw epochs with these losses; the state after epoch e holds e."""
    guard = Guard()
    guard.keep(Position(), {"w": torch.tensor(-1.0)})
    for epoch, loss in enumerate(losses):
        guard.judge(0, {"a": loss}, [])
        guard.keep(Position(0, epoch + 1, 0, 3 * (epoch + 1)), {"w": torch.tensor(float(epoch))})
    return guard


def test_a_state_of_the_bad_stretch_is_not_taken():
    losses = [fall(epoch) for epoch in range(12)]
    guard = watched([*losses, losses[-1] + 0.6, losses[-1] + 1.5])
    state = guard.go_back(LeftCourse({"a": float("nan")}), "train", Position(0, 14, 3, 45), 0.1)
    assert (state.position, float(state.tensors["w"])) == (Position(0, 12, 0, 36), 11.0)
    assert guard.restarts == [Restart("train", 14, 12, 0.05)]
    assert guard.slowed == 0.5
    assert guard.course.epochs == 12  # what followed is forgotten
    with pytest.raises(InputError, match=r"the loss became \{'a': 9.5\} in epoch 15 of stage train, after"):
        guard.go_back(LeftCourse({"a": 9.5}), "train", Position(0, 14, 3, 45), 0.05)


def test_the_copy_is_not_moved_by_training_and_survives_a_file():
    weight = torch.ones(2)
    guard = Guard()
    guard.keep(Position(), {"w": weight})
    guard.judge(0, {"a": 1.0}, [weight])
    weight += 1
    inside = State(Position(0, 0, 2, 2, True), 1.0, {"w": weight})
    packed = guard.pack(inside)
    facts = json.loads(json.dumps(packed.guard))
    assert packed.tensors.keys() == {"w", "sound.w"}
    other = Guard()
    other.unpack(State(inside.position, 1.0, packed.tensors, facts))
    assert other.course == guard.course
    found = other.go_back(LeftCourse({}), "train", inside.position, 0.1)
    assert (found.position, found.tensors["w"].tolist()) == (Position(), [1.0, 1.0])
    again = other.pack(inside)  # after a restart there is no way back, and nothing to carry
    assert again.tensors.keys() == {"w"}
    third = Guard()
    third.unpack(again)
    assert (third.restarts, third.slowed) == (other.restarts, 0.5)


def test_a_state_of_before_there_was_a_guard_is_gone_back_to():
    guard, state = Guard(), State(Position(1, 2, 1, 9, True), 1.0, {"w": torch.ones(1)})
    assert guard.unpack(state) is state
    found = guard.go_back(LeftCourse({}), "train", Position(1, 2, 3, 11, True), 0.1)
    assert (found.position, guard.restarts[0].back_to) == (state.position, 2)


# -- runs -----------------------------------------------------------------------------------------------


def explosive(world, *, epochs=4, out=None, seed=0, **fuse):
    """What the cosine leaves of 0.1 is too much from epoch 2 on, and half of that is not. Three steps an epoch."""
    fuse = {"limit": 0.04, "at": 2, **fuse}
    saves = {"save_seconds": -1.0} if out else {}
    return world.loop(
        Explodes, epochs=epochs, lr=0.1, momentum=0.0, settings=fuse, out=out, seed=seed, **saves
    )


def read(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


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
        lines = read(tmp_path)
        assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == list(range(epochs))
        (told,) = [line for line in lines if line["kind"] == "restart"]
        assert told == {"kind": "restart", **vars(restart), "counter": 3 * at}
        assert lines.index(told) == at
        full = explosive(world, limit=1.0, epochs=epochs)
        rates = [line["lr"] for line in lines if line["kind"] == "epoch"]
        assert rates[at - 1] > full.lr(full.method.stages()[0]) * 0.5 > rates[at]


def test_a_rate_that_is_low_enough_changes_nothing(world, tmp_path):
    loop = explosive(world, limit=0.11, out=tmp_path)
    loop.fit()
    assert loop.guard.restarts == []
    assert {line["kind"] for line in read(tmp_path)} == {"epoch"}


def test_a_run_that_always_explodes_ends_in_a_sentence(world, tmp_path):
    loop = explosive(world, limit=0.0, out=tmp_path)
    with pytest.raises(
        InputError, match=r"^the loss became \{'cls': nan.* in epoch 3 of stage train, after the run"
    ):
        loop.fit()
    assert [line["kind"] for line in read(tmp_path)] == ["epoch", "epoch", "restart"]
    again = explosive(
        world, limit=0.0, out=tmp_path
    )  # the same command says the same, and tries no third time
    with pytest.raises(InputError, match="the loss became"):
        again.fit()


def test_the_first_epoch_of_a_later_stage_goes_back_to_its_start(world, tmp_path):
    loop = explosive(world, stages=2, at=0, limit=0.06, epochs=2, out=tmp_path)
    loop.fit()
    assert loop.guard.restarts == [Restart("second", 0, 0, 0.05)]
    assert [(line["stage"], line["epoch"]) for line in read(tmp_path)] == [
        *(("first", 0), ("second", 0), ("second", 0), ("second", 1))
    ]


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
    return weights(loop), read(folder)


@pytest.mark.parametrize("steps", [2, 5, 8, 9, 10, 11, 14])
def test_a_run_that_was_killed_ends_as_one_that_was_not(world, tmp_path, uninterrupted, steps):
    """It leaves its course with step 9 and takes steps 7 to 9 again; a state is saved after every step."""
    with pytest.raises(Killed):
        kill_after(explosive(world, out=tmp_path), steps).fit()
    loop = explosive(world, out=tmp_path)
    loop.fit()
    assert len(loop.guard.restarts) == 1
    assert_equal_weights(weights(loop), uninterrupted[0])
    assert read(tmp_path) == uninterrupted[1]


def test_a_kill_before_the_first_state_after_the_restart(world, tmp_path, uninterrupted):
    """The state is one of the bad stretch, and the restart that it does not know of comes again, once."""
    with pytest.raises(Killed):
        kill_after(explosive(world, out=tmp_path), 9).fit()
    assert "sound" in read_facts(tmp_path)["guard"]
    second = explosive(world, out=tmp_path)
    second.config.save_seconds = 1e9
    with pytest.raises(Killed):
        kill_after(second, 6).fit()
    assert [line["kind"] for line in read(tmp_path)] == ["epoch", "epoch", "restart", "epoch"]
    loop = explosive(world, out=tmp_path)
    loop.fit()
    assert_equal_weights(weights(loop), uninterrupted[0])
    assert read(tmp_path) == uninterrupted[1]


def test_a_state_written_after_the_restart_never_takes_the_place_of_one_before(world, tmp_path, monkeypatch):
    """The same counters come again: a kill between tensors and facts must leave a pair that belongs together."""
    with pytest.raises(Killed):
        kill_after(explosive(world, out=tmp_path), 9).fit()
    before = read_facts(tmp_path)
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
            monkeypatch.setattr("holotype.training.state.write_text", dies)

    loop.method.after_step = due
    with pytest.raises(Killed):
        loop.fit()
    assert read_facts(tmp_path) == before
    assert (tmp_path / before["tensors"]).read_bytes() == tensors


def test_of_loops_that_take_turns_each_goes_its_own_way(world):
    names = {"restarts": {}, "always": {"limit": 0.0}, "sound": {"limit": 1.0}}
    loops = {name: explosive(world, seed=seed, **fuse) for seed, (name, fuse) in enumerate(names.items())}
    ended = train_in_turns(loops)
    assert isinstance(ended["always"].outcome, InputError)
    assert [len(loop.guard.restarts) for loop in loops.values()] == [1, 1, 0]
    for seed, name in ((0, "restarts"), (2, "sound")):
        alone = explosive(world, seed=seed, **names[name])
        assert torch.equal(alone.fit().category, ended[name].prediction().category)
        assert_equal_weights(weights(loops[name]), weights(alone))


@pytest.mark.parametrize("method", ["simgcd", "rpc"])
def test_a_normal_run_is_left_alone(world, method):
    loop = world.loop(method, epochs=14)
    loop.fit()
    assert loop.guard.restarts == []
    assert loop.guard.course.epochs == 14
    assert max(loop.guard.course.recent) < 0.3
