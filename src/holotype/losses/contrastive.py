"""Contrastive losses over two views of a batch (methods GCD, SimGCD and their descendants)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.losses.ops import at_least_float32, inner, l2_normalize, masked_mean


def info_nce(z: Tensor, tau: float = 1.0, *, teacher: Tensor | None = None) -> Tensor:
    """L_con_u = mean_i -log [ exp(z_i·z_i'/tau) / sum_{j != i} exp(z_i·z_j/tau) ], i' the other view of i.

    Every one of the 2B rows must find the other view of its image among the 2B - 1 other rows.
    z: (2, B, D) projected features, normalised here. teacher: (2, B, D) in whose rows z_i' and z_j are looked for,
    without gradient; by default z itself.
    """
    z, others = _rows(z, teacher)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    logits = (inner(z, others) / tau).masked_fill(itself, -torch.inf)
    other_view = torch.arange(len(z), device=z.device).roll(len(z) // 2)
    return F.cross_entropy(logits, other_view)


def sup_con(
    z: Tensor, label: Tensor, labelled: Tensor, tau: float = 0.07, *, teacher: Tensor | None = None
) -> Tensor:
    """L_con_s = mean_i mean_{p in P(i)} -log [ exp(z_i·z_p/tau) / sum_{j != i} exp(z_i·z_j/tau) ].

    i, p, j run over the labelled rows only; P(i) are the other rows of i's class, its own second view
    included. Unit scale: no factor tau / base temperature. 0 where no row is labelled.
    z: (2, B, D) projected features, normalised here. label: (B,) class. labelled: (B,) bool. teacher: as above.
    """
    z, others = _rows(z, teacher)
    label, labelled = label.repeat(2), labelled.repeat(2)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    rival = labelled[None, :] & ~itself
    positive = rival & (label[:, None] == label[None, :])
    # Not -inf: a row without rivals must stay finite, in value and in gradient.
    logits = (inner(z, others) / tau).masked_fill(~rival, torch.finfo(z.dtype).min)
    log_p = logits.log_softmax(-1).masked_fill(~positive, 0)
    per_anchor = -log_p.sum(-1) / positive.sum(-1).clamp_min(1)
    return masked_mean(per_anchor, labelled)


def _rows(z: Tensor, teacher: Tensor | None) -> tuple[Tensor, Tensor]:
    """The unit rows of both views, and those they are compared with. (2, B, D) -> (2B, D) each."""
    z = l2_normalize(at_least_float32(z)).flatten(0, 1)
    return z, z if teacher is None else l2_normalize(at_least_float32(teacher).detach()).flatten(0, 1)
