"""How images change from view to view: ring fusion and alignment (RPC), delta consistency (InterLUDE)."""

import torch.nn.functional as F
from torch import Tensor

from holotype.losses.masked import masked_mean
from holotype.losses.precision import full

MIN_WEIGHT = 1e-3  # anchors whose partners weigh less in sum have nothing to be compared with
EPS = 1e-6


def circular_fusion(z: Tensor, weight: Tensor, direction: int = -1, detach_source: bool = True) -> Tensor:
    """Z' = (I + A) Z: z'_i = (1 - weight_i) z_i + weight_i z_{(i + direction) mod Q}.

    weight = alpha * w_old; a row of weight 0 stays as it is. All rows are updated at once, so each receives
    its neighbour's original. RPC takes the previous row (-1), InterLUDE the next (+1).
    z: (Q, ...) rows in ring order. weight: (Q,). detach_source: the neighbour's row carries no gradient.
    """
    neighbour = z.roll(-direction, 0)
    neighbour = neighbour.detach() if detach_source else neighbour
    weight = weight.to(z.dtype).view(-1, *[1] * (z.ndim - 1))
    return (1 - weight) * z + weight * neighbour


def behaviour_alignment(
    anchor_delta: Tensor, partner_delta: Tensor, weight: Tensor, labelled: Tensor, detach_target: bool = True
) -> Tensor:
    """L_align = mean_i || Delta(l_i) - sum_j w_ij Delta'(u_ij) / sum_j w_ij ||^2.

    The mean runs over the labelled anchors whose partners weigh at least 1e-3 in sum; 0 where there is none.
    anchor_delta: (B, D), weak minus strong view of each anchor. partner_delta: (B, M, D), the same of its
    partners. weight: (B, M) w_old of the partners, 0 for a missing one. labelled: (B,) bool.
    """
    target = full(anchor_delta.detach() if detach_target else anchor_delta)
    weight = full(weight)
    total = weight.sum(-1)
    partner = (weight[..., None] * full(partner_delta)).sum(1) / (total + EPS)[:, None]
    distance = (target - partner).square().sum(-1)
    return masked_mean(distance, labelled & (total >= MIN_WEIGHT))


def delta_consistency(
    l_weak: Tensor, l_strong: Tensor, u_weak: Tensor, u_strong: Tensor, label: Tensor | None = None
) -> Tensor:
    """L_delta = mean over B x C of (d_u - d_l)^2, d_l = sg[P(l_weak) - P(l_strong)], d_u = mean_mu alike.

    With `label`, the class-dependent form: d_u averages only the partners whose pseudo-label (arg-max of
    the weak view) is the anchor's class, d_u = 0 without any, and the whole is multiplied by the share of
    anchors that have one. l_weak, l_strong: (B, C) logits. u_weak, u_strong: (B, mu, C). label: (B,).
    """
    d_l = (full(l_weak).softmax(-1) - full(l_strong).softmax(-1)).detach()
    d_u = full(u_weak).softmax(-1) - full(u_strong).softmax(-1)
    if label is None:
        return F.mse_loss(d_u.mean(1), d_l)
    match = (u_weak.argmax(-1) == label[:, None]).to(d_u.dtype)
    count = match.sum(1)
    d_u = (match[..., None] * d_u).sum(1) / (count + 1e-8)[:, None]
    return F.mse_loss(d_u, d_l) * (count > 0).to(d_u.dtype).mean()


def fixmatch(weak: Tensor, strong: Tensor, threshold: float = 0.95, temperature: float = 1.0) -> Tensor:
    """L_fix = mean_i 1(max P(weak_i) >= threshold) CE(argmax P(weak_i), P(strong_i)), over all N rows.

    weak, strong: (N, C) logits of the two views; the weak one is detached.
    """
    confidence, pseudo = (full(weak).detach() / temperature).softmax(-1).max(-1)
    cross_entropy = F.cross_entropy(full(strong), pseudo, reduction="none")
    return ((confidence >= threshold) * cross_entropy).mean()
