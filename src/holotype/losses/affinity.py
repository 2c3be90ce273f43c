"""PromptCAL's affinity graph: which rows of a memory belong to which rows of the batch, and the contrast over it.

Nodes are the rows of the batch, then those of the memory, N in all. Whatever the paper counts or selects is a mask over
an N x N matrix, so that shapes never depend on the data. The graph takes no gradient.
"""

import torch
from torch import Tensor

from holotype.losses.ops import at_least_float32, inner, l2_normalize

FINENESS = 10_000
"""A quantile is a whole number of these parts: whole numbers stay exact where float32 cannot count the entries."""


@torch.no_grad()
def neighbours(x: Tensor, valid: Tensor, k: int) -> Tensor:
    """A_ab = [b in N(a)], N(a) = the k rows nearest to a by cosine, a itself left out.

    Rows that are not valid have no neighbours and are nobody's. x: (N, D). valid: (N,) bool -> (N, N) of 0 and 1.
    """
    x = l2_normalize(at_least_float32(x))
    itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
    barred = itself | ~(valid[:, None] & valid[None, :])
    near, column = inner(x, x).masked_fill(barred, -torch.inf).topk(min(k, len(x)), dim=1)
    return torch.zeros(barred.shape, dtype=x.dtype, device=x.device).scatter_(
        1, column, near.isfinite().to(x.dtype)
    )


@torch.no_grad()
def consensus(adjacency: Tensor) -> Tensor:
    """C_ab = #{i : a, b in N(i), a != b} + [b in N(a)] + [a in N(b)], that is A^T A without its diagonal + A + A^T.

    adjacency: (N, N) A -> (N, N), symmetric.
    """
    shared = inner(adjacency.T, adjacency.T)
    return shared - torch.diag(shared.diagonal()) + adjacency + adjacency.T


@torch.no_grad()
def diffuse(counts: Tensor, valid: Tensor, identity: bool) -> Tensor:
    """Q = P P P^T (+ I), P = C / row sums: one step of diffusion. counts: (N, N) C. valid: (N,) bool -> (N, N).

    identity: add I, as the released code does. Its ones enter mean and quantile: between clean clusters they are all
    that lies above, and no pair is left.
    """
    p = counts / counts.sum(1, keepdim=True).clamp_min(1)
    q = inner(inner(p, p.T), p)
    return q + torch.diag(valid.to(q.dtype)) if identity else q


@torch.no_grad()
def threshold(affinity: Tensor, quantile: float) -> Tensor:
    """theta = the quantile of the entries of Q above T, T = the mean of the entries that are not 0; inf without any.

    Linear between two entries. affinity: (N, N) Q -> 0-d.
    """
    mean = affinity.sum() / (affinity != 0).sum().clamp_min(1)
    above = affinity > mean
    count = above.sum()
    ordered = affinity.masked_fill(~above, torch.inf).flatten().sort().values
    place = (count - 1).clamp_min(0) * round(quantile * FINENESS)  # in parts of FINENESS
    lower = place // FINENESS
    share = (place - lower * FINENESS).to(ordered.dtype) / FINENESS
    below, beyond = ordered[torch.stack([lower, torch.minimum(lower + 1, (count - 1).clamp_min(0))])]
    return torch.where(count > 0, below + share * (beyond - below).nan_to_num(), torch.inf)


@torch.no_grad()
def affinity_graph(
    rows: Tensor, memory: Tensor, valid: Tensor, k: int, quantile: float, identity: bool = False
) -> Tensor:
    """Which rows of the memory belong to each row of the batch: Q > theta. (SemiAG)

    rows: (R, D) features of the batch. memory: (M, D). valid: (M,) bool, rows of the memory that were written
    -> (R, M) bool.
    """
    everyone = torch.cat([torch.ones(len(rows), dtype=torch.bool, device=valid.device), valid])
    counts = consensus(neighbours(torch.cat([rows, memory]), everyone, k))
    q = diffuse(counts, everyone, identity)
    return (q[: len(rows), len(rows) :] > threshold(q, quantile)) & valid


@torch.no_grad()
def draw_negatives(positive: Tensor, valid: Tensor, key: Tensor, cap: int) -> Tensor:
    """Of the other rows of the memory, cap - #positives for each row of the batch, those with the lowest keys.

    positive: (R, M) bool. valid: (M,) bool. key: (R, M) uniform random numbers -> (R, M) bool. A row with more
    positives than the cap has no negatives (the released slice turns negative there and takes nearly all).
    """
    free = valid & ~positive
    rank = torch.where(free, key, torch.inf).argsort(1).argsort(1)
    return free & (rank < (cap - positive.sum(1, keepdim=True)))


@torch.no_grad()
def drop_weak_edges(
    positive: Tensor, negative: Tensor, label: Tensor, memory_label: Tensor
) -> tuple[Tensor, Tensor]:
    """What labels say outweighs the graph: one class is a positive, another class is not.

    A positive of another class becomes a negative; a pair of another class that was not drawn stays out.
    positive, negative: (R, M) bool. label: (R,), memory_label: (M,) class, -1 = unlabelled -> (R, M), (R, M) bool.
    """
    both = labelled_pairs(label, memory_label)
    same = both & (label[:, None] == memory_label[None, :])
    other = both & ~same
    return (positive & ~other) | same, (negative & ~same) | (positive & other)


def labelled_pairs(label: Tensor, memory_label: Tensor) -> Tensor:
    """Pairs of which both ends carry a label. (R,), (M,), -1 = unlabelled -> (R, M) bool."""
    return (label[:, None] >= 0) & (memory_label[None, :] >= 0)


def affinity_contrast(
    student: Tensor, own: Tensor, memory: Tensor, positive: Tensor, negative: Tensor, tau: float = 0.07
) -> Tensor:
    """L_cal = mean_i -1/|Pos_i| sum_{p in Pos_i} log [ exp(s_ip/tau) / sum_{j in Pos_i u Neg_i} exp(s_ij/tau) ].

    s are cosines; Pos_i = the teacher's row of i and the positives in the memory. 0 where no row of the memory is
    either. student: (R, D), with gradient. own: (R, D) the teacher's. memory: (M, D). positive, negative: (R, M) bool.
    """
    student, own = l2_normalize(at_least_float32(student)), l2_normalize(at_least_float32(own).detach())
    free = (student * own).sum(-1, keepdim=True)
    logits = torch.cat([free, inner(student, l2_normalize(at_least_float32(memory).detach()))], dim=1) / tau
    always = torch.ones_like(free, dtype=torch.bool)
    positive = torch.cat([always, positive], dim=1)
    counted = positive | torch.cat([always, negative], dim=1)
    log_p = logits.masked_fill(~counted, torch.finfo(logits.dtype).min).log_softmax(-1)
    return -(log_p.masked_fill(~positive, 0).sum(-1) / positive.sum(-1)).mean()
