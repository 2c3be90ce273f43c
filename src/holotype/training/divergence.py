"""Divergence guard: notice when the loss leaves its course, and restart from a good state.

It judges once an epoch, by the means of the loss terms, which are read then anyway. A run has left its course when

- a term or a weight is no longer a finite number, or
- for two epochs in a row the loss lies far above its recent course, once the stage has settled: five epochs, and those
  in which the rate warms up.

How far is measured by what the stage has gained. A term's gain is the way from its first epoch down to its best one.
What an epoch gives back is the way up again, at most to the first epoch's value, summed over the terms, as a share of
all gains. An epoch is far above when it gives back over half of all gains more than the middle one of the last five
epochs did, and three times as much more as these five differ among themselves (epochs of a few steps differ much); or
when the terms together are three times as large as they ever were. Runs on their course give back a tenth or two. So
the rule knows no scale, and schedules do not trigger it: a term that ramps up from nothing has gained nothing and can
give nothing back, a term that is switched on later does not count, and a slow rise moves the middle of the last five
along with it. Where little was gained (a quarter of the first epoch's size), only size counts.

A state is sound when its epoch gives back no more than a twentieth above that middle. The guard keeps a copy of the
last sound one, always of the end of an epoch: where a run goes back to depends on its losses alone, not on when it
happened to be saved. States on disk carry the copy along, so that a killed run goes the same way as one that was not.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from holotype.errors import InputError
from holotype.training.checkpoint import CheckpointState, Position
from holotype.utils.distributed import all_gather_object
from holotype.utils.serialization import SchemaError, from_dict

SETTLED_EPOCHS = 5
"""Epochs of a stage before its course can be told."""
RECENT_EPOCHS = 5
"""Epochs whose middle one is the recent course."""
FAR_FROM_COURSE, FAR_TWO_EPOCHS = 0.5, 2
"""Share of the gains given back within the recent epochs, and for how many epochs, that is off the course."""
NOISE = 3.0
"""Times the range of the recent epochs' shares, that has to be exceeded as well."""
RISE_FACTOR = 0.05
"""Share above which an epoch's state is not kept."""
GAIN_LOST = 0.25
"""Share of the first epoch's size below which little was gained that could be given back."""
BURST_FACTOR = 3.0
"""Times the largest size so far, that is off the course as well."""
RATE_FACTOR = 0.5
"""What the rate is multiplied with after a restart."""
PREFIX = "sound."
"""Of the copy's tensors in a saved state."""


@dataclass(frozen=True)
class Restart:
    """A run went back to its last sound state, with a lower rate. Epochs count from 0 in their stage."""

    stage: str
    epoch: int
    """In which the loss left its course."""
    back_to: int
    """That it went on with."""
    rate: float
    """Learning rate of the stage from there on."""

    def __str__(self) -> str:
        return (
            f"the loss left its course in epoch {self.epoch + 1} of stage {self.stage}; training goes back to the "
            f"start of epoch {self.back_to + 1} and on with half the rate, {self.rate:g}."
        )


class Diverged(Exception):
    """The loss left its course; `means` are the terms of the epoch in which it was noticed."""

    def __init__(self, means: Mapping[str, float]) -> None:
        super().__init__(f"the loss became {dict(means)}")


@dataclass
class LossHistory:
    """What the epochs of one stage were like, as far as it takes to judge the next one. Plain, for state.json."""

    stage: int = 0
    epochs: int = 0
    first: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    largest: float = 0.0
    recent: list[float] = field(default_factory=list)
    """Shares given back."""
    far: int = 0
    """Epochs in a row that were far above the course."""
    sound: bool = True
    """Whether the last epoch was."""

    def follow(self, means: Mapping[str, float], settled: int) -> None:
        """Judge an epoch, of finite terms, and count it in. settled: epochs before which none is far above."""
        if not self.epochs:
            self.first, self.best = dict(means), dict(means)
        size = sum(abs(value) for name, value in means.items() if self.first[name])
        recent = self.recent or [0.0]
        back, usual = self.given_back(means), statistics.median(recent)
        rise = max(FAR_FROM_COURSE, NOISE * (max(recent) - min(recent)))
        far = back > usual + rise or size > BURST_FACTOR * self.largest
        if self.epochs >= settled and far:
            self.far, self.sound = self.far + 1, False
            return  # what is off the course is no part of it
        self.far, self.sound = 0, back <= usual + RISE_FACTOR
        self.epochs += 1
        self.best = {name: min(self.best[name], value) for name, value in means.items()}
        self.largest = max(self.largest, size)
        self.recent = [*self.recent, back][-RECENT_EPOCHS:]

    def given_back(self, means: Mapping[str, float]) -> float:
        """The share of all gains that an epoch with these terms gives back, 0 to 1."""
        gains = sum(max(self.first[name] - best, 0.0) for name, best in self.best.items())
        if gains <= GAIN_LOST * sum(abs(value) for value in self.first.values()):
            return 0.0
        lost = sum(max(min(means[name], self.first[name]) - best, 0.0) for name, best in self.best.items())
        return lost / gains


class DivergenceGuard:
    """Watches one run. `judge` and `keep` belong to the end of each epoch, `go_back` to a Diverged."""

    def __init__(self, warmup: int = 0, active: bool = True) -> None:
        """warmup: epochs at the start of each stage in which the rate rises. active: whether a run may go back."""
        self.active = active
        self.settled = SETTLED_EPOCHS + warmup
        self.restarts: list[Restart] = []
        self.course = LossHistory()
        self._sound: CheckpointState | None = None

    @property
    def slowed(self) -> float:
        """What learning rates are multiplied with: 1 until the run was restarted."""
        return float(RATE_FACTOR ** len(self.restarts))

    def judge(self, stage: int, means: Mapping[str, float], weights: Iterable[Tensor]) -> None:
        """Raise Diverged where a run has left its course with the epoch that ends; on all processes or on none."""
        told = all_gather_object((dict(means), all_finite(weights)))
        means = told[0][0]  # sums of several processes may differ in their last bit
        if not all(finite for _, finite in told) or not all(map(math.isfinite, means.values())):
            if not self.active:
                raise InputError(f"{Diverged(means)}; lower --train.lr, or leave out --train.guard false.")
            raise Diverged(means)
        if not self.active:
            return
        if self.course.stage != stage:
            self.course = LossHistory(stage)
        self.course.follow(means, self.settled)
        if self.course.far >= FAR_TWO_EPOCHS:
            raise Diverged(means)

    def keep(self, position: Position, tensors: Mapping[str, Tensor]) -> None:
        """Copy the state at the end of an epoch, if it is sound; a run that was restarted has no more use for it."""
        if self.active and self.course.sound and not self.restarts:
            copied = {name: tensor.detach().clone() for name, tensor in tensors.items()}
            self._sound = CheckpointState(dataclasses.replace(position), 0.0, copied, self._facts())

    def go_back(self, left: Diverged, stage: str, position: Position, rate: float) -> CheckpointState:
        """The last sound state, once; the second time the run is over, and InputError says so.

        position: where the run stands, in the stage of this name. rate: learning rate of that stage.
        """
        if self._sound is None:
            raise InputError(
                f"{left} in epoch {position.epoch + 1} of stage {stage}, after the run had gone back once and on with "
                "half the rate; lower --train.lr, or use --train.precision fp32, and choose a new --out."
            )
        state, self._sound = self._sound, None
        # a state of another stage is the end of the one before: the start of this one
        back_to = state.position.epoch if state.position.stage == position.stage else 0
        self.course = LossHistory(**state.guard["course"])
        self.restarts.append(Restart(stage, position.epoch, back_to, rate * RATE_FACTOR))
        return state

    def _facts(self) -> dict[str, Any]:
        return {"course": dataclasses.asdict(self.course), "restarts": [vars(r) for r in self.restarts]}

    def pack(self, state: CheckpointState) -> CheckpointState:
        """A state of the run with what a guard must know to go on from it, the sound state included."""
        if not self.active:
            return state
        facts, sound = self._facts(), self._sound
        if sound is None or sound.position == state.position:  # the state is the sound one
            return dataclasses.replace(state, guard=facts)
        tensors = {PREFIX + name: tensor for name, tensor in sound.tensors.items()}
        facts["sound"] = [vars(sound.position), sound.guard["course"]]
        return dataclasses.replace(state, tensors=state.tensors | tensors, guard=facts)

    def unpack(self, state: CheckpointState, stages: int | None = None) -> CheckpointState:
        """Go on from what `pack` made.

        stages: that the run has. Raises SchemaError where the state holds something else.
        """
        at = state.position
        last = at.stage if stages is None else max(stages, 1) - 1
        if not 0 <= at.stage <= last or min(at.epoch, at.step, at.counter) < 0:
            raise SchemaError(f"there is no step {at.step} in epoch {at.epoch} of stage {at.stage}")
        if not self.active:
            return state
        facts = from_dict(_Packed, state.guard, every=False)
        self.restarts = facts.restarts
        self.course = facts.course
        if self.restarts:
            self._sound = None
        elif facts.sound is not None:
            position, course = facts.sound
            tensors = {n.removeprefix(PREFIX): t for n, t in state.tensors.items() if n.startswith(PREFIX)}
            self._sound = CheckpointState(position, 0.0, tensors, {"course": dataclasses.asdict(course)})
        else:
            position = dataclasses.replace(state.position)
            self._sound = CheckpointState(position, 0.0, state.tensors, self._facts())
        return state


@dataclass(frozen=True)
class _Packed:
    """What a state says of its guard."""

    course: LossHistory
    restarts: list[Restart]
    sound: tuple[Position, LossHistory] | None = None
    """Where the sound state lies, where that is another one, and the course up to there."""


def all_finite(weights: Iterable[Tensor]) -> bool:
    """Whether no weight is NaN or infinite; waits for the device once."""
    found = [torch.isfinite(weight.detach()).all() for weight in weights]
    return bool(torch.stack(found).all()) if found else True
