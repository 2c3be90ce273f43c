"""Rank statistics: two images pair if the same features are strongest (AutoNovel, RS+)."""

import torch
from torch import Tensor

from holotype.losses.ops import at_least_float32, exact_inner

EPS = 1e-7  # inside the logarithm, as published; below what half precision can hold


@torch.no_grad()
def same_top_features(h: Tensor, k: int = 5) -> Tensor:
    """s_ij = [ top-k(h_i) = top-k(h_j) ] as sets of feature indices. h: (B, D), signed -> (B, B) bool.

    Sorted lists of indices are equal exactly where the sets are.
    """
    strongest = at_least_float32(h).topk(min(k, h.shape[-1]), dim=-1).indices.sort(dim=-1).values
    return (strongest[:, None] == strongest[None, :]).all(-1)


@torch.no_grad()
def true_pairs(positive: Tensor, label: Tensor, labelled: Tensor) -> Tensor:
    """`positive` with the truth put in where both images are labelled. (B, B), (B,), (B,) -> (B, B) bool."""
    both = labelled[:, None] & labelled[None, :]
    return torch.where(both, label[:, None] == label[None, :], positive)


def pair_cross_entropy(logits: Tensor, positive: Tensor) -> Tensor:
    """L_bce = mean_ij -log( s_ij P_ij + (1 - s_ij) (1 - P_ij) + 1e-7 ), P_ij = <p_i^a, p_j^b>, p = softmax(l).

    All ordered pairs count, (i, i) as well: the two views of an image are the positive that costs nothing.
    logits: (2, B, K), views a and b. positive: (B, B) bool s, row = view a.
    """
    a, b = at_least_float32(logits).softmax(-1).unbind(0)
    p = exact_inner(a, b)
    # Rounding can lift P above 1; without the clamp the logarithm of 1 - P would then be NaN.
    agreement = torch.where(positive, p, (1 - p).clamp_min(0))
    return -(agreement + EPS).log().mean()


def prediction_mse(logits: Tensor) -> Tensor:
    """L_mse = mean over rows and classes of (p^a - p^b)^2, p = softmax(l); both views learn. logits: (2, B, K)."""
    a, b = at_least_float32(logits).softmax(-1).unbind(0)
    return (a - b).square().mean()
