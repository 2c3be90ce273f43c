"""Masked reductions: losses keep static shapes and never select rows by a boolean index."""

import torch
from torch import Tensor


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of `x` over the entries where `mask` holds; 0 where it holds nowhere.

    x: (...) values; entries outside the mask may be anything finite.
    mask: broadcastable to x, boolean or 0/1.
    """
    weight = mask.to(x.dtype).expand_as(x)
    share = weight / weight.sum().clamp_min(1)
    return torch.dot(x.flatten(), share.flatten())
