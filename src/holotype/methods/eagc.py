"""EAGC: energy-aware gradient coordination (Zheng et al., CVPR 2026), in front of a method.

    L = L_method + pull * L_pull,    L_pull = mean over labelled images of ||f - f_ref||^2 / (2 D)
    dL/df_i <- (I - tau_i S) dL/df_i   for unlabelled images i
    S = R (R + I / aperture^2)^-1,   R = F^T F / N over the labelled images' f_ref
    e(f) = f^T S f / ||f||^2,        tau_i = project * clamp(1 - e(f_i) / e_known, 0, 1)

First the tail learns from labels alone, as a classifier of the known classes. A frozen twin of it gives f_ref from
there on, and training goes on from its weights. L_pull holds labelled images near what the twin says of them. An
unlabelled image that lies little in the subspace S of the known classes loses what its gradient would change there;
e_known is a moving mean of e over labelled images.

In the log, `gdc` is 1 - cos of the summed feature gradients of labelled images and of all images, `soc` the energy of
unlabelled images over that of labelled ones.

Differs: the published runs keep the epoch with the best accuracy on hidden labels, and train the heads at ten times the
rate; here the last epoch counts, at the method's own rate. They add a layer in front of the heads; here there is none.
gdc is taken on features instead of weights, soc on all unlabelled images, since which of them are novel is hidden.
The first stage sees half labelled, half unlabelled images in a step, and learns from the labelled ones.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holotype.config.parse import Positive, Weight
from holotype.losses.classification import supervised_cross_entropy
from holotype.losses.ops import masked_mean
from holotype.losses.subspace import conceptor, squared_drift, subspace_energy
from holotype.methods.base import Batch, EpochMeans, Images, Now, Progress, Stage, Task, Wrapper
from holotype.models.ema import Teacher
from holotype.models.heads import CosineClassifier

REFERENCE = Stage("reference", share=0.075, lr=0.04, trains=("tail", "method.eagc"))
"""15 of 200 epochs, half of whose draws are labelled: thirty passes over the labelled images of CUB, as published. The
rate is the published 0.02 for 32 labelled images, here for 64."""
ENERGY_MOMENTUM = 0.95
EPS = 1e-6


@dataclass
class EAGCConfig:
    """Settings of EAGC."""

    pull: Weight = 0.7
    """Weight of the pull of labelled features to those of the reference."""
    project: Weight = 0.5
    """Share of an unlabelled gradient inside the known classes' subspace that is taken away; 3 in a published run."""
    aperture: Positive = 2.0
    """How far the subspace reaches: the larger, the less must labelled features use a direction for it to belong."""


class EAGC(Wrapper):
    """A stage on labels alone, a frozen twin of the tail, and other gradients of the features.

    Title: EAGC
    Paper: Haiyang Zheng, Nan Pu, Yaqi Cai, Teng Long, Wenjing Li, Nicu Sebe, Zhun Zhong: The Devil Is in Gradient
        Entanglement: Energy-Aware Gradient Coordinator for Robust Generalized Category Discovery. CVPR 2026
    Summary: Labelled images are held near what a model of the labels alone says of them, and unlabelled ones do not
        learn along the directions of the known classes.
    Differs:
    - The last epoch is used; the published runs keep the best one by the hidden labels.
    - Heads learn at the method's own rate, not at ten times that, and there is no further layer in front of them.
    - Its two diagnostics are taken on features, and without looking at hidden classes.
    """

    Config = EAGCConfig
    eagc_subspace: Tensor
    eagc_known_energy: Tensor

    def __init__(self, config: Any, task: Task) -> None:
        super().__init__(config, task)
        self.eagc_classifier = CosineClassifier(task.dim, task.n_known)
        self.register_buffer("eagc_subspace", torch.zeros(task.dim, task.dim))
        self.register_buffer("eagc_known_energy", torch.ones(()))
        self.eagc_seen = EpochMeans("gdc", "soc")
        self.eagc_begins = False

    def build_encoder(self, trunk: Any, tail: Any) -> nn.Module:
        self.eagc_twin = Teacher(tail)
        return super().build_encoder(trunk, tail)

    def stages(self) -> list[Stage]:
        first = {name.partition(".")[0] for name, _ in self.named_parameters()}
        heads = tuple(sorted(f"method.{name}" for name in first if not name.startswith("eagc")))
        later = []
        for stage in super().stages():
            trains = [heads if prefix == "method" else (prefix,) for prefix in stage.trains]
            later.append(dataclasses.replace(stage, trains=sum(trains, ())))
        return [REFERENCE, *later]

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        return {} if stage == REFERENCE else super().schedule(stage, at)

    def draws(self, stage: Stage, batch_size: int) -> dict[str, tuple[int, ...]]:
        return {} if stage == REFERENCE else super().draws(stage, batch_size)

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        """Freeze the twin at the start of the method's first stage, and find the subspace of its labelled features."""
        self.eagc_seen.reset()
        if stage == REFERENCE:
            return
        if epoch == 0 and stage.name == super().stages()[0].name:
            self.eagc_twin.update(0.0)
            f = images.features()[images.label >= 0]
            self.eagc_subspace.copy_(conceptor(f, self.config.eagc.aperture))
            self.eagc_known_energy.copy_(subspace_energy(f, self.eagc_subspace).mean())
        super().before_epoch(stage, epoch, images)

    def encode(self, stage: Stage, inputs: Tensor, now: Now) -> Tensor:
        """(V, b, D) in the first stage, then (V, b, 2, D) with the twin's features."""
        f = super().encode(stage, inputs, now)
        if stage == REFERENCE:
            return f
        return torch.stack([f, self.eagc_twin(inputs.flatten(0, 1)).unflatten(0, inputs.shape[:2])], dim=2)

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        self.eagc_begins = batch.stage == REFERENCE.name
        if self.eagc_begins:
            q = self.eagc_classifier(batch.features)
            return {"reference": supervised_cross_entropy(q, batch.label, batch.labelled)}
        f, reference = batch.features.unbind(2)
        pull = self.config.eagc.pull * squared_drift(f, reference, batch.labelled)
        seen = self.coordinated(f, batch.labelled)
        return {**super().loss(dataclasses.replace(batch, features=seen), now), "pull": pull}

    def coordinated(self, f: Tensor, labelled: Tensor) -> Tensor:
        """f, whose gradient loses on unlabelled rows what lies in the known classes' subspace. f: (V, B, D)."""
        energy, known = subspace_energy(f.detach(), self.eagc_subspace), self.eagc_known_energy
        moved = ENERGY_MOMENTUM * known + (1 - ENERGY_MOMENTUM) * masked_mean(energy, labelled)
        known.copy_(torch.where(labelled.any(), moved, known))
        share = self.config.eagc.project * (1 - energy / (known + EPS)).clamp(0, 1) * ~labelled
        self.eagc_seen.add("soc", masked_mean(energy, ~labelled) / (known + EPS), (~labelled).any())
        seen = f.clone()

        def project(gradient: Tensor) -> Tensor:
            ours = (gradient * labelled[:, None]).sum((0, 1))
            cosine = F.cosine_similarity(ours, gradient.sum((0, 1)), dim=0)
            self.eagc_seen.add("gdc", 1 - cosine, labelled.any())
            return gradient - share[..., None].to(gradient.dtype) * (
                gradient @ self.eagc_subspace.to(gradient.dtype)
            )

        seen.register_hook(project)
        return seen

    def after_step(self) -> None:
        if not self.eagc_begins:
            super().after_step()

    def diagnostics(self) -> dict[str, Tensor]:
        return {**super().diagnostics(), **self.eagc_seen.means()}
