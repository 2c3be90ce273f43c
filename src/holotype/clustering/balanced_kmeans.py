"""k-means in which clusters share the rows evenly, and rows may be fixed; nothing is read back to the host.

It goes on from given centres for a given number of iterations: where features move little from one call to the next,
a few are enough. Evenness is that of optimal transport: Sinkhorn's iteration finds a bonus for each cluster, in squared
distance, with which every cluster takes its share, and each row then goes where distance less bonus is lowest.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

SINKHORN_STEPS = 20
SOFT, SHARP = 0.5, 0.02
"""First and last temperature of the transport, as shares of the mean squared distance: a sharp one alone needs many
more steps where clusters lie far apart."""
LEAST_ROOM = 1e-3
"""Free rows of a cluster whose fixed rows are more than its share already."""


@torch.no_grad()
def balanced_kmeans(
    x: Tensor, centres: Tensor, fixed: Tensor, *, iterations: int = 3, balanced: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the cluster (N,) of each row, the centres (K, D) that these rows have, and the last bonus (K,).

    x: (N, D). centres: (K, D) to begin with; one that no row chooses stays where it is. fixed: (N,) the cluster that a
    row is fixed to, -1 = free. balanced: whether every cluster takes N / K rows, as far as the fixed ones let it.
    """
    label, bonus = fixed, centres.new_zeros(len(centres))
    with torch.autocast(x.device.type, enabled=False):
        for _ in range(iterations):
            distance = squared_distances(x, centres)
            if balanced:
                bonus = even_bonus(distance, fixed)
            label = torch.where(fixed >= 0, fixed, (distance - bonus).argmin(-1))
            centres = centres_of(x, label, centres)
    return label, centres, bonus


def centres_of(x: Tensor, label: Tensor, centres: Tensor) -> Tensor:
    """The mean of each cluster's rows, its old centre where it has none. (N, D), (N,), (K, D) -> (K, D)."""
    member = F.one_hot(label, len(centres)).to(x.dtype)
    size = member.sum(0)[:, None]
    return torch.where(size > 0, member.T @ x / size.clamp_min(1), centres)


def squared_distances(x: Tensor, centres: Tensor) -> Tensor:
    """(N, D), (K, D) -> (N, K)."""
    return (x.square().sum(-1, keepdim=True) + centres.square().sum(-1) - 2 * x @ centres.T).clamp_min(0)


def even_bonus(distance: Tensor, fixed: Tensor) -> Tensor:
    """(K,) the bonus of each cluster with which, softly, its free rows are N / K less those fixed to it.

    distance: (N, K), squared. fixed: (N,), -1 = free.
    """
    k, free = distance.shape[1], (fixed < 0).to(distance.dtype)
    taken = torch.zeros_like(distance[0]).index_add(0, fixed.clamp_min(0), 1 - free)
    room = (len(distance) / k - taken).clamp_min(LEAST_ROOM)
    share = (room / room.sum() * free.sum().clamp_min(1)).log()
    outside = torch.where(fixed < 0, 0.0, -torch.inf).to(distance)[:, None]
    bonus = torch.zeros_like(share)
    for step in range(SINKHORN_STEPS):
        scale = (
            distance.mean().clamp_min(1e-12)
            * SOFT ** (1 - step / SINKHORN_STEPS)
            * SHARP ** (step / SINKHORN_STEPS)
        )
        row = outside - torch.logsumexp((bonus - distance) / scale, 1, keepdim=True)
        bonus = scale * (share - torch.logsumexp(row - distance / scale, 0))
    return bonus
