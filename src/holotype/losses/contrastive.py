"""Contrastive losses: of two views of a batch (GCD, SimGCD), and of images with a memory of concepts (DCCL)."""

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


def concept_nce(x: Tensor, concept: Tensor, memory: Tensor, n: Tensor | int, tau: float = 0.05) -> Tensor:
    """L_C = mean_i -log [ exp(x_i·mu_c(i)/tau) / sum_{k < n} exp(x_i·mu_k/tau) ].

    The gradient reaches x, never the memory. 0 where no row has a concept.
    x: (N, D) features, normalised here. concept: (N,) c(i), -1 = none. memory: (M, D) unit rows mu, of which the
    first n are in use.
    """
    logits = inner(l2_normalize(at_least_float32(x)), at_least_float32(memory.detach())) / tau
    unused = torch.arange(len(memory), device=x.device) >= n
    # Not -inf: with no concept at all every row must stay finite, in value and in gradient.
    log_p = logits.masked_fill(unused, torch.finfo(logits.dtype).min).log_softmax(-1)
    of_own = log_p.gather(1, concept.clamp_min(0)[:, None])[:, 0]
    return -masked_mean(of_own, concept >= 0)


@torch.no_grad()
def update_concept_memory(memory: Tensor, concept: Tensor, x: Tensor, momentum: float = 0.1) -> Tensor:
    """The memory after mu_c <- normalise(momentum * mu_c + (1 - momentum) * x), one row of x after the other.

    T moves of S rows: row t of slot s moves the centre concept[s]. A slot of concept -1 moves nothing; where two slots
    have one concept, each starts from the memory given and the last one is kept. momentum 0.1 keeps a tenth of the old
    centre, so that the order counts and a mean of the rows would be another method.
    memory: (M, D). concept: (S,). x: (T, S, D), normalised here. Returns (M, D).
    """
    slot = torch.arange(len(concept), device=concept.device)
    same = concept[:, None] == concept[None, :]
    last = torch.where(same, slot, -1).amax(1)
    mu = memory.index_select(0, concept.clamp_min(0))
    for rows in l2_normalize(at_least_float32(x)).to(memory.dtype):
        mu = l2_normalize(momentum * mu + (1 - momentum) * rows)
    # slots of one concept write the same row, so that the order of writing says nothing; a spare row takes the rest
    index = torch.where(concept < 0, len(memory), concept)
    return F.pad(memory, (0, 0, 0, 1)).index_copy(0, index, mu.index_select(0, last))[:-1]
