"""ProtoGCD: prototypes, pseudo-labels from soft to hard, separation (Ma et al., TPAMI 2025).

    L = (1 - lam) * (L_dapl + 2 L_ent + sep L_sep) + lam * L_cls_s + (1 - lam) * L_con_u + lam * L_con_s

SimGCD with another teacher and one more term. L_dapl: each view learns the pseudo-labels of the other, which are
one-hot in the floor(r B) rows where the two largest probabilities are farthest apart, and soft in the rest; r grows
from 0 to 1 over the first half of training, and the teacher's temperature is 0.05 throughout. L_ent = log K - H(mean
prediction). L_sep drives the unit prototypes mu_k apart and may be negative.

Differs: the released script keeps the epoch with the best accuracy on the very images whose classes are hidden; here,
as in the paper's text, the last one counts. sep is published for CIFAR-100 (0.1) and CUB (0.05) only; other
fine-grained data and folders take 0.05, CIFAR and ImageNet 0.1. r's 100 of 200 epochs are half of any training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from holotype.config.parse import Positive, UnitInterval, Weight
from holotype.losses.classification import mean_entropy_deficit, supervised_cross_entropy
from holotype.losses.contrastive import info_nce, sup_con
from holotype.losses.ops import l2_normalize
from holotype.losses.pseudo_labels import adaptive_targets, cross_view_targets, prototype_separation
from holotype.methods.base import Batch, EpochMeans, Images, Method, Now, Progress, Stage, Task
from holotype.methods.schedules import linear_warmup
from holotype.methods.simgcd import TAU_S, TAU_U
from holotype.models.heads import CosineClassifier, Projector


@dataclass
class ProtoGCDConfig:
    """Settings of ProtoGCD."""

    lam: UnitInterval = 0.35
    """Weight of the supervised terms; the unsupervised ones get 1 - lam."""
    memax_weight: Weight = 2.0
    """Weight of the entropy term, which keeps every category in use."""
    separation: Weight = 0.05
    """Weight of the term that drives prototypes apart; 0.1 on CIFAR and ImageNet."""
    tau: Positive = 0.1
    """Temperature of the classifier, and of the separation."""
    teacher_temp: Positive = 0.05
    """Temperature of the pseudo-labels."""
    hard_start: UnitInterval = 0.0
    """Share of hard pseudo-labels in the first epoch."""
    hard_ramp: UnitInterval = 0.5
    """Share of training in which the share of hard pseudo-labels grows to 1."""


GENERIC = ("cifar10", "cifar100", "imagenet100")


class ProtoGCD(Method):
    """SimGCD's projector and cosine classifier on the tail's features; the classifier's rows are the prototypes.

    Title: ProtoGCD
    Paper: Shijie Ma, Fei Zhu, Xu-Yao Zhang, Cheng-Lin Liu: ProtoGCD: Unified and Unbiased Prototype Learning for
        Generalized Category Discovery. TPAMI 2025
    Summary: SimGCD's classifier with pseudo-labels that turn from soft to hard, surest first, and prototypes pushed
        apart.
    Differs:
    - The last epoch is used; the released script keeps the best one by the hidden classes.
    - The weight of the separation is published for CIFAR-100 and CUB only; the others are ours.
    - The rate rises over the first twentieth of the epochs; --train.warmup 0 takes that back.
    """

    Config = ProtoGCDConfig
    config: ProtoGCDConfig
    recipes: ClassVar[dict[str, dict[str, Any]]] = {name: {"method.separation": 0.1} for name in GENERIC}

    def __init__(self, config: ProtoGCDConfig, task: Task) -> None:
        super().__init__(config, task)
        self.projector = Projector(task.dim)
        self.classifier = CosineClassifier(task.dim, task.k)
        self.tally = EpochMeans("hard_share", "hard_precision")

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        length = round(self.config.hard_ramp * at.epochs)
        return {"hard_share": linear_warmup(self.config.hard_start, 1.0, length, at.epoch, at.epochs)}

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        self.tally.reset()

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        f = batch.features[:2]
        return self.terms(self.projector(f), self.classifier(f), l2_normalize(self.classifier.v), batch, now)

    def terms(self, z: Tensor, q: Tensor, mu: Tensor, batch: Batch, now: Now) -> dict[str, Tensor]:
        """The six weighted terms. z: (2, B, 256) projections, q: (2, B, K) cosines, mu: (K, D) unit prototypes."""
        c = self.config
        targets, hard = adaptive_targets(q, now["hard_share"], c.teacher_temp)
        right = (targets.argmax(-1) == batch.label).to(q.dtype)
        self.tally.add("hard_share", hard.to(q.dtype))
        self.tally.add("hard_precision", right, hard & batch.labelled)
        return {
            "dapl": (1 - c.lam) * cross_view_targets(q, targets, c.tau),
            "ent": (1 - c.lam) * c.memax_weight * mean_entropy_deficit(q, c.tau),
            "sep": (1 - c.lam) * c.separation * prototype_separation(mu, c.tau),
            "cls_s": c.lam * supervised_cross_entropy(q, batch.label, batch.labelled, c.tau),
            "con_u": (1 - c.lam) * info_nce(z, TAU_U),
            "con_s": c.lam * sup_con(z, batch.label, batch.labelled, TAU_S),
        }

    def diagnostics(self) -> dict[str, Tensor]:
        return self.tally.means()

    def logits(self, features: Tensor) -> Tensor:
        cosines: Tensor = self.classifier(features)
        return cosines / self.config.tau
