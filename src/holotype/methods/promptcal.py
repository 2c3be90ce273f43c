"""PromptCAL: contrastive affinity learning with auxiliary prompts (Zhang, Khan, Shen, Naseer, Chen & Khan, CVPR 2023).

Five learnt tokens stand in every block of the network. h = (CLS, mean of the first two prompts) after the last block,
z = a DINO head of its own on each. Two stages:

    warm-up   L = S(z_cls) + gamma S(z_dpr),        S = (1 - lam) InfoNCE + lam SupCon
    affinity  L = G(cls) + gamma G(dpr),            G = lam SupCon + (1 - lam) [(1 - w) InfoNCE + w L_cal]

In the second stage a teacher (EMA of prompts, last blocks and both heads) gives the other side of both contrasts, and
fills a memory of its features h. A graph over batch and memory says which rows belong together (losses/affinity.py);
L_cal is a contrast of h with these. Afterwards semi-supervised k-means on the student's CLS features.

Differs, by default: no identity in the diffusion, which erases every positive between clean clusters; the other view's
teacher feature as free positive of both terms, as the paper has it (`as_run`: the identity, and the same view for CLS,
as released); a row with more positives than the cap has no negatives, where the released slice takes nearly all. The
memory holds -1 for unlabelled images, and at most as many rows as there are images. No distillation on ImageNet. The
second stage goes on from the last epoch, and the last epoch is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from holotype.config.parse import Count, Factor, LargeInt, UnitInterval
from holotype.losses.affinity import (
    affinity_contrast,
    affinity_graph,
    draw_negatives,
    drop_weak_edges,
    labelled_pairs,
)
from holotype.losses.contrastive import info_nce, sup_con
from holotype.losses.ops import l2_normalize
from holotype.methods.base import Batch, EpochMeans, Images, Now, Progress, Stage, Task, warn_reduced
from holotype.methods.gcd import GCD, GCDConfig
from holotype.methods.simgcd import TAU_S, TAU_U
from holotype.models.ema import Teacher
from holotype.models.heads import GCDHead
from holotype.models.memory_bank import RingMemory
from holotype.models.prompts import LearnedPrompts, TokenPrompts

AFFINITY = "affinity"
"""The second stage."""
TAU_A = 0.07
"""Temperature of L_cal."""
CAL_RAMP = 2
"""Epochs over which the weight of L_cal rises."""
FEWEST, MOST = 3, 20
"""Neighbours in the graph, on data without a recipe."""


@dataclass
class PromptCALConfig(GCDConfig):
    """Settings of PromptCAL."""

    gamma: UnitInterval = 0.35
    """Weight of the prompts' terms beside those of CLS."""
    affinity_epochs: Factor = 0.5
    """Length of the second stage, in times train.epochs."""
    momentum: UnitInterval = 0.999
    """Of the teacher, which follows the student after each step of the second stage."""
    memory: Count = 4096
    """Rows of the memory, two for each image of a batch; never more than there are images."""
    neighbours: Count | None = None
    """Nearest neighbours of a row in the graph; by default memory / (4 k), from 3 to 20."""
    quantile: UnitInterval = 0.8
    """Share of the strong links that are not believed."""
    negatives: LargeInt = 1024
    """Positives and negatives of a row in the memory, at most."""
    cal_weight: UnitInterval = 0.6
    """Share w of L_cal in the part without labels, after two epochs."""
    identity: bool = False
    """Add I after the diffusion, as released."""
    cls_positive: Literal["swapped", "same"] = "swapped"
    """Which view's teacher feature is the free positive of CLS: the other view's, or the same one's, as released."""


def _values(neighbours: int, quantile: float, affinity_epochs: float, **more: Any) -> dict[str, Any]:
    values = {"neighbours": neighbours, "quantile": quantile, "affinity_epochs": affinity_epochs}
    return {**{f"method.{key}": value for key, value in values.items()}, **more}


class PromptCAL(GCD):
    """GCD's head on CLS, another on the prompts, their teachers, and a memory.

    Title: PromptCAL
    Paper: Sheng Zhang, Salman Khan, Zhiqiang Shen, Muzammal Naseer, Guangyi Chen, Fahad Shahbaz Khan: PromptCAL:
        Contrastive Affinity Learning via Auxiliary Prompts for Generalized Novel Category Discovery. CVPR 2023
    Summary: Adds five learnt tokens to every block; then a teacher's memory and a graph of shared neighbours say
        which images belong together; k-means at the end.
    Differs:
    - No identity in the diffusion of the graph, and the other view as free positive of CLS (preset as_run: as
      released).
    - A row with more positives than the cap has no negatives; the released code then takes nearly all.
    - No distillation on ImageNet; the second stage goes on from the last epoch, and the last epoch is used.
    - The memory never has more rows than there are images.
    - In both stages the rate rises over the first twentieth of the epochs; --train.warmup 0 takes that back.
    - On data of your own the graph has memory / (4 k) neighbours, from 3 to 20, and quantile 0.8.
    """

    Config = PromptCALConfig
    config: PromptCALConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "as_run": {"identity": True, "cls_positive": "same"},
        "light": {"proj_out": 0},
    }
    recipes: ClassVar[dict[str, dict[str, Any]]] = {
        **dict.fromkeys(("cub", "scars", "aircraft"), _values(5, 0.8, 0.5)),
        **dict.fromkeys(("cifar10", "cifar100"), _values(10, 0.5, 0.35)),
        "imagenet100": _values(10, 0.5, 0.7, **{"train.epochs": 100}),
        "herbarium19": _values(
            7, 0.8, 1.0, **{"train.epochs": 100, "method.memory": 20_000, "method.negatives": 5000}
        ),
    }

    def __init__(self, config: PromptCALConfig, task: Task) -> None:
        super().__init__(config, task)
        self.prompt_head = GCDHead(task.dim, out=config.proj_out or None)
        self.teacher = Teacher(self.head, self.prompt_head)
        rows = min(config.memory, task.n_images)
        self.memory, self.memory_label = RingMemory(rows, 2, task.dim), RingMemory(rows)
        self.k_nn = min(config.neighbours or min(max(rows // (4 * task.k), FEWEST), MOST), rows)
        self.tally = EpochMeans("positives", "precision", "prompt_positives", "prompt_precision")
        self.unwritten: tuple[Tensor, Tensor] | None = None

    def check(self) -> list[str]:
        c, there = self.config, self.task.n_images
        rows = len(self.memory.rows)
        return [
            *super().check(),
            *warn_reduced("method.memory", c.memory, there, "images"),
            *warn_reduced("method.neighbours", c.neighbours or 0, rows, "rows in the memory"),
        ]

    def build_encoder(self, trunk: Any, tail: Any) -> nn.Module:
        return LearnedPrompts(TokenPrompts(trunk, tail))

    def stages(self) -> list[Stage]:
        share, learns = self.config.affinity_epochs, ("tail.student", "method")
        fresh = ("method.prompt_head",)
        return [
            Stage("warm-up", needs="images", trains=learns),
            Stage(AFFINITY, needs="images", share=share, trains=learns, fresh=fresh),
        ]

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        rise = min(1.0, (at.epoch + at.step / at.steps) / CAL_RAMP)
        return {"w": self.config.cal_weight * rise}

    def draws(self, stage: Stage, batch_size: int) -> dict[str, tuple[int, ...]]:
        return {"negatives": (2 * batch_size, len(self.memory.rows))} if stage.name == AFFINITY else {}

    def encode(self, stage: Stage, inputs: Tensor, now: Now) -> Tensor:
        """(2, b, 3, S, S) -> (2, b, P, D): CLS and prompts of the student, in the second stage then of the teacher."""
        images = inputs.flatten(0, 1)
        features: Tensor = self.encoder.student(images)
        if stage.name == AFFINITY:
            features = torch.cat([features, self.encoder.teacher(images)], dim=1)
        return features.unflatten(0, inputs.shape[:2])

    def embed(self, stage: Stage, inputs: Tensor) -> Tensor:
        features: Tensor = self.encoder.student(inputs)[:, 0]
        return features

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        """The teacher begins as a copy of the student as it enters the second stage."""
        self.tally.reset()
        if stage.name == AFFINITY and epoch == 0:
            self.follow(0.0)

    def after_step(self) -> None:
        """Features that the teacher had before it moves."""
        if self.unwritten is None:
            return
        features, label = self.unwritten
        everyone = torch.ones_like(label, dtype=torch.bool)
        self.memory.push(features, everyone)
        self.memory_label.push(label, everyone)
        self.follow(self.config.momentum)

    def follow(self, m: float) -> None:
        self.teacher.update(m)
        self.encoder.teacher.update(m)

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        heads, f = (self.head, self.prompt_head), batch.features
        self.unwritten = None
        if batch.stage != AFFINITY:
            parts = [self.contrast(head(f[:, :, i]), batch) for i, head in enumerate(heads)]
        else:
            label = torch.where(batch.labelled, batch.label, -1).repeat(2)
            self.unwritten = l2_normalize(f[:, :, 2:].detach()).flatten(0, 1), label.to(f.dtype)
            parts = [self.affinity(i, head, batch, label, now) for i, head in enumerate(heads)]
        cls, dpr = parts
        return {**cls, **{f"{name}_prompt": self.config.gamma * term for name, term in dpr.items()}}

    def affinity(self, i: int, head: nn.Module, batch: Batch, label: Tensor, now: Now) -> dict[str, Tensor]:
        """The terms of G. i: 0 for CLS, 1 for the prompts. label: (2B,) class, -1 = unlabelled."""
        c, w = self.config, now["w"]
        f, taught = batch.features[:, :, i], batch.features[:, :, 2 + i].detach()
        with torch.no_grad():
            z_taught = self.teacher[i](taught)
        z = head(f)
        positive, negative = self.pairs(i, taught, batch, label)
        same = i == 0 and c.cls_positive == "same"
        own = (taught if same else taught.flip(0)).flatten(0, 1)
        l_cal = affinity_contrast(f.flatten(0, 1), own, self.memory.rows[:, i], positive, negative, TAU_A)
        return {
            "con_s": c.lam * sup_con(z, batch.label, batch.labelled, TAU_S, teacher=z_taught),
            "con_u": (1 - c.lam) * (1 - w) * info_nce(z, TAU_U, teacher=z_taught),
            "cal": (1 - c.lam) * w * l_cal,
        }

    @torch.no_grad()
    def pairs(self, i: int, taught: Tensor, batch: Batch, label: Tensor) -> tuple[Tensor, Tensor]:
        """Which rows of the memory are positives and negatives of each row of the batch: (2B, M) bool each.

        A row is known to the graph by the teacher's feature of its other view. taught: (2, B, D).
        """
        c, valid, memory_label = self.config, self.memory.valid, self.memory_label.rows.long()
        rows = taught.flip(0).flatten(0, 1)
        found = affinity_graph(rows, self.memory.rows[:, i], valid, self.k_nn, c.quantile, c.identity)
        memory_label = torch.where(valid, memory_label, -1)
        prefix, judged = ("", "prompt_")[i], found & labelled_pairs(label, memory_label)
        self.tally.add(f"{prefix}positives", found.sum(1).to(rows.dtype))
        agrees = (label[:, None] == memory_label[None, :]).to(rows.dtype)
        self.tally.add(f"{prefix}precision", agrees, judged)
        negative = draw_negatives(found, valid, batch.random["negatives"], c.negatives)
        return drop_weak_edges(found, negative, label, memory_label)

    def diagnostics(self) -> dict[str, Tensor]:
        """Positives a row in the graph, and how many of those with two labels are of one class."""
        return self.tally.means()
