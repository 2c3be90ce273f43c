"""Callbacks: what is called while a run trains; among them trackers, which fill TensorBoard or W&B by name."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor

from holotype.errors import InputError
from holotype.utils.text import suggest

SECONDS_BETWEEN_STEPS = 1.0
"""Reading the loss of a step waits for the device."""
PLACES = ("kind", "stage", "epoch", "counter")
"""Of a line of the log: where it stands, and not what it says."""


class Callback:
    """Base of all callbacks; override what you need. Called in the first process alone.

    One that raises KeyboardInterrupt stops the run after the step, with its state saved.
    """

    def on_step_end(self, step: int, terms: Mapping[str, Tensor]) -> None:
        """After each step. step: taken so far. terms: the loss by name, on the device: reading one waits for it."""

    def on_epoch(self, line: Mapping[str, Any]) -> None:
        """After each line of metrics.jsonl: `kind` is epoch (losses, rate, diagnostics) or score (All, Old, New)."""

    def on_finish(self, record: Any) -> None:
        """After the run. record: its Record, as in scores.json."""

    def close(self) -> None:
        """When training has ended, however it has."""


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker must know of a run."""

    folder: Path
    key: str
    """Its own among all runs, and the same when it is resumed."""
    settings: Mapping[str, Any]
    steps: int
    """Taken before, where it is resumed."""


class Tracker(Callback):
    """Sends numbers by name; a subclass writes `send`."""

    def __init__(self, run: TrackedRun) -> None:
        self.last_step = 0.0

    def send(self, values: Mapping[str, float], step: int) -> None:
        """Hand over numbers, such as epoch/loss and score/all, of a step counted over all stages."""
        raise NotImplementedError

    def on_step_end(self, step: int, terms: Mapping[str, Tensor]) -> None:
        if time.monotonic() - self.last_step > SECONDS_BETWEEN_STEPS:
            self.last_step = time.monotonic()
            self.send({f"step/{name}": float(value) for name, value in terms.items()}, step)

    def on_epoch(self, line: Mapping[str, Any]) -> None:
        values = {key: value for key, value in line.items() if key not in PLACES and is_number(value)}
        self.send({f"{line['kind']}/{key}": float(value) for key, value in values.items()}, line["counter"])

    def on_finish(self, record: Any) -> None:
        scores = {f"final/{key}": value for key, value in vars(record.scores).items() if is_number(value)}
        self.send(scores, 0)


class TensorBoardTracker(Tracker):
    """Event files in the folder `tensorboard` of the run: tensorboard --logdir runs."""

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(run)
        from torch.utils.tensorboard import SummaryWriter

        purge = run.steps + 1 if run.steps else None  # what an interrupted run wrote after its last state
        self.writer = SummaryWriter(str(run.folder / "tensorboard"), purge_step=purge)

    def send(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandbTracker(Tracker):
    """A run of Weights & Biases, whose own variables (WANDB_MODE, WANDB_PROJECT, WANDB_DIR) hold."""

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(run)
        import wandb

        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "holotype"),
            name=run.folder.name,
            id=run.key,
            config=dict(run.settings),
            resume="allow",
            reinit="create_new",  # several may train at once
        )

    def send(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def on_finish(self, record: Any) -> None:
        self.run.summary.update(
            {key: value for key, value in vars(record.scores).items() if is_number(value)}
        )

    def close(self) -> None:
        self.run.finish()


PACKAGES = ("tensorboard", "wandb")
"""Trackers that bear the name of a package."""
TRACKERS: dict[str, Callable[[TrackedRun], Tracker]] = {
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
}


def is_number(value: Any) -> bool:
    """Return whether a value can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def tracker_names(text: str | None) -> list[str]:
    """Return the names in tensorboard,wandb; InputError for one that there is not, or whose package is not here."""
    names = list(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    for name in names:
        if name not in TRACKERS:
            near = suggest(name, TRACKERS)
            raise InputError(f"There is no tracker {name!r}{near}; --log takes {', '.join(TRACKERS)}.")
        if name in PACKAGES and find_spec(name) is None:
            cure = "pip install 'holotype[trackers]'"
            raise InputError(f"--log {name} needs the package {name}, which is not installed; {cure}.")
    return names


def open_trackers(text: str | None, run: TrackedRun) -> list[Tracker]:
    """Return the trackers of a run by their names."""
    return [TRACKERS[name](run) for name in tracker_names(text)]
