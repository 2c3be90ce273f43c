"""SimGCD: a parametric classifier for category discovery (Wen et al., ICCV 2023).

    L = (1 - lam) * (L_cls_u + eps * L_me) + lam * L_cls_s + (1 - lam) * L_con_u + lam * L_con_s

over two weak views of every image. L_cls_s and L_con_s see the labelled images, the others all of them.
L_me = log K - H(mean prediction). `memax_target = "collection"`, for few labels, is ours: the mean weighs labelled and
unlabelled images as the collection holds them, not half and half as the batch does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor

from holotype.config.parse import Natural, Positive, UnitInterval, Weight
from holotype.losses.classification import mean_entropy_deficit, self_distillation, supervised_cross_entropy
from holotype.losses.contrastive import info_nce, sup_con
from holotype.methods.base import Batch, Method, Now, Progress, Stage, Task
from holotype.methods.schedules import linear_warmup
from holotype.models.heads import CosineClassifier, Projector


@dataclass
class SimGCDConfig:
    """Settings of SimGCD."""

    lam: UnitInterval = 0.35
    """Weight of the supervised terms; the unsupervised ones get 1 - lam."""
    memax_weight: Weight = 2.0
    """Weight eps of the mean-entropy term, which keeps every category in use; 1 to 4 in the published runs."""
    memax_target: Literal["uniform", "collection"] = "uniform"
    """What the entropy term wants to be even: the mean prediction of the batch, of which half is labelled, as
    published; or that of the collection, in which labelled and unlabelled images count by their numbers. Where few
    images are labelled, the first leaves no room for unlabelled images of known classes."""
    tau: Positive = 0.1
    """Temperature of the classifier."""
    teacher_temp_start: Positive = 0.07
    """Temperature of the sharpened target in the first epoch."""
    teacher_temp: Positive = 0.04
    """Temperature of the sharpened target after the warm-up."""
    teacher_warmup: Natural = 30
    """Epochs from the first teacher temperature to the last."""


Recipes = dict[str, dict[str, Any]]
MEMAX_WEIGHT = {"cub": 2.0, "cifar100": 4.0} | dict.fromkeys(
    ("scars", "aircraft", "cifar10", "imagenet100", "herbarium19"), 1.0
)
"""From the released scripts."""
RECIPES: Recipes = {name: {"method.memax_weight": weight} for name, weight in MEMAX_WEIGHT.items()}
AS_RUN: dict[str, dict[str, Any]] = {"as_run": {"train.warmup": 0.0}}
"""Presets: as_run is the published recipe of training, at the full rate from the first step."""
TAU_U, TAU_S = 1.0, 0.07
"""Temperatures of the unsupervised and of the supervised contrastive loss."""


class SimGCD(Method):
    """Projector and cosine classifier on the tail's features.

    Title: SimGCD
    Paper: Xin Wen, Bingchen Zhao, Xiaojuan Qi: Parametric Classification for Generalized Category Discovery: A
        Baseline Study. ICCV 2023
    Summary: A classifier with a prototype per category learns from labels, and from its own sharpened predictions on
        another view of the same image.
    Differs:
    - Values are those of the released code where the text says otherwise: temperatures 1.0 and 0.07 of the contrastive
      losses, a linear warm-up of the teacher's temperature, the entropy term inside (1 - lam).
    - The rate rises over the first twentieth of the epochs; the preset as_run takes that back.
    """

    Config = SimGCDConfig
    config: SimGCDConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = AS_RUN
    recipes: ClassVar[Recipes] = RECIPES

    def __init__(self, config: SimGCDConfig, task: Task) -> None:
        super().__init__(config, task)
        self.projector = Projector(task.dim)
        self.classifier = CosineClassifier(task.dim, task.k)

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        c = self.config
        warm = linear_warmup(c.teacher_temp_start, c.teacher_temp, c.teacher_warmup, at.epoch, at.epochs)
        return {"teacher_temp": warm}

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        f = batch.features[:2]
        return self.baseline(self.projector(f), self.classifier(f), batch, now)

    def baseline(self, z: Tensor, q: Tensor, batch: Batch, now: Now) -> dict[str, Tensor]:
        """The five weighted terms. z: (2, B, 256) projections, q: (2, B, K) cosines, of the two weak views."""
        c = self.config
        con_u, con_s = self.contrast(z, batch, now)
        return {
            "cls_u": (1 - c.lam) * self_distillation(q, now["teacher_temp"], c.tau),
            "me": (1 - c.lam) * c.memax_weight * self.balance(q, batch, now),
            "cls_s": c.lam * supervised_cross_entropy(q, batch.label, batch.labelled, c.tau),
            "con_u": (1 - c.lam) * con_u,
            "con_s": c.lam * con_s,
        }

    def contrast(self, z: Tensor, batch: Batch, now: Now) -> tuple[Tensor, Tensor]:
        """L_con_u and L_con_s of the two weak views. z: (2, B, 256) projections."""
        return info_nce(z, TAU_U), sup_con(z, batch.label, batch.labelled, TAU_S)

    def balance(self, q: Tensor, batch: Batch, now: Now) -> Tensor:
        """L_me of the batch, or with its rows weighed as those of the collection."""
        weight = self.row_weight(batch) if self.config.memax_target == "collection" else None
        return mean_entropy_deficit(q, self.config.tau, weight)

    def row_weight(self, batch: Batch) -> Tensor:
        """(B,) weights with which labelled and unlabelled rows of a batch stand for those of the collection."""
        share = self.task.n_labelled / self.task.n_images
        labelled = batch.labelled.to(batch.features.dtype)
        of_labelled, of_others = (part / part.sum().clamp_min(1) for part in (labelled, 1 - labelled))
        weight = share * of_labelled + (1 - share) * of_others
        return weight / weight.sum()

    def logits(self, features: Tensor) -> Tensor:
        cosines: Tensor = self.classifier(features)
        return cosines / self.config.tau


def concat_views(first: Recipes, second: Recipes) -> Recipes:
    """The recipes of both, data set by data set; the second wins."""
    return {dataset: {**first.get(dataset, {}), **second.get(dataset, {})} for dataset in first | second}
