"""muGCD: a mean teacher for category discovery (Vaze, Vedaldi and Zisserman, NeurIPS 2023), outside the package.

    stage represent:  L = (1 - lam) L_con_u + lam L_con_s                     GCD's representation
    stage teach:      L = (1 - lam) [ CE(sg p_T(x_weak), p_S(x_strong)) + eps L_me ] + lam L_cls_s,
                      theta_T <- w theta_T + (1 - w) theta_S,    w = 0.999 - 0.3 (cos(pi t / T) + 1) / 2

A student that sees strong augmentation is taught by its own moving average, which sees weak ones: these leave the class
as it is, so targets are stable, and what augmentation must not change is left out of them. The teacher places images.

Differs: written from the paper's equations. Strong views are RandAugment and Cutout, K is given, the first stage is as
long as the second, and rate, decay and lam are SimGCD's. From the top of the repository:

    PYTHONPATH=examples holotype train mugcd:MuGCD fashion-sample --train.epochs 10
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from holotype.config.parse import Positive, UnitInterval
from holotype.losses.classification import mean_entropy_deficit, supervised_cross_entropy
from holotype.losses.contrastive import info_nce, sup_con
from holotype.methods import Batch, Card, Images, Method, Now, Progress, Stage, Task, Views
from holotype.models.ema import Teacher
from holotype.models.heads import CosineClassifier, Projector

REPRESENT, TEACH = "represent", "teach"


@dataclass
class MuGCDConfig:
    """Settings of muGCD."""

    lam: UnitInterval = 0.35
    """Weight of the supervised terms; the others get 1 - lam."""
    eps: Positive = 1.0
    """Weight of the entropy term, which keeps all categories in use."""
    tau: Positive = 0.1
    """Temperature of the student."""
    teacher_tau: Positive = 0.05
    """Temperature of the teacher's targets."""


class MuGCD(Method):
    """A projector for the first stage, prototypes for the second, and a teacher of tail and prototypes."""

    Config = MuGCDConfig
    config: MuGCDConfig
    card = Card(
        title="muGCD",
        paper="Sagar Vaze, Andrea Vedaldi, Andrew Zisserman: No Representation Rules Them All in Category Discovery. "
        "NeurIPS 2023",
        year=2023,
        line="A student on strong views is taught by its moving average on weak ones.",
        differs=("Strong views are RandAugment and Cutout; rate, decay and lam are SimGCD's.",),
    )
    momentum: Tensor

    def __init__(self, config: MuGCDConfig, task: Task) -> None:
        super().__init__(config, task)
        self.projector = Projector(task.dim)
        self.classifier = CosineClassifier(task.dim, task.k)
        self.register_buffer("momentum", torch.zeros(()))

    def build_encoder(self, trunk: Any, tail: Any) -> nn.Module:
        self.teacher = Teacher(tail, self.classifier)  # registered here: saved with the method
        encoder: nn.Module = tail
        return encoder

    def stages(self) -> list[Stage]:
        views = Views(weak=1, strong=1, share="none")
        return [
            Stage(REPRESENT, trains=("tail", "method.projector")),
            Stage(TEACH, trains=("tail", "method.classifier"), views=views),
        ]

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        rest = 0.3 * (math.cos(math.pi * at.progress) + 1) / 2
        return {"momentum": 0.999 - rest if stage.name == TEACH else 0.0}

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        if stage.name == TEACH and epoch == 0:
            self.teacher.update(0.0)  # begins as a copy of the student

    def encode(self, stage: Stage, inputs: Tensor, now: Now) -> Tensor:
        student = super().encode(stage, inputs, now)  # (V, b, D)
        if stage.name == REPRESENT:
            return student
        taught = self.teacher(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])
        return torch.stack([student, taught], dim=2)  # (V, b, 2, D)

    def embed(self, stage: Stage, inputs: Tensor) -> Tensor:
        return self.teacher(inputs) if stage.name == TEACH else super().embed(stage, inputs)

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        c = self.config
        self.momentum.copy_(now["momentum"])
        if batch.stage == REPRESENT:
            z = self.projector(batch.features)
            con_s = sup_con(z, batch.label, batch.labelled)
            return {"con_u": (1 - c.lam) * info_nce(z), "con_s": c.lam * con_s}
        student, taught = batch.features.unbind(2)  # each (2, B, D): weak, strong
        q, target = self.classifier(student), self.teacher[1](taught[0]).detach() / c.teacher_tau
        distilled = -(target.softmax(-1) * (q[1] / c.tau).log_softmax(-1)).sum(-1).mean()
        return {
            "cls_u": (1 - c.lam) * distilled,
            "me": (1 - c.lam) * c.eps * mean_entropy_deficit(q[1:], c.tau),
            "cls_s": c.lam * supervised_cross_entropy(q, batch.label, batch.labelled, c.tau),
        }

    def after_step(self) -> None:
        self.teacher.update(self.momentum)

    def logits(self, features: Tensor) -> Tensor:
        """(N, D) teacher's features -> (N, K)."""
        return self.teacher[1](features) / self.config.tau
