"""What is a departure from the course and what is not, and which state is gone back to."""

import json
import math

import pytest
import torch

from holotype.errors import InputError
from holotype.training.checkpoint import CheckpointState, Position
from holotype.training.divergence import (
    SETTLED_EPOCHS,
    Diverged,
    DivergenceGuard,
    LossHistory,
    Restart,
    all_finite,
)
from holotype.utils.serialization import SchemaError


def fall(epoch: int, start: float = 8.0, end: float = 3.0) -> float:
    """A loss that learns, with a little noise."""
    noise = 0.1 * math.sin(7.0 * epoch)
    return end + (start - end) * math.exp(-epoch / 4) + noise


def left_at(epochs, settled: int = SETTLED_EPOCHS) -> int | None:
    """The epoch in which the course was left. epochs: the terms of each."""
    course = LossHistory()
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


def test_a_loss_that_wavers_is_on_its_course_and_a_burst_is_not_once_the_stage_has_settled():
    """A few steps an epoch and little left to learn: epochs differ by more than the stage gains."""
    total = [2.82, 2.74, 2.93, 2.74, 2.60, 2.77, 2.84, 2.80, 2.85, 2.62, 2.62, 2.67, 2.85, 2.83]
    assert left_at({"a": value} for value in total) is None
    wide = [8.0, 6.0, 7.5, 5.0, 7.0, 4.0, 7.5, 7.5, 5.0, 7.5, 7.5]  # much gained, and more noise than that
    assert left_at({"a": value} for value in wide) is None
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(200, generator=generator).tolist()
    flat = [{"a": 1.0 + 0.05 * value} for value in noise]
    assert left_at(flat) is None
    assert left_at([*flat[:50], {"a": 4.0}, {"a": 4.0}]) == 51
    assert left_at([*flat[:50], {"a": 4.0}, *flat[:50]]) is None  # one epoch is an accident
    epochs = [{"a": value} for value in (5.0, 1.0, 5.0, 5.0, 5.0)]
    assert left_at(epochs) is None
    assert left_at([*epochs[:2], *[{"a": 1.0}] * 4, *epochs[2:4]]) == 7
    assert left_at([*epochs[:2], *[{"a": 1.0}] * 4, *epochs[2:4]], settled=9) is None


def test_weights_that_are_no_numbers():
    sound = torch.ones(3, requires_grad=True)
    assert all_finite([])
    assert all_finite([sound])
    for bad in (float("nan"), float("inf")):
        assert not all_finite([sound, torch.tensor([1.0, bad])])
        with pytest.raises(Diverged):
            DivergenceGuard().judge(0, {"a": bad}, [sound])
        with pytest.raises(Diverged):
            DivergenceGuard().judge(0, {"a": 1.0}, [torch.tensor(bad)])


def watched(losses) -> DivergenceGuard:
    """A guard that saw epochs with these losses; the state after epoch e holds e."""
    guard = DivergenceGuard()
    guard.keep(Position(), {"w": torch.tensor(-1.0)})
    for epoch, loss in enumerate(losses):
        guard.judge(0, {"a": loss}, [])
        guard.keep(Position(0, epoch + 1, 0, 3 * (epoch + 1)), {"w": torch.tensor(float(epoch))})
    return guard


def test_a_state_of_the_bad_stretch_is_not_taken():
    losses = [fall(epoch) for epoch in range(12)]
    guard = watched([*losses, losses[-1] + 0.6, losses[-1] + 1.5])
    state = guard.go_back(Diverged({"a": float("nan")}), "train", Position(0, 14, 3, 45), 0.1)
    assert (state.position, float(state.tensors["w"])) == (Position(0, 12, 0, 36), 11.0)
    assert guard.restarts == [Restart("train", 14, 12, 0.05)]
    assert guard.slowed == 0.5
    assert guard.course.epochs == 12  # what followed is forgotten
    with pytest.raises(InputError, match=r"the loss became \{'a': 9.5\} in epoch 15 of stage train, after"):
        guard.go_back(Diverged({"a": 9.5}), "train", Position(0, 14, 3, 45), 0.05)


def test_the_copy_is_not_moved_by_training_and_survives_a_file():
    weight = torch.ones(2)
    guard = DivergenceGuard()
    guard.keep(Position(), {"w": weight})
    guard.judge(0, {"a": 1.0}, [weight])
    weight += 1
    inside = CheckpointState(Position(0, 0, 2, 2, True), 1.0, {"w": weight})
    packed = guard.pack(inside)
    facts = json.loads(json.dumps(packed.guard))
    assert packed.tensors.keys() == {"w", "sound.w"}
    other = DivergenceGuard()
    other.unpack(CheckpointState(inside.position, 1.0, packed.tensors, facts))
    assert other.course == guard.course
    found = other.go_back(Diverged({}), "train", inside.position, 0.1)
    assert (found.position, found.tensors["w"].tolist()) == (Position(), [1.0, 1.0])
    again = other.pack(inside)  # after a restart there is no way back, and nothing to carry
    assert again.tensors.keys() == {"w"}
    third = DivergenceGuard()
    third.unpack(again)
    assert (third.restarts, third.slowed) == (other.restarts, 0.5)


GUARDS = ({"course": {"stage": 0, "epochs": "5"}}, {"course": 7}, {"restarts": [{"stage": "train"}]})


@pytest.mark.parametrize("guard", [*GUARDS, {"sound": [{"stage": 0}]}, {"more": 1}])
def test_a_state_whose_guard_says_something_else_is_told(guard):
    with pytest.raises(SchemaError):
        DivergenceGuard().unpack(CheckpointState(Position(), 1.0, {}, guard))


@pytest.mark.parametrize("position", [Position(2), Position(-1), Position(0, -1), Position(0, 0, 0, -3)])
def test_a_state_of_a_step_that_there_is_not_is_told(position):
    with pytest.raises(SchemaError, match="there is no step"):
        DivergenceGuard().unpack(CheckpointState(position, 1.0, {}), stages=2)
