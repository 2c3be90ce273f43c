"""RS+: rank statistics for category discovery (Han et al., ICLR 2020 and TPAMI 2021, as adapted by Vaze et al., 2022).

    L = L_ce + L_bce + w(t) L_mse,    w(t) = c exp(-5 (1 - min(t, T) / T)^2)

One linear head over all K classes, on the feature as it is, without normalisation or temperature. L_ce: labelled
images, first view. L_bce: every pair of the batch is pulled together or pushed apart, as the five strongest features of
the first view are the same five or not (losses/rank_stats.py). L_mse: both views move towards the same prediction.

Differs: the adaptation was never released. Values are those of the authors' script as far as it is known; the form of
the head is ours. That script means to use the labels of labelled pairs and does not, counts L_mse twice and steps its
rate twice an epoch: `default` does what was meant, `as_run` what was done. T = 150 of 200 epochs and the drops of the
rate (at 170; as run, at 85 and 170) are shares of any training. No supervised stage comes before, views are crops and
flips, the last epoch is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from holotype.config.parse import Count, RepeatCount, UnitInterval, Weight
from holotype.losses.classification import supervised_cross_entropy
from holotype.losses.rank_stats import pair_cross_entropy, prediction_mse, same_top_features, true_pairs
from holotype.methods.base import Batch, EpochMeans, Images, Method, Now, ParamGroup, Progress, Stage, Task
from holotype.methods.schedules import drops, sigmoid_ramp


@dataclass
class RSConfig:
    """Settings of RS+."""

    strongest: Count = 5
    """Number of strongest features that two images must share to be a pair."""
    label_pairs: bool = True
    """Whether pairs of two labelled images follow their labels; false: their ranks, like all others."""
    consistency: Weight = 50.0
    """Weight c of the agreement of the two views after the ramp; 5 on CIFAR-10."""
    consistency_times: RepeatCount = 1
    """How often that term is counted."""
    ramp: UnitInterval = 0.75
    """Share T of training in which the weight rises; 0.25 on CIFAR-10."""
    lr_drops: Literal["once", "twice"] = "once"
    """How often the learning rate falls to a tenth: after 85 % of training, or after 42.5 % as well."""


DROPS = {"once": (170 / 200,), "twice": (85 / 200, 170 / 200)}
FINE_GRAINED = ("cub", "scars", "aircraft", "herbarium19")
GENERIC = ("cifar100", "imagenet100")


class RS(Method):
    """A linear classifier on the tail's features.

    Title: RS+
    Paper: Kai Han, Sylvestre-Alvise Rebuffi, Sebastien Ehrhardt, Andrea Vedaldi, Andrew Zisserman: AutoNovel:
        Automatically Discovering and Learning Novel Visual Categories. TPAMI 2021
    Summary: Two images with the same five strongest features are a pair; one linear head learns from pairs, labels
        and the agreement of views.
    Differs:
    - The adaptation to this task (Vaze et al., CVPR 2022) was not released; this one is ours, without the original's
      training stages before discovery.
    - Labelled pairs follow their labels, the consistency term counts once and the rate drops once; the preset as_run
      does otherwise, as the published numbers were probably made.
    - Features are ranked with their sign; AutoNovel's network has a ReLU before.
    - Views are crops and flips, and the last epoch is used.
    - Your own collection trains at a rate of 0.01: at 0.1, the rate for CIFAR and ImageNet, the features of the
      embedded sample all become alike.
    - The ramp and the drops of the rate are shares of any training.
    """

    Config = RSConfig
    config: RSConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "as_run": {"label_pairs": False, "consistency_times": 2, "lr_drops": "twice"}
    }
    recipes: ClassVar[dict[str, dict[str, Any]]] = {
        # at 0.1 the features of a small collection all become alike (docs/methods/rs.md)
        "*": {"train.weight_decay": 1e-4, "train.lr": 0.01},
        **{name: {"train.lr": 0.001} for name in FINE_GRAINED},
        **{name: {"train.lr": 0.1} for name in GENERIC},
        "cifar10": {"train.lr": 0.1, "method.consistency": 5.0, "method.ramp": 0.25},
    }

    def __init__(self, config: RSConfig, task: Task) -> None:
        super().__init__(config, task)
        self.head = nn.Linear(task.dim, task.k)
        self.tally = EpochMeans("positives", "pair_precision", "pair_recall")

    def stages(self) -> list[Stage]:
        return [Stage(rates=(ParamGroup("", pace=drops(*DROPS[self.config.lr_drops])),))]

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        return {"ramp": sigmoid_ramp(at.epoch, self.config.ramp * at.epochs)}

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        self.tally.reset()

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        f = batch.features[:2]
        return self.terms(f[0], self.head(f), batch, now)

    def terms(self, h: Tensor, logits: Tensor, batch: Batch, now: Now) -> dict[str, Tensor]:
        """The three weighted terms. h: (B, D) features of the first view, logits: (2, B, K)."""
        c = self.config
        positive = same_top_features(h, c.strongest)
        self.count(positive, batch)
        if c.label_pairs:
            positive = true_pairs(positive, batch.label, batch.labelled)
        return {
            "ce": supervised_cross_entropy(logits[:1], batch.label, batch.labelled, tau=1.0),
            "bce": pair_cross_entropy(logits, positive),
            "mse": now["ramp"] * c.consistency * c.consistency_times * prediction_mse(logits),
        }

    @torch.no_grad()
    def count(self, positive: Tensor, batch: Batch) -> None:
        """Positives of a row, and how right ranks are about pairs of two labelled images. positive: (B, B)."""
        other = batch.image[:, None] != batch.image[None, :]
        both = other & batch.labelled[:, None] & batch.labelled[None, :]
        same = batch.label[:, None] == batch.label[None, :]
        self.tally.add("positives", (positive & other).sum(-1).float())
        self.tally.add("pair_precision", same.float(), positive & both)
        self.tally.add("pair_recall", positive.float(), same & both)

    def diagnostics(self) -> dict[str, Tensor]:
        return self.tally.means()

    def logits(self, features: Tensor) -> Tensor:
        found: Tensor = self.head(features)
        return found
