"""ProtoGCD's pseudo-labels, which turn from soft to hard by confidence, and the separation of its prototypes."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.losses.ops import at_least_float32, inner


@torch.no_grad()
def adaptive_targets(
    logits: Tensor, hard_share: Tensor | float, teacher_temp: float = 0.05
) -> tuple[Tensor, Tensor]:
    """q~ (V, B, K): one-hot(arg-max q) in the floor(r B) most confident rows of each view, q elsewhere.

    q = softmax(l / tau_t), confidence = q_(1) / (q_(2) + 1e-6), the ratio of the two largest. Labelled and unlabelled
    rows compete alike. Also returns which rows are hard, (V, B) bool. logits: (V, B, K). hard_share: r in 0 .. 1.
    """
    q = (at_least_float32(logits) / teacher_temp).softmax(-1)
    best = F.one_hot(q.argmax(-1), q.shape[-1]).bool()
    confidence = q.amax(-1) / (q.masked_fill(best, 0).amax(-1) + 1e-6)
    rank = confidence.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    # r B may miss a whole number by a rounding of r
    hard = rank < torch.floor(torch.as_tensor(hard_share, device=q.device) * q.shape[1] + 1e-3)
    return torch.where(hard[..., None], best.to(q.dtype), q), hard


def cross_view_targets(logits: Tensor, targets: Tensor, tau: float = 0.1) -> Tensor:
    """L_dapl = 1/2 sum_{v != v'} mean_i -q~_i^v log softmax(l_i^{v'} / tau). logits, targets: (2, B, K)."""
    log_p = (at_least_float32(logits) / tau).log_softmax(-1)
    return -(at_least_float32(targets).detach().flip(0) * log_p).sum(-1).mean()


def prototype_separation(prototypes: Tensor, tau: float = 0.1) -> Tensor:
    """L_sep = 1/K sum_i log( 1/(K-1) sum_{j != i} exp(mu_i·mu_j / tau) ); may be negative, 0 for K = 1.

    Least, -1 / ((K-1) tau), where all pairs are equally far apart. Unit scale: no factor tau / 0.1.
    prototypes: (K, D) mu, of unit length.
    """
    k = len(prototypes)
    if k == 1:
        return at_least_float32(prototypes).sum() * 0
    itself = torch.eye(k, dtype=torch.bool, device=prototypes.device)
    similarity = (inner(prototypes, prototypes) / tau).masked_fill(itself, -torch.inf)
    return similarity.logsumexp(-1).mean() - math.log(k - 1)
