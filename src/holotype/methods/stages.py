"""What a stretch of training is: its length, its views, its rates, and the moments within it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Needs = Literal["tokens", "images"]
"""What a stage gives to the encoder: prepared tokens, or normalised images."""


@dataclass(frozen=True)
class Moment:
    """A step within a stage."""

    epoch: int
    epochs: int
    step: int = 0
    """Within the epoch."""
    steps: int = 1
    """Of the epoch."""

    @property
    def progress(self) -> float:
        """The share of the stage that lies behind, 0 to 1."""
        return (self.epoch + self.step / self.steps) / self.epochs


Pace = Callable[[Moment], float]
"""The share of a learning rate that is in force at a moment; methods/schedule.py has some."""


@dataclass(frozen=True)
class Rate:
    """A group of parameters that learns at a rate of its own."""

    prefix: str
    """Of parameter names ("tail", "method.head", ...); the longest one that matches wins."""
    lr: float | None = None
    """None: the stage's."""
    weight_decay: float | None = None
    """None: that of training. One-dimensional tensors never decay."""
    pace: Pace | None = None
    """None: the loop's own, a cosine to a thousandth once an epoch, with the warm-up of training."""


@dataclass(frozen=True)
class Views:
    """The views a stage asks the loop for, in this order in `Batch.features`."""

    weak: int = 2
    """Independent crop + flip views."""
    strong: int = 0
    """Crop + flip views with RandAugment and Cutout on top; they follow the weak ones."""
    share: Literal["batch", "group", "none"] = "batch"
    """Who shares the strong operations and their magnitudes: the whole batch, each group of rows, nobody."""
    groups: int = 8
    """Number of groups for `share = "group"`."""


@dataclass(frozen=True)
class Stage:
    """One stretch of training with a schedule of its own."""

    name: str = "train"
    epochs: int | None = None
    """A fixed number; None: `share` of the epochs of training."""
    share: float = 1.0
    """Of the epochs of training, rounded, at least one epoch."""
    lr: float | None = None
    """None: the loop's setting."""
    trains: tuple[str, ...] = ("tail", "method")
    """Prefixes of the parameter names that learn; the rest is frozen during the stage."""
    fresh: tuple[str, ...] = ()
    """Prefixes of the parameters that go back to their initial values when the stage begins."""
    views: Views = field(default_factory=Views)
    sampler: Literal["balanced", "uniform"] = "balanced"
    """balanced: half of the draws are labelled, with replacement. uniform: every image once an epoch."""
    needs: Needs = "tokens"
    """What `encode` and `embed` are given in this stage."""
    capturable: bool = True
    """Whether `encode`, `loss` and `after_step` can be replayed as a CUDA graph: they follow the four rules, read no
    value back to the host, and keep their shapes. A stage that cannot is run eagerly."""
    rates: tuple[Rate, ...] = ()
    """Parameters with a rate of their own; the others take the stage's."""

    @property
    def paced(self) -> bool:
        """Whether all that learns follows a pace of the stage's own, so that the warm-up of training does nothing."""
        return any(rate.prefix == "" for rate in self.rates) and all(rate.pace for rate in self.rates)

    def length(self, epochs: int) -> int:
        """Epochs of this stage in a training of `epochs`."""
        return max(1, round(self.share * epochs)) if self.epochs is None else self.epochs
