"""Balanced pseudo-labels by optimal transport, and swapped prediction (SwAV, UNO)."""

import torch
from torch import Tensor

from holotype.losses.ops import at_least_float32


@torch.no_grad()
def sinkhorn(
    logits: Tensor,
    valid: Tensor | None = None,
    prior: Tensor | None = None,
    eps: float = 0.05,
    iterations: int = 3,
) -> Tensor:
    """Q = diag(u) exp(l / eps) diag(v): each round gives column k the mass pi_k, then each row the mass 1.

    The last step is that of the rows, so that they sum to 1; columns are balanced as far as the rounds go. In the
    log domain, since exp(1 / 0.05) is beyond half precision. Rows outside `valid` get targets by the same v and have no
    part in it. logits: (..., N, K). valid: (N,) bool, None = all. prior: (K,) pi > 0, None = equal parts.
    """
    score = at_least_float32(logits) / eps
    n, k = score.shape[-2:]
    valid = torch.ones(n, dtype=torch.bool, device=score.device) if valid is None else valid
    log_prior = score.new_zeros(k) if prior is None else at_least_float32(prior).log()
    row = score.new_zeros(score.shape[:-1])
    column = score.new_zeros(k)
    for _ in range(iterations):
        # Without any valid row there is nothing to balance, and the sum over none would be log 0.
        counted = (score + row[..., None]).masked_fill(~valid[:, None], -torch.inf)
        column = torch.where(valid.any(), log_prior - counted.logsumexp(-2), 0.0)
        row = -(score + column[..., None, :]).logsumexp(-1)
    return (score + column.unsqueeze(-2)).softmax(-1)


def swapped_prediction(logits: Tensor, targets: Tensor, tau: float = 0.1) -> Tensor:
    """L_h = 1 / (V_L (V - 1)) sum_{v <= V_L} sum_{v' != v} mean_i -q_i^v log softmax(l_i^{v'} / tau), of each head.

    Every view learns the targets of the others. logits: (V, H, B, C). targets: (V_L, H, B, C), of the first V_L
    views, without gradient. Returns (H,).
    """
    log_p = (at_least_float32(logits) / tau).log_softmax(-1)
    views, targeted = len(logits), len(targets)
    others = log_p.sum(0) - log_p[:targeted]
    return -(at_least_float32(targets).detach() * others).sum(-1).mean(-1).sum(0) / (targeted * (views - 1))
