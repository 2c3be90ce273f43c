"""DCCL: dynamic conceptional contrastive learning (Pu et al., CVPR 2023).

    L = (1 - lam) L_con_u + lam L_con_s + w(e) L_C
    L_C = mean_i -log [ exp(f_i·mu_c(i)/tau) / sum_k exp(f_i·mu_k/tau) ]

GCD's two terms on its head, and a third on the features themselves. Between epochs all images are linked to their
nearest neighbours, the graph falls into communities ("concepts", whose number nobody gives), and mu_c starts at the
mean of concept c. Beside its balanced batch a step sees 8 concepts with 16 images each, in two views; after it every
one of these rows f, one after the other, moves its centre: mu_c <- normalise(0.1 mu_c + 0.9 f). w grows from a tenth
of its value to the whole in the first half of training. Semi-supervised k-means with K centres ends it, as in GCD.

Differs, and why:
  edges         The released loop means to strengthen edges between labelled images of one class, but compares labels
                by rank instead of by image, hidden ones included: almost inert, and a leak. Here labels speak only
                where both ends have one: of one class, the edge is strong; of two, there is none. In `as_run` labels
                play no part, which is as close as one comes without looking at hidden classes.
  communities   by a map equation of our own (clustering/communities.py), since the package infomap is GPL; it is used
                where `communities = infomap` asks for it.
  warm-up       The released one leaves the rate at 0 for the whole first epoch; ours is (e + 1) / 5 of it in the first
                five of 200 epochs, then a cosine over the rest.
  selection     The released code keeps the epoch with the best accuracy on hidden novel classes; here the last counts.
Only CUB's settings are published. Those for CIFAR-100 are of its successor, MGCE, by the same authors.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from holotype.clustering.communities import CommunityEngine, check_community_engine
from holotype.clustering.groups import Concepts, concept_means, find_concepts
from holotype.clustering.knn import Edges
from holotype.config.parse import Cosine, Count, Positive, UnitInterval, Weight
from holotype.data.samplers import balanced_rows
from holotype.losses.contrastive import concept_nce, update_concept_memory
from holotype.methods.base import Batch, Images, Now, ParamGroup, Progress, Stage, Task, warn_reduced
from holotype.methods.gcd import GCD, GCDConfig
from holotype.methods.schedules import FINAL_LR_SHARE, linear_warmup

log = logging.getLogger("holotype")


def warn_few_concepts(concepts: Concepts, slots: int, told: set[str]) -> None:
    """Say in one line that there are too few concepts to fill the places of a step, or none at all; each once.

    told: which of the two were said before; it takes in what is said now. Their number changes from search to search.
    """
    n = concepts.count
    which = "none" if n == 0 else "few"
    if n >= slots or which in told:
        return
    told.add(which)
    if n == 0:
        log.warning(
            f"No concept was found among {len(concepts.of):,} images, so the concept loss is 0; "
            "a lower --method.least-similarity links more of them."
        )
    else:
        log.warning(f"Concepts found: {n}, fewer than the {slots} places of a step: they repeat in it.")


def rows_with_concepts(
    standing: Tensor, concept: Tensor, n: int, steps: int, batch_size: int, generator: torch.Generator
) -> Tensor:
    """(steps, batch_size + SLOTS * MEMBERS): balanced rows of each step, and beside them those of its concepts.

    standing: (N,) of every row of the table, 1 = labelled, 0 = unlabelled, -1 = cannot be read. concept: (N,) which of
    the n concepts, -1 = none. With n = 0 ordinary rows fill the places: their concept is -1, and no loss counts them.
    """
    labelled, unlabelled = ((standing == value).nonzero()[:, 0] for value in (1, 0))
    ordinary = balanced_rows(labelled, unlabelled, steps * batch_size, generator).view(steps, batch_size)
    if n:
        return torch.cat([ordinary, concept_rows(concept, n, steps, SLOTS, MEMBERS, generator)], 1)
    filling = balanced_rows(labelled, unlabelled, steps * SLOTS * MEMBERS, generator)
    return torch.cat([ordinary, filling.view(steps, -1)], 1)


def concept_order(n: int, steps: int, slots: int, generator: torch.Generator) -> Tensor:
    """(steps, slots) of the n concepts: all of them in random order, then all again in another.

    A step has no concept twice unless there are fewer than its slots: where a pass ends within a step, the next one
    begins with concepts that the step has not had.
    """
    order = torch.empty(0, dtype=torch.long)
    while len(order) < steps * slots:
        new = torch.randperm(n, generator=generator)
        had = torch.isin(new, order[len(order) - len(order) % slots :])
        order = torch.cat([order, new[torch.argsort(had.long(), stable=True)]])
    return order[: steps * slots].view(steps, slots)


def concept_rows(
    concept: Tensor, n: int, steps: int, slots: int, members: int, generator: torch.Generator
) -> Tensor:
    """(steps, slots * members) rows: for each step `slots` concepts, and of each so many members, side by side.

    Members are drawn without replacement, or with it where there are fewer. Images of no concept are never drawn.
    concept: (N,) of every row of the table, -1 = none; n >= 1 concepts.
    """
    by_concept = torch.argsort(concept, stable=True)
    size = torch.bincount(concept[concept >= 0], minlength=n)
    of_each = by_concept[int((concept < 0).sum()) :].split(size.tolist())
    chosen = [
        of_each[c][_draw(len(of_each[c]), members, generator)]
        for c in concept_order(n, steps, slots, generator).flatten().tolist()
    ]
    return torch.stack(chosen).view(steps, slots * members)


def _draw(size: int, members: int, generator: torch.Generator) -> Tensor:
    if size < members:
        return torch.randint(size, (members,), generator=generator)
    return torch.randperm(size, generator=generator)[:members]


SLOTS, MEMBERS = 8, 16
"""Concepts of a step, and images of each."""
WARMUP, RAMP = 5 / 200, 100 / 200
"""Shares of training in which the rate rises, and the weight of the concepts."""
CIFAR_100 = {"method.recluster": 5, "method.neighbours": 127, "method.least_similarity": 0.5}
"""MGCE's; where images are many it searches every five epochs."""


@dataclass
class DCCLConfig(GCDConfig):
    """Settings of DCCL."""

    concept_weight: Weight = 0.4
    """Weight of the concept loss once it has grown; it starts at a tenth of it."""
    tau: Positive = 0.05
    """Temperature of the concept loss."""
    momentum: UnitInterval = 0.1
    """Share of a concept's old centre that is kept when an image moves it."""
    neighbours: Count = 15
    """Nearest neighbours of an image in the graph, itself counted."""
    least_similarity: Cosine = 0.6
    """Smallest cosine of two images that are linked."""
    smallest: Count = 5
    """Smallest community that is a concept; images of smaller ones take no part in the concept loss."""
    edges: Edges = "labelled"
    """labelled: two labelled images are linked only within a class, and strongly. none: labels link nothing."""
    communities: CommunityEngine = "own"
    """Who finds communities: our own search, or the package infomap (GPL, to be installed apart)."""
    recluster: Count = 1
    """Epochs from one search for concepts to the next."""


def dccl_schedule(at: Progress) -> float:
    """(e + 1) / W in the first W epochs, a fortieth of all; from there a cosine to a thousandth over the rest."""
    warm = round(WARMUP * at.epochs)
    if at.epoch < warm:
        return (at.epoch + 1) / warm
    done = (at.epoch - warm) / (at.epochs - warm)
    return FINAL_LR_SHARE + (1 - FINAL_LR_SHARE) * (1 + math.cos(math.pi * done)) / 2


class DCCL(GCD):
    """GCD with a memory of concepts, in buffers, so that a resumed epoch has the same ones.

    Title: DCCL
    Paper: Nan Pu, Zhun Zhong, Nicu Sebe: Dynamic Conceptional Contrastive Learning for Generalized Category
        Discovery. CVPR 2023
    Summary: GCD, and images are also pulled to the centres of communities among their neighbours, which are found
        again as it learns.
    Differs:
    - Labels link images only where both are labelled; the released code compared labels of the wrong images, hidden
      ones included.
    - Communities come from our own search with the map equation, or from the package infomap on request.
    - The learning rate is not 0 in the first epoch, and its cosine ends with the training, at 1e-4; the released one
      ends at 3e-4.
    - The last epoch is used; the released code keeps the best one by the hidden classes.
    - Only CUB's settings are published; those for CIFAR-100 are those of the authors' later MGCE.
    """

    Config = DCCLConfig
    config: DCCLConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"as_run": {"edges": "none"}, "light": {"proj_out": 0}}
    recipes: ClassVar[dict[str, dict[str, Any]]] = {
        "cifar10": {"method.recluster": 5},
        "cifar100": CIFAR_100,
        "imagenet100": {"method.recluster": 5},
    }
    memory: Tensor
    """(N // smallest, D) centres mu of the concepts; there can be no more."""
    concept: Tensor
    """(N,) of every row of the table, -1 = none."""
    standing: Tensor
    """(N,) 1 = labelled, 0 = unlabelled, -1 = cannot be read."""
    count: Tensor
    """Number of concepts."""
    found: Tensor
    """Outliers, positives and precision of the last search, for the log."""
    learnt: tuple[Tensor, Tensor]
    """Concepts (128,) and features (2, 128, D) of the step, until the memory has followed them."""

    def __init__(self, config: DCCLConfig, task: Task) -> None:
        super().__init__(config, task)
        self.register_buffer("memory", torch.zeros(max(1, task.n_images // config.smallest), task.dim))
        self.register_buffer("concept", torch.full((task.n_images,), -1))
        self.register_buffer("standing", torch.full((task.n_images,), -1))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("found", torch.zeros(3))
        self.told: set[str] = set()

    def check(self) -> list[str]:
        c = self.config
        check_community_engine(c.communities)
        few = warn_reduced("method.neighbours", c.neighbours, self.task.n_images, "images")
        return [*super().check(), *few]

    def stages(self) -> list[Stage]:
        return [Stage(rates=(ParamGroup("", pace=dccl_schedule),))]

    def schedule(self, stage: Stage, at: Progress) -> dict[str, float]:
        w, length = self.config.concept_weight, round(RAMP * at.epochs)
        return {"concept_weight": linear_warmup(0.1 * w, w, length, at.epoch, at.epochs)}

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        """Find the concepts of all images, and start their centres at the means."""
        c = self.config
        if epoch % c.recluster:
            return
        features = images.features()
        seed = int(torch.randint(2**31, (), generator=images.generator))
        found = find_concepts(
            features,
            images.label,
            c.neighbours,
            c.least_similarity,
            c.smallest,
            c.edges,
            c.communities,
            seed=seed,
        )
        self.memory.zero_()
        self.memory[: found.count] = concept_means(features, found)
        self.concept.copy_(images.spread(found.of, -1))
        self.standing.copy_(images.spread((images.label >= 0).long(), -1))
        self.count.fill_(found.count)
        outliers = int((found.of < 0).sum())
        self.found.copy_(torch.tensor([outliers, found.positives, found.precision]))
        warn_few_concepts(found, SLOTS, self.told)

    def rows(self, stage: Stage, epoch: int, draw: torch.Generator) -> Tensor:
        standing, concept = self.standing.cpu(), self.concept.cpu()
        return rows_with_concepts(standing, concept, int(self.count), self.steps, self.batch_size, draw)

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        f, n = batch.features, batch.features.shape[1] - SLOTS * MEMBERS
        ordinary = Batch(f[:, :n], batch.label[:n], batch.labelled[:n], batch.image[:n])
        concept = self.concept.index_select(0, batch.image[n:])
        l_c = concept_nce(f[:, n:].flatten(0, 1), concept.repeat(2), self.memory, self.count, self.config.tau)
        self.learnt = concept, f[:, n:].detach()
        return {**super().loss(ordinary, now), "concept": now["concept_weight"] * l_c}

    def after_step(self) -> None:
        """Let the centres follow the images of the step: those of the first view, then those of the second."""
        concept, f = self.learnt
        moves = f.unflatten(1, (SLOTS, MEMBERS)).transpose(1, 2).flatten(0, 1)  # (2 MEMBERS, SLOTS, D)
        self.memory.copy_(update_concept_memory(self.memory, concept[::MEMBERS], moves, self.config.momentum))

    def diagnostics(self) -> dict[str, Tensor]:
        outliers, positives, precision = self.found
        told = {"concepts": self.count, "outliers": outliers, "positives": positives, "precision": precision}
        return {name: value for name, value in told.items() if math.isfinite(float(value))}
