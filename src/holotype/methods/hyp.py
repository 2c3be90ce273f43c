"""HypCD: hyperbolic category discovery (Liu et al., CVPR 2025), in front of SimGCD and what is built on it.

    u = f min(1, r / ||f||),  x = exp_0(u) in the Poincare ball of curvature -c
    q = exp_0(W u), the logits of the classifier before the temperature
    L_con = (1 - w) L_con(angle of x_i, x_j) + w L_con(-d(x_i, x_j)),  w from 0 to 1 over training
    d(x, y) = 2 / sqrt(c) artanh(sqrt(c) ||-x (+) y||)

Both contrastive losses read the features themselves, without a projector; angles have temperatures of 0.3 times the
method's. The weights W live in the tangent space at the centre of the ball, where a hyperbolic linear layer is a plain
one between two maps, so that no Riemannian optimiser is needed.

Differs: heads are trained by the loop's SGD instead of Riemannian Adam. One set of values serves all data; published
runs change c, r and the temperature of angles by data set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holotype.config.parse import Positive
from holotype.losses.contrastive import info_nce, sup_con
from holotype.losses.hyperbolic import clip_norm, exp_at_centre, poincare_distance
from holotype.losses.self_expertise import cluster_contrast, smoothed_info_nce
from holotype.methods.base import Batch, Method, Now, Progress, Stage, Task, Wrapper
from holotype.methods.simgcd import TAU_S, TAU_U, SimGCD


@dataclass
class HypConfig:
    """Settings of HypCD."""

    c: Positive = 0.1
    """Curvature of the ball, without its sign; its radius is 1 / sqrt(c)."""
    radius: Positive = 2.0
    """Longest feature, before it is mapped into the ball; 1.2 to 2.3 in published runs."""
    angle: Positive = 0.3
    """Temperature of angles, as a share of the contrastive losses' own."""


class Clipped(nn.Module):
    """Features no longer than `radius`, in place of a projector."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, f: Tensor) -> Tensor:
        return clip_norm(f, self.radius)


class HyperbolicLinear(nn.Module):
    """exp_0(W u) of clipped features u. (..., dim) -> (..., k)."""

    def __init__(self, dim: int, k: int, c: float, radius: float) -> None:
        super().__init__()
        bound = 1 / math.sqrt(dim)
        self.weight, self.c, self.radius = (
            nn.Parameter(torch.empty(k, dim).uniform_(-bound, bound)),
            c,
            radius,
        )

    def forward(self, f: Tensor) -> Tensor:
        return exp_at_centre(F.linear(clip_norm(f, self.radius), self.weight), self.c)


class Hyp(Wrapper):
    """Another classifier and another contrast; the method's other heads stay.

    Title: HypCD
    Paper: Yuanpei Liu, Zhenqi He, Kai Han: Hyperbolic Category Discovery. CVPR 2025
    Summary: Classifier and contrast work in hyperbolic space, in which there is room for many small groups.
    Differs:
    - Heads are trained by the loop's SGD instead of Riemannian Adam.
    - One set of values serves all data.
    """

    Config = HypConfig

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        c = config.hyp
        self.projector = Clipped(c.radius)
        self.classifier = HyperbolicLinear(task.dim, task.k, c.c, c.radius)

    @classmethod
    def unfit(cls, method: type[Method]) -> str:
        return super().unfit(method) if issubclass(method, SimGCD) else "the method has not SimGCD's heads"

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        return {**super().schedule(stage, at), "by_distance": (at.epoch + 1) / at.epochs}

    def contrast(self, z: Tensor, batch: Batch, now: Now) -> tuple[Tensor, Tensor]:
        """L_con_u and L_con_s by angle and, ever more, by distance. z: (2, B, D)."""
        c, w = self.config.hyp, now["by_distance"]
        d = poincare_distance(exp_at_centre(z.flatten(0, 1), c.c), c.c)
        label, labelled = batch.label.repeat(2), batch.labelled.repeat(2)
        far_u = smoothed_info_nce(d, torch.zeros_like(d), 0.0, TAU_U)
        far_s = cluster_contrast(d[None], label[None], labelled[None], TAU_S)[0]
        angle_u = info_nce(z, c.angle * TAU_U)
        angle_s = sup_con(z, batch.label, batch.labelled, c.angle * TAU_S)
        return (1 - w) * angle_u + w * far_u, (1 - w) * angle_s + w * far_s
