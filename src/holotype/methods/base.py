"""The method contract: what a method is given, what it owes, and nothing else.

The loop (training/loop.py) knows no method by name, and a method knows no device, rank, optimiser,
file or logger. Four rules make capture, resume and several processes work together:

1. What changes with time reaches the step as 0-d tensors in `Now`.
2. All randomness is drawn before the step (`Method.draws`) and arrives in `Batch.random`;
   state that outlives a step is a buffer, so that it is in the checkpoint.
3. The loop gathers the features of all processes; every process computes the loss of the whole batch.
4. Losses use masks, never boolean indexing, so that shapes stay static.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

Now = dict[str, Tensor]
"""The clock of a step: 0-d tensors. Always `epoch` and `progress` (0 to 1 within the stage), and
whatever the method's `schedule` returns (`teacher_temp`, `ramp`, ...)."""


@dataclass(frozen=True)
class Task:
    """The problem as a method may know it: counts, never a hidden class."""

    n_known: int
    """Number of known classes (C_L); their label indices are 0 .. n_known - 1."""
    k: int
    """Number of categories in the unlabelled images, known and novel."""
    dim: int
    """Width of the features that the tail returns."""
    n_images: int
    """Number of images in the table; `Batch.image` lies in 0 .. n_images - 1."""
    n_labelled: int
    """Number of images that carry a label."""
    epochs: int = 200
    """Epochs of a stage that does not set its own."""

    @property
    def n_unlabelled(self) -> int:
        return self.n_images - self.n_labelled


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
    """None: the loop's setting."""
    lr: float | None = None
    """None: the loop's setting."""
    trains: tuple[str, ...] = ("tail", "method")
    """Prefixes of the parameter names that learn; the rest is frozen during the stage."""
    fresh: tuple[str, ...] = ()
    """Prefixes of the parameters that go back to their initial values when the stage begins."""
    views: Views = field(default_factory=Views)
    sampler: Literal["balanced", "uniform"] = "balanced"
    """balanced: half of the draws are labelled, with replacement. uniform: every image once an epoch."""


@dataclass
class Batch:
    """One step's data, the same on every process. B images, V views, D features."""

    features: Tensor
    """(V, B, D) the encoder's output, with gradient."""
    label: Tensor
    """(B,) class index; 0 where unlabelled, so that it is always a legal index: mask it."""
    labelled: Tensor
    """(B,) bool: does the image carry a label?"""
    image: Tensor
    """(B,) row of the image in the table; equal rows are the same image drawn twice."""
    random: dict[str, Tensor] = field(default_factory=dict)
    """Uniform numbers in [0, 1), one tensor per entry of `Method.draws`."""


@dataclass
class Prediction:
    """What a method says of images."""

    category: Tensor
    """(N,) long: below n_known a known class, from there on a discovered category."""
    probability: Tensor
    """(N,) of the category."""
    known_score: Tensor
    """(N,) how far the image belongs to a known class, 0 to 1; NaN where the method has no such score."""


class Method(nn.Module):
    """Base of all methods. Subclasses set `Config`, build their heads, and write `loss` and `predict`."""

    Config: ClassVar[type[Any]]
    revision: ClassVar[int] = 1
    """Raised whenever the method draws or computes otherwise than before with the same settings: results of different
    revisions are results of different methods, and are never taken for each other."""
    needs: ClassVar[Literal["tokens", "images"]] = "tokens"
    """tokens: the loop runs trunk and tail. images: the method owns a differentiable `encode(images)`,
    whose parameters live under `self.encoder`."""
    scores_early: ClassVar[bool] = True
    """Whether `predict` means something before `finish`; False for a method that clusters at the end."""
    capturable: ClassVar[bool] = True
    """Whether `loss` and `after_step` can be replayed as a CUDA graph: they follow the four rules, read no value
    back to the host, and keep their shapes. A method that cannot is run eagerly."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}
    """Named settings, as dotted config keys; `default` is always there."""

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__()
        self.config = config
        self.task = task

    def stages(self) -> list[Stage]:
        """The stretches of training, in order; empty for a method that only clusters."""
        return [Stage()]

    def schedule(self, stage: Stage, epoch: int, epochs: int) -> dict[str, float]:
        """Values that change with time, for `Now`."""
        return {}

    def draws(self, batch_size: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the uniform random tensors that each step needs."""
        return {}

    def encode(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, D), only for `needs = "images"`."""
        raise TypeError(f"{type(self).__name__} takes tokens: the loop encodes for it")

    def before_epoch(self, stage: Stage, epoch: int, features: Callable[[], Tensor], label: Tensor) -> None:
        """Called at the start of each epoch. `features()` encodes every image of the table (N, D) on its
        centre crop, at the price of one pass (zeros for images that cannot be read, which never carry a
        label here); `label` is (N,) with -1 where unlabelled."""

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        """The named terms, weighted: the loop minimises their sum."""
        raise TypeError(f"{type(self).__name__} does not train: it has no stages")

    def after_step(self) -> None:
        """Called after each optimiser step (moving averages, queues), without gradient."""

    def diagnostics(self) -> dict[str, Tensor]:
        """0-d tensors worth a line in the log each epoch; they are not minimised."""
        return {}

    def finish(self, features: Tensor, label: Tensor, generator: torch.Generator) -> None:
        """Called once after training, with every image's features (N, D) and label (N,), -1 = unlabelled.
        A method that clusters stores its centres in buffers here."""

    def predict(self, features: Tensor) -> Prediction:
        """Place images, from parameters and buffers alone. features: (N, D)."""
        raise NotImplementedError  # abstract: every method writes its own
