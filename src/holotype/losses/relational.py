"""RPC's relational signature and discovery loss: similar novel images relate alike to the known classes."""

import torch
from torch import Tensor

from holotype.losses.precision import full, inner, unit


def signature(f: Tensor, prototypes: Tensor) -> Tensor:
    """r(x) = [cos(f(x), p_1), ..., cos(f(x), p_C)]. f: (N, D), prototypes: (C, D) -> (N, C)."""
    return inner(unit(full(f)), unit(full(prototypes)))


def _squared_distance(r: Tensor) -> Tensor:
    """||r_i - r_j||^2 for all pairs, from the Gram matrix. (N, C) -> (N, N), never negative."""
    r = full(r)
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
    f = unit(full(f))
    pair = valid[:, None] & valid[None, :] & (image[:, None] != image[None, :])
    # Not -inf: a row without partners must stay finite.
    logits = (inner(f, f) / tau).masked_fill(~pair, torch.finfo(f.dtype).min)
    similarity = logits.softmax(-1) * pair / valid.sum().clamp_min(1)
    return full(w_new)[:, None] * full(w_new)[None, :] * similarity


def printed_new(r: Tensor, f: Tensor, w_new: Tensor, tau: float = 0.07) -> Tensor:
    """L_new as printed: sum_{i,j} w_i w_j exp(cos(f_i, f_j)/tau) ||r_i - r_j||^2, nothing masked or detached.

    r: (N, C) signatures. f: (N, D) features. w_new: (N,).
    """
    f, w_new = unit(full(f)), full(w_new)
    similarity = (inner(f, f) / tau).exp()
    return (w_new[:, None] * w_new[None, :] * similarity * _squared_distance(r)).sum()
