"""RPC's relational signature and discovery loss: similar novel images relate alike to the known classes."""

from typing import Literal

import torch
from torch import Tensor

from holotype.errors import InputError
from holotype.losses.precision import full, inner, unit

Norm = Literal["row_softmax", "exp_shift", "literal"]


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


def _affinity(cosine: Tensor, pair: Tensor, n: Tensor, tau: float, norm: Norm) -> Tensor:
    """The scaled similarity of each pair, 0 where `pair` does not hold. (N, N) -> (N, N)."""
    if norm == "row_softmax":
        # Not -inf: a row without partners must stay finite, in value and in gradient.
        logits = (cosine / tau).masked_fill(~pair, torch.finfo(cosine.dtype).min)
        return logits.softmax(-1) * pair / n.clamp_min(1)
    if norm == "exp_shift":
        return ((cosine - 1) / tau).exp() * pair / (n * (n - 1)).clamp_min(1)
    if norm == "literal":
        return (cosine / tau).exp() * pair
    raise InputError(f"Unknown norm {norm!r} of the discovery loss: use row_softmax, exp_shift or literal.")


def relational_consistency(
    r: Tensor,
    f: Tensor,
    w_new: Tensor,
    image: Tensor,
    valid: Tensor,
    tau: float = 0.07,
    norm: Norm = "row_softmax",
    detach: bool = True,
) -> Tensor:
    """L_new = (1/n) sum_i w_i sum_j w_j S_ij ||r_i - r_j||^2, over pairs of valid rows of different images.

    row_softmax: S_ij = softmax_j(cos(f_i, f_j)/tau) over i's partners. exp_shift: exp((cos - 1)/tau)/(n - 1).
    literal: the plain sum of exp(cos/tau), no 1/n. n = number of valid rows.
    r: (N, C) signatures. f: (N, D) features. w_new: (N,). image: (N,) id of the image a row shows.
    valid: (N,) bool. detach: S and w carry no gradient, else similar pairs part to weigh less.
    """
    weight = pair_weights(f, w_new, image, valid, tau, norm)
    weight = weight.detach() if detach else weight
    return (weight * _squared_distance(r)).sum()


def pair_weights(
    f: Tensor, w_new: Tensor, image: Tensor, valid: Tensor, tau: float = 0.07, norm: Norm = "row_softmax"
) -> Tensor:
    """What each pair weighs in L_new: w_i w_j S_ij, scaled. Arguments as there -> (N, N)."""
    f = unit(full(f))
    pair = valid[:, None] & valid[None, :] & (image[:, None] != image[None, :])
    similarity = _affinity(inner(f, f), pair, valid.sum(), tau, norm)
    return full(w_new)[:, None] * full(w_new)[None, :] * similarity


def printed_new(r: Tensor, f: Tensor, w_new: Tensor, tau: float = 0.07) -> Tensor:
    """L_new as printed: sum_{i,j} w_i w_j exp(cos(f_i, f_j)/tau) ||r_i - r_j||^2, nothing masked or detached.

    r: (N, C) signatures. f: (N, D) features. w_new: (N,).
    """
    f, w_new = unit(full(f)), full(w_new)
    similarity = (inner(f, f) / tau).exp()
    return (w_new[:, None] * w_new[None, :] * similarity * _squared_distance(r)).sum()
