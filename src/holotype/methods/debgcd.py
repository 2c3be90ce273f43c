"""DebGCD: debiased learning with a semantic distribution detector (Liu & Han, ICLR 2025).

    L = L_SimGCD + adl * L_adl + sdl * L_sdl

Two heads join SimGCD's: a second cosine classifier (debiased), taught with confident pseudo-labels that
are weighted by how certain the detector is; and the detector, one binary classifier per known class
(one-vs-all), trained with L_sdl = L_ova + 0.1 L_ent + L_soc. From its p_in(x, c):
s_ID(x) = max_c p_in(x, c), u = 1 - s_ID, certainty d = |2u - 1|.
Inference uses SimGCD's classifier alone; s_ID is returned as the known-ness of an image.

On fine-grained data the published system trains two blocks (`--backbone.train-blocks 2`, set by the
recipes), RPC one: a comparison must say which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from holotype.config.parse import UnitInterval, Weight
from holotype.losses.classification import debiased_loss
from holotype.losses.ova import certainty, detector_loss, known_score
from holotype.methods.base import Batch, Now, Prediction, Task
from holotype.methods.simgcd import AS_RUN, RECIPES, Recipes, SimGCD, SimGCDConfig, concat_views
from holotype.models.heads import CosineClassifier, DetectorOVA


class Debiasing(Protocol):
    """The settings of L_adl, DebGCD's or RPC's."""

    @property
    def adl(self) -> float: ...
    @property
    def threshold(self) -> float: ...
    @property
    def pseudo_share(self) -> float: ...


@dataclass
class DebGCDConfig(SimGCDConfig):
    """Settings of DebGCD; the last three differ between data sets (see the recipes)."""

    pseudo_share: UnitInterval = 0.5
    """Share of the debiased loss that comes from pseudo-labels; the rest comes from labels."""
    threshold: UnitInterval = 0.85
    """Smallest classifier probability for which a pseudo-label counts (thr)."""
    adl: Weight = 1.0
    """Weight of the auxiliary debiased loss."""
    sdl: Weight = 0.01
    """Weight of the detector's loss."""


class Script(NamedTuple):
    """What the released scripts change from one data set to the next."""

    train_blocks: int
    batch_size: int
    threshold: float
    adl: float
    sdl: float

    def recipe(self) -> dict[str, Any]:
        """As settings of DebGCD; the learning rate grows with the batch."""
        return {
            "method.threshold": self.threshold,
            "method.adl": self.adl,
            "method.sdl": self.sdl,
            "backbone.train_blocks": self.train_blocks,
            "train.batch_size": self.batch_size,
            "train.lr": 0.1 * self.batch_size / 128,
        }


SCRIPTS = {
    "cub": Script(2, 128, 0.65, 4.0, 0.005),
    "scars": Script(2, 128, 0.70, 2.0, 0.005),
    "aircraft": Script(2, 128, 0.85, 2.0, 0.01),
    "cifar10": Script(1, 128, 0.90, 2.0, 0.01),
    "cifar100": Script(1, 256, 0.55, 0.5, 0.001),
    "imagenet100": Script(1, 128, 0.85, 2.0, 0.005),
}


class DebGCD(SimGCD):
    """SimGCD plus a debiased classifier and a one-vs-all detector.

    Title: DebGCD
    Paper: Yuanpei Liu, Kai Han: DebGCD: Debiased Learning with Distribution Guidance for Generalized Category
        Discovery. ICLR 2025
    Summary: SimGCD with a second classifier, trained on confident pseudo-labels; a detector says how known an image
        is, which sets how much its pseudo-label counts.
    Differs:
    - Written from the published description.
    - The rate rises over the first twentieth of the epochs; the preset as_run takes that back.
    """

    Config = DebGCDConfig
    config: DebGCDConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = AS_RUN
    recipes: ClassVar[Recipes] = concat_views(RECIPES, {name: one.recipe() for name, one in SCRIPTS.items()})

    def __init__(self, config: DebGCDConfig, task: Task) -> None:
        super().__init__(config, task)
        self.debiased = CosineClassifier(task.dim, task.k)
        self.ova = DetectorOVA(task.dim, task.n_known)

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        c, f = self.config, batch.features[:2]
        q = self.classifier(f)
        p_in, l_sdl = detector_terms(self.ova, f, batch)
        return {
            **self.baseline(self.projector(f), q, batch, now),
            "adl": auxiliary_loss(self.debiased(f), q, p_in, batch, c, c.tau),
            "sdl": c.sdl * l_sdl,
        }

    def predict(self, features: Tensor) -> Prediction:
        placed = super().predict(features)
        return Prediction(placed.category, placed.probability, known_score(self.ova(features).sigmoid()))


def auxiliary_loss(
    debiased: Tensor, q: Tensor, p_in: Tensor, batch: Batch, config: Debiasing, tau: float
) -> Tensor:
    """adl * L_adl. debiased, q: (2, B, K) cosines of the debiased and of the main classifier; p_in: (2, B, C)."""
    d = certainty(known_score(p_in.detach()))
    return config.adl * debiased_loss(
        debiased, q, d, batch.label, batch.labelled, config.threshold, config.pseudo_share, tau
    )


def confidence_of_lead(lead: float, k: int, tau: float = 0.1) -> float:
    """The softmax probability of a category whose cosine lies `lead` above those of k - 1 equal others.

    p = 1 / (1 + (k - 1) exp(-lead / tau)): a threshold that asks the same of any number of categories.
    """
    return 1 / (1 + (k - 1) * math.exp(-lead / tau))


def detector_terms(ova: torch.nn.Module, f: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """p_in (2, B, C) of the two weak views, and L_sdl."""
    logits = ova(f)
    p_in = logits.sigmoid()
    # p_out from the logits, since 1 - p_in rounds to 0 for a head that is surely wrong
    return p_in, detector_loss(p_in, batch.label, batch.labelled, p_out=(-logits).sigmoid())


def scale_gradient(x: Tensor, scale: float) -> Tensor:
    """The value of x, with its gradient multiplied by `scale`."""
    return x.detach() + scale * (x - x.detach())
