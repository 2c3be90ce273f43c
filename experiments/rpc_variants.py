"""RPC with one part changed: what the rows of contrasts.yaml and the row `coupled` of the open choices ran.

Their records are of a time when each was a setting of RPC; the rows name them by hash. To train one today:

    PYTHONPATH=experiments holotype train rpc_variants:FeatureSpace cub --train.warmup 0
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from holotype.losses.ops import l2_normalize
from holotype.losses.relational import relational_consistency
from holotype.methods.base import Batch, Images, Now, Stage
from holotype.methods.debgcd import detector_terms
from holotype.methods.rpc import RPC


class FeatureSpace(RPC):
    """L_new draws features together, not signatures."""

    def discover(self, f: Tensor, w_old: Tensor, batch: Batch) -> Tensor:
        rows, tau = f.flatten(0, 1), self.config.new.tau
        weight = self.novel_weight(w_old).repeat(2)
        return relational_consistency(
            l2_normalize(rows), rows, weight, batch.image.repeat(2), ~batch.labelled.repeat(2), tau=tau
        )


class SampleAnchors(RPC):
    """One labelled image of each class stands in place of its prototype, encoded anew in every epoch."""

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        classes = torch.arange(self.task.n_known, device=images.label.device)
        own = (images.label == classes[:, None]).int()
        self.prototypes.copy_(l2_normalize(images.features())[own.argmax(1)] * own.amax(1, keepdim=True))

    def update_prototypes(self, f: Tensor, q: Tensor, w_old: Tensor, batch: Batch, now: Now) -> None:
        """Leave them as they are."""


class HardPrototypes(RPC):
    """Prototypes are moving means of labelled images alone."""

    def update_prototypes(self, f: Tensor, q: Tensor, w_old: Tensor, batch: Batch, now: Now) -> None:
        super().update_prototypes(f, q, torch.zeros_like(w_old), batch, now)


class StrongLabelled(RPC):
    """Only labelled images have a strong view; that of the others is their second weak one."""

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        return super().loss(_strong_where(batch.labelled, batch), now)


class StrongUnlabelled(RPC):
    """Only unlabelled images have a strong view; that of the others is their second weak one."""

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        return super().loss(_strong_where(~batch.labelled, batch), now)


class Coupled(RPC):
    """The weight of the one-vs-all loss scales it as a whole, as in DebGCD."""

    def detect(self, f: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        p_in, l_sdl = detector_terms(self.ova, f, batch)
        return p_in, self.config.ova.weight * l_sdl


def _strong_where(strong: Tensor, batch: Batch) -> Batch:
    third = torch.where(strong[:, None], batch.features[2], batch.features[1])
    return dataclasses.replace(batch, features=torch.cat([batch.features[:2], third[None]]))
