"""SelEx: self-expertise in a hierarchy of clusters (Rastegar et al., ECCV 2024).

    L = (1 - lam) L_u + lam / 2 (L_label + sum_l 2^-(l+1) L_l)
    L_l = mean_i mean_{p in P_l(i)} -log [ exp(-d_ip / 0.07) / sum_{j != i} exp(-d_ij / 0.07) ]
    L_u = mean_i sum_j t_ij -log [ exp(-d_ij) / sum_{k != i} exp(-d_ik) ],    t_i = (1 - s) e_i' + s a_i

d_ij are distances of unit projections. Each epoch semi-supervised k-means clusters all images into K clusters of equal
size, in which labelled images stay with their class, and merges these into K/2, K/4, ... until one known cluster is
left. P_l(i) are the images in i's cluster on level l, 0 the finest; L_l sees the first 1 / 2^(l+1) of the projection,
L_label all of it, labelled images and their classes. In L_u the target of an image is its other view, i', and with
weight s those that lie apart from it: a_ij grows with the levels on which j is further away than the diameter of its
cluster. So images of one cluster are the hard negatives of each other. Balanced k-means ends it: an image goes to the
nearest centre, less a bonus that makes the clusters even.

Differs: coarser clusters merge finer ones, known with known and novel with novel, where the released code clusters all
images anew; its cap on sizes is an even transport here. It goes on from the clusters of the epoch before. Distances in
a_ij are those of unit features, as the radii are; the released code compares them with distances before normalisation,
so that nearly all images count as apart. The last epoch counts, not the best one on known classes held out. The
projection has 8,192 outputs, as in HypCD's runs, instead of 65,536.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from holotype.clustering.kmeans import balanced_kmeans, centres_of, semi_supervised_centres
from holotype.config.parse import Count, RepeatCount, UnitInterval, Width
from holotype.losses.ops import l2_normalize
from holotype.losses.self_expertise import apartness, cluster_contrast, distances, smoothed_info_nce
from holotype.methods.base import SOFTNESS, Batch, Images, NearestCentreMethod, Now, Stage, Task
from holotype.models.heads import GCDHead

FIRST, LATER, LAST = 10, 3, 10
"""Iterations of k-means in the first epoch, in those after it, and at the end; later clusters merge in one."""


def hierarchy(n_known: int, k: int) -> list[tuple[int, int]]:
    """Known and novel clusters of each level, finest first: halves, until one known cluster is left."""
    levels = [(n_known, k - n_known)]
    while levels[-1][0] > 1:
        known, novel = levels[-1]
        levels.append((max(known // 2, 1), max(novel // 2, min(novel, 1))))
    return levels


@dataclass
class SelExConfig:
    """Settings of SelEx."""

    lam: UnitInterval = 0.35
    """Weight of the supervised terms; the unsupervised one gets 1 - lam."""
    smoothing: UnitInterval = 1.0
    """Share of the unsupervised target that lies on images apart from the anchor; 0 leaves its other view alone."""
    balanced: bool = True
    """Whether clusters are of equal size, as published; false where classes are not."""
    proj_out: Width = 8192
    """Outputs of the projection; 0 stops at its bottleneck of 256."""
    n_init: RepeatCount = 10
    """Random starts of the k-means at the end; the one with the lowest inertia goes on."""
    max_iter: Count = 200
    """Largest number of iterations of a start."""


class SelEx(NearestCentreMethod):
    """A projection on the tail's features, clusters in buffers, centres at the end.

    Title: SelEx
    Paper: Sarah Rastegar, Mohammadreza Salehi, Yuki M. Asano, Hazel Doughty, Cees G. M. Snoek: SelEx: Self-Expertise
        in Fine-Grained Generalized Category Discovery. ECCV 2024
    Summary: Images are clustered in every epoch, finely and ever more coarsely, and pulled together within clusters of
        every size; those of one cluster are told apart by what they share with nobody else.
    Differs:
    - Coarser clusters merge finer ones instead of being found anew, and sizes are evened by transport instead of a cap.
    - Distances that smooth the targets are those of unit features, as the radii are.
    - The last epoch is used, not the best one on held-out images of known classes.
    - One block is trained by default; the published runs train two, or three on Cars.
    - The projection has 8,192 outputs instead of 65,536.
    """

    Config = SelExConfig
    config: SelExConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"as_run": {"train.warmup": 0.0}}
    cluster: Tensor
    """(N,) finest cluster of every row of the table; of known class c, c."""
    parent: Tensor
    """(L, K) the cluster on each level that a finest cluster belongs to."""
    radius: Tensor
    """(L, K) half the distance of a cluster to the nearest one."""
    bonus: Tensor
    """(K,) what a cluster is nearer by, in squared distance."""

    def __init__(self, config: SelExConfig, task: Task) -> None:
        super().__init__(config, task)
        self.levels = hierarchy(task.n_known, task.k)
        self.head = GCDHead(task.dim, out=config.proj_out or None)
        self.register_buffer("cluster", torch.zeros(task.n_images, dtype=torch.long))
        self.register_buffer("parent", torch.arange(task.k).repeat(len(self.levels), 1))
        self.register_buffer("radius", torch.zeros(len(self.levels), task.k))
        self.register_buffer("bonus", torch.zeros(task.k))

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        """Cluster all images, and the clusters; from those of the epoch before, if there was one."""
        f, first = l2_normalize(images.features()), epoch == 0
        if first:
            start = self.first_centres(f, images, 1, FIRST)
        else:
            start = centres_of(f, self.cluster[images.row], self.centres.to(f))
        iterations = FIRST if first else LATER
        cluster, centres, _ = balanced_kmeans(
            f, start, images.label, iterations=iterations, balanced=self.config.balanced
        )
        self.centres.copy_(centres)
        self.cluster[images.row] = cluster
        for level in range(len(self.levels)):
            if level:
                centres = self.merge(level, centres, first, images.generator)
            apart = torch.cdist(centres, centres).fill_diagonal_(torch.inf).amin(1).nan_to_num(posinf=0) / 2
            self.radius[level].zero_()[: len(apart)] = apart

    def merge(self, level: int, centres: Tensor, first: bool, generator: torch.Generator) -> Tensor:
        """Write the parents of a level from the centres (n, D) of the finer one; returns its own."""
        (fine, _), (known, novel) = self.levels[level - 1], self.levels[level]
        before, parts, at = self.parent[level - 1], [], 0
        of_fine = torch.empty(len(centres), dtype=torch.long, device=centres.device)
        for rows, n in ((slice(0, fine), known), (slice(fine, None), novel)):
            x = centres[rows]
            if not len(x):
                continue
            if first:
                start = x[torch.randperm(len(x), generator=generator)[:n].to(x.device)]
            else:
                # a cluster that none finer has chosen begins in the first of its kind
                own = torch.full_like(of_fine, at).scatter_(0, before, self.parent[level])[rows]
                start = centres_of(x, own - at, x[:n])
            free = torch.full_like(x[:, 0], -1, dtype=torch.long)
            label, merged, _ = balanced_kmeans(x, start, free, iterations=FIRST if first else 1)
            of_fine[rows] = label + at
            parts.append(merged)
            at += n
        self.parent[level] = of_fine[before]
        return torch.cat(parts)

    def first_centres(self, f: Tensor, images: Images, n_init: int, max_iter: int) -> Tensor:
        """(K, D) centres of semi-supervised k-means."""
        k, generator = self.task.k, images.generator
        return semi_supervised_centres(
            f, images.label, k, n_init=n_init, max_iter=max_iter, generator=generator
        )

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        c, rows = self.config, batch.features[:2].flatten(0, 1)
        z = l2_normalize(self.head(rows))
        cluster = self.parent[:, self.cluster[batch.image]].repeat(1, 2)  # (L, 2B)
        widths = [z.shape[1] >> level for level in range(len(self.levels) + 1)]
        d = torch.stack([distances(z[:, : max(width, 1)]) for width in widths])
        labelled = batch.labelled.repeat(2)[None]
        valid = torch.cat([labelled, torch.ones_like(cluster, dtype=torch.bool)])
        per_level = cluster_contrast(d, torch.cat([batch.label.repeat(2)[None], cluster]), valid)
        weight = 0.5 ** torch.arange(len(widths), device=d.device, dtype=d.dtype)
        apart = apartness(rows.detach(), self.radius.gather(1, cluster))
        return {
            "con_u": (1 - c.lam) * smoothed_info_nce(d[0], apart, c.smoothing),
            "con_s": c.lam / 2 * per_level[0],
            "clusters": c.lam / 2 * (weight[1:] * per_level[1:]).sum(),
        }

    def finish(self, images: Images) -> None:
        f = F.normalize(images.features(), dim=-1)
        start = self.first_centres(f, images, self.config.n_init, self.config.max_iter)
        if self.config.balanced:
            _, start, bonus = balanced_kmeans(f, start, images.label, iterations=LAST)
            self.bonus.copy_(bonus)
        self.centres.copy_(start)

    def logits(self, features: Tensor) -> Tensor:
        """(bonus - ||x - c||^2) / 0.1."""
        return super().logits(features) + self.bonus / SOFTNESS
