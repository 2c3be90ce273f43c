"""How images change from view to view: ring fusion and alignment (RPC)."""

from torch import Tensor

from holotype.losses.masked import masked_mean
from holotype.losses.precision import full

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
    anchor_delta: Tensor, partner_delta: Tensor, weight: Tensor, labelled: Tensor
) -> Tensor:
    """L_align = mean_i || sg Delta(l_i) - sum_j w_ij Delta'(u_ij) / sum_j w_ij ||^2.

    The mean runs over the labelled anchors whose partners weigh at least 1e-3 in sum; 0 where there is none.
    anchor_delta: (B, D), weak minus strong view of each anchor. partner_delta: (B, M, D), the same of its
    partners. weight: (B, M) w_old of the partners, 0 for a missing one. labelled: (B,) bool.
    """
    target = full(anchor_delta.detach())
    weight = full(weight)
    total = weight.sum(-1)
    partner = (weight[..., None] * full(partner_delta)).sum(1) / (total + EPS)[:, None]
    distance = (target - partner).square().sum(-1)
    return masked_mean(distance, labelled & (total >= MIN_WEIGHT))
