"""RPC's losses: behaviour alignment, relational signature, relational consistency."""

import torch
from torch import Tensor

from holotype.losses.ops import at_least_float32, inner, l2_normalize, masked_mean

MIN_WEIGHT = 1e-3  # anchors whose partners weigh less in sum have nothing to be compared with
EPS = 1e-6


def circular_fusion(z: Tensor, weight: Tensor) -> Tensor:
    """Z' = (I + A) Z: z'_i = (1 - weight_i) z_i + weight_i sg z_{(i - 1) mod Q}.

    weight = alpha * w_old; a row of weight 0 stays as it is. All rows are updated at once, so each receives
    its neighbour's original, the previous row (InterLUDE takes the next).
    z: (Q, ...) rows in ring order. weight: (Q,).
    """
    weight = weight.to(z.dtype).view(-1, *[1] * (z.ndim - 1))
    return (1 - weight) * z + weight * z.roll(1, 0).detach()


def behaviour_alignment(
    anchor_delta: Tensor, partner_delta: Tensor, weight: Tensor, labelled: Tensor, over_all: bool = False
) -> Tensor:
    """L_align = mean_i || sg Delta(l_i) - sum_j w_ij Delta'(u_ij) / sum_j w_ij ||^2.

    The mean runs over the labelled anchors whose partners weigh at least 1e-3 in sum; 0 where there is none. over_all:
    their sum is divided by the number of all labelled anchors instead, as printed.
    anchor_delta: (B, D), weak minus strong view of each anchor. partner_delta: (B, M, D), the same of its
    partners. weight: (B, M) w_old of the partners, 0 for a missing one. labelled: (B,) bool.
    """
    target = at_least_float32(anchor_delta.detach())
    weight = at_least_float32(weight)
    total = weight.sum(-1)
    partner = (weight[..., None] * at_least_float32(partner_delta)).sum(1) / (total + EPS)[:, None]
    distance = (target - partner).square().sum(-1)
    paired = labelled & (total >= MIN_WEIGHT)
    return (
        masked_mean(torch.where(paired, distance, 0), labelled) if over_all else masked_mean(distance, paired)
    )


def signature(f: Tensor, prototypes: Tensor) -> Tensor:
    """r(x) = [cos(f(x), p_1), ..., cos(f(x), p_C)]. f: (N, D), prototypes: (C, D) -> (N, C)."""
    return inner(l2_normalize(at_least_float32(f)), l2_normalize(at_least_float32(prototypes)))


def _squared_distance(r: Tensor) -> Tensor:
    """||r_i - r_j||^2 for all pairs, from the Gram matrix. (N, C) -> (N, N), never negative."""
    r = at_least_float32(r)
    # Distances do not change when all points move; near the origin less is lost in the difference of squares.
    r = r - r.mean(0)
    square = r.square().sum(-1)
    return (square[:, None] + square[None, :] - 2 * inner(r, r)).clamp_min(0)


def relational_consistency(
    r: Tensor, f: Tensor, w_new: Tensor, image: Tensor, valid: Tensor, tau: float = 0.07
) -> Tensor:
    """L_new = (1/n) sum_i w_i sum_j w_j S_ij ||r_i - r_j||^2, over pairs of valid rows of different images.

    S_ij = softmax_j(cos(f_i, f_j)/tau) over i's partners, n = number of valid rows. S and w carry no gradient: similar
    pairs would part to weigh less. r: (N, C) signatures. f: (N, D) features. w_new: (N,). image: (N,) id of the image
    that a row shows. valid: (N,) bool.
    """
    return (pair_weights(f, w_new, image, valid, tau) * _squared_distance(r)).sum()


@torch.no_grad()
def pair_weights(f: Tensor, w_new: Tensor, image: Tensor, valid: Tensor, tau: float = 0.07) -> Tensor:
    """What each pair weighs in L_new: w_i w_j S_ij / n. Arguments as there -> (N, N)."""
    f = l2_normalize(at_least_float32(f))
    pair = valid[:, None] & valid[None, :] & (image[:, None] != image[None, :])
    # Not -inf: a row without partners must stay finite.
    logits = (inner(f, f) / tau).masked_fill(~pair, torch.finfo(f.dtype).min)
    similarity = logits.softmax(-1) * pair / valid.sum().clamp_min(1)
    return at_least_float32(w_new)[:, None] * at_least_float32(w_new)[None, :] * similarity


def discovery_loss_as_printed(r: Tensor, f: Tensor, w_new: Tensor, tau: float = 0.07) -> Tensor:
    """L_new as printed: sum_{i,j} w_i w_j exp(cos(f_i, f_j)/tau) ||r_i - r_j||^2, nothing masked or detached.

    r: (N, C) signatures. f: (N, D) features. w_new: (N,).
    """
    f, w_new = l2_normalize(at_least_float32(f)), at_least_float32(w_new)
    similarity = (inner(f, f) / tau).exp()
    return (w_new[:, None] * w_new[None, :] * similarity * _squared_distance(r)).sum()
