"""A stage of training while it runs, and how long a stage on images takes on a CPU."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holotype.data.samplers import keyed_generator
from holotype.methods.base import Progress, Stage
from holotype.training.batches import EpochDraws, StageDraws, schedule_values
from holotype.training.encoder import Encoder
from holotype.training.step import Step
from holotype.utils.console import format_duration
from holotype.utils.distributed import rank, world_size

TIMED_IMAGES = 4
"""Images that a timed step has."""
MOMENTS = 6
"""Steps of a stage that are timed: they may differ, as in methods that take turns."""
TIMING_SECONDS = 4.0
"""Seconds after which no further step of a stage is timed."""

log = logging.getLogger("holotype")


@dataclass
class StageRun:
    """One stage while it trains: its batches, and its step with the optimiser."""

    stage: Stage
    epochs: int
    batches: StageDraws
    step: Step
    ahead: EpochDraws | None = None
    """The next epoch, where its first batches are drawn already."""

    def epoch(self, number: int, first: int = 0) -> EpochDraws:
        """Return the batches of an epoch from step `first` on."""
        ahead, self.ahead = self.ahead, None
        return ahead or self.batches.epoch(number, first)

    def draw_ahead(self, number: int) -> None:
        """Draw the first batches of the next epoch now, if there is one that does not depend on work at its start."""
        if number < self.epochs and self.batches.early:
            self.ahead = self.batches.epoch(number)


def log_duration(
    encoder: Encoder, left: Sequence[tuple[Stage, int]], size: int, batch_size: int, steps: int
) -> None:
    """Say in one line how long the stages on images take, if the device is a CPU and there are any.

    left: the stages to come, each with its epochs. size: side of an image. steps: of an epoch.
    """
    on_images = [(stage, epochs) for stage, epochs in left if stage.needs == "images" and epochs > 0]
    if encoder.device.type != "cpu" or not on_images or rank() > 0:
        return
    of_each = batch_size / world_size()
    seconds = sum(
        seconds_an_image(encoder, stage, epochs, size, steps) * of_each * steps * epochs
        for stage, epochs in on_images
    )
    names = " and ".join(stage.name for stage, _ in on_images)
    log.info(
        f"{type(encoder.method).__name__} runs every view of {names} through the whole network: "
        f"about {format_duration(seconds)} or more on this CPU."
    )


def seconds_an_image(encoder: Encoder, stage: Stage, epochs: int, size: int, steps: int) -> float:
    """Forwards and backwards through the encoder with all views of an image, as a mean over moments of a stage.

    Losses and heads are left out: they need a batch. Weights, gradients and generators stay as they are.
    """
    views = stage.views.weak + stage.views.strong
    images = torch.zeros(views, TIMED_IMAGES, 3, size, size, dtype=encoder.dtype)
    drawn = torch.randperm(epochs * steps, generator=keyed_generator("moments of", stage.name))[:MOMENTS]
    with torch.random.fork_rng(devices=[]):
        _time_pass(encoder, stage, images, Progress(0, epochs, 0, steps))  # the first one is slower
        started, done = time.monotonic(), 0
        for at in drawn.tolist():
            _time_pass(encoder, stage, images, Progress(at // steps, epochs, at % steps, steps))
            done += 1
            if time.monotonic() - started > TIMING_SECONDS:
                break
    return (time.monotonic() - started) / (done * TIMED_IMAGES)


def _time_pass(encoder: Encoder, stage: Stage, images: Tensor, at: Progress) -> None:
    assert encoder.method is not None
    now = {name: torch.tensor(value) for name, value in schedule_values(encoder.method, stage, at).items()}
    learning = [p for p in encoder.module.parameters() if p.requires_grad]
    features = encoder.encode(stage, images, now)
    if features.requires_grad:
        torch.autograd.grad(features.sum(), learning, allow_unused=True)  # leaves no .grad behind
