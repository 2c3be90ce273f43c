"""Prototypes of the known classes: class means, and their moving average with soft members."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.losses.ops import l2_normalize

AT_ONCE = 1 << 26
"""Images times classes whose membership is written out at a time: a fourth of a gigabyte. Sums of fewer come from one
product, so that their last bits are those of always."""


def class_means(f: Tensor, label: Tensor, labelled: Tensor, n_known: int) -> Tensor:
    """(N, D) normalised features, (N,) labels, (N,) mask -> (C, D) unit-length means of the labelled rows."""
    sums = []
    for classes in torch.arange(n_known, device=label.device).split(max(1, AT_ONCE // max(1, len(f)))):
        member = ((label[:, None] == classes) & labelled[:, None]).to(f.dtype)
        sums.append(member.T @ f)
    return l2_normalize(torch.cat(sums))


def soft_update(
    prototypes: Tensor, f: Tensor, label: Tensor, labelled: Tensor, membership: Tensor, momentum: float
) -> Tensor:
    """p_c <- normalize(m p_c + (1 - m) mean_c) for the classes that have a labelled row in the batch.

    f: (N, D) normalised features; membership: (N, C) weight of each unlabelled row in each class (0 on
    labelled rows). The unlabelled mass of a class is capped at its labelled mass, so that what is known
    for certain always carries at least half of a prototype.
    """
    n_known = len(prototypes)
    certain = F.one_hot(label, n_known).to(f.dtype) * labelled.to(f.dtype)[:, None]
    certain_mass, soft_mass = certain.sum(0), membership.sum(0)
    cap = torch.clamp(certain_mass / soft_mass.clamp_min(1e-12), max=1.0)
    total = certain_mass + cap * soft_mass
    mean = (certain.T @ f + cap[:, None] * (membership.T @ f)) / total.clamp_min(1e-12)[:, None]
    moved = l2_normalize(momentum * prototypes + (1 - momentum) * mean)
    return torch.where((certain_mass > 0)[:, None], moved, prototypes)
