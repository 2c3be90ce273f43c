"""SelEx's losses: contrast by distance within clusters of many sizes, and targets smoothed over what is apart."""

import torch
from torch import Tensor

from holotype.losses.ops import at_least_float32, inner, l2_normalize, masked_mean

EPS = 1e-12
BLUR = 1e-6
"""Added to squared distances: the gradient of a distance has no direction where two rows meet."""


def distances(z: Tensor) -> Tensor:
    """d_ij = sqrt(||z_i - z_j||^2 + 1e-6). (N, D) -> (N, N)."""
    z = at_least_float32(z)
    square = z.square().sum(-1)
    return (square[:, None] + square[None, :] - 2 * inner(z, z)).clamp_min(0).add(BLUR).sqrt()


def cluster_contrast(distance: Tensor, cluster: Tensor, valid: Tensor, tau: float = 0.07) -> Tensor:
    """L_l = mean_i mean_{p in P(i)} -log [ exp(-d_ip / tau) / sum_{j != i} exp(-d_ij / tau) ] for each of L levels.

    i, p, j run over the valid rows, P(i) are the other rows of i's cluster; a row without any is left out.
    distance: (L, N, N). cluster: (L, N). valid: (L, N) bool. Returns (L,).
    """
    itself = torch.eye(distance.shape[-1], dtype=torch.bool, device=distance.device)
    rival = valid[:, None, :] & ~itself
    positive = rival & (cluster[:, :, None] == cluster[:, None, :])
    # Not -inf: a row without rivals must stay finite, in value and in gradient.
    logits = (-distance / tau).masked_fill(~rival, torch.finfo(distance.dtype).min)
    log_p = logits.log_softmax(-1).masked_fill(~positive, 0)
    count = positive.sum(-1)
    anchor = (valid & (count > 0)).to(distance.dtype)
    per_anchor = -log_p.sum(-1) / count.clamp_min(1) * anchor
    return per_anchor.sum(-1) / anchor.sum(-1).clamp_min(1)


@torch.no_grad()
def apartness(f: Tensor, radius: Tensor) -> Tensor:
    """a_ij = sum_l 2^-l [ ||f_i - f_j|| > 2 rho_l(j) ], in rows that sum to 1 (or 0): how far j is no kin of i.

    f: (N, D) features, normalised here. radius: (L, N) of the cluster of each row on each level, finest first.
    Returns (N, N), 0 on the diagonal.
    """
    d = distances(l2_normalize(f))
    weight = 0.5 ** torch.arange(len(radius), device=d.device, dtype=d.dtype)
    apart = ((d > 2 * radius[:, None, :]) * weight[:, None, None]).sum(0)
    apart = apart * ~torch.eye(len(d), dtype=torch.bool, device=d.device)
    return apart / apart.sum(-1, keepdim=True).clamp_min(EPS)


def smoothed_info_nce(distance: Tensor, apart: Tensor, smoothing: float, tau: float = 1.0) -> Tensor:
    """L_u = mean_i sum_{j != i} t_ij -log [ exp(-d_ij / tau) / sum_{k != i} exp(-d_ik / tau) ].

    t_i = (1 - s) e_i' + s a_i: i' is the other view of i, a_i the rows apart from it. distance, apart: (2B, 2B).
    """
    n = len(distance)
    row = torch.arange(n, device=distance.device)
    itself, other = row[:, None] == row, row[:, None] == row.roll(n // 2)
    logits = (-distance / tau).masked_fill(itself, torch.finfo(distance.dtype).min)
    target = (1 - smoothing) * other.to(distance.dtype) + smoothing * apart
    return masked_mean(-(target * logits.log_softmax(-1).masked_fill(itself, 0)).sum(-1), row >= 0)
