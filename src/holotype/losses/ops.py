"""Float32-safe tensor operations and masked reductions for the losses.

At temperature 0.07 a bf16 cosine is wrong by up to 0.1 in the exponent, so logits must not be rounded.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of `x` over the entries where `mask` holds; 0 where it holds nowhere.

    x: (...) values; entries outside the mask may be anything finite.
    mask: broadcastable to x, boolean or 0/1.
    """
    weight = mask.to(x.dtype).expand_as(x)
    share = weight / weight.sum().clamp_min(1)
    return torch.dot(x.flatten(), share.flatten())


def at_least_float32(x: Tensor) -> Tensor:
    """`x` itself if it is float32 or float64, else its float32 copy. Shape unchanged."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def inner(a: Tensor, b: Tensor) -> Tensor:
    """All inner products <a_i, b_j> with autocast off. a: (N, D), b: (M, D) -> (N, M)."""
    with torch.autocast(a.device.type, enabled=False):
        return at_least_float32(a) @ at_least_float32(b).T


def exact_inner(a: Tensor, b: Tensor) -> Tensor:
    """`inner` with TF32 off as well: where 1 - <a_i, b_j> is taken, ten bits leave nothing of it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return inner(a, b)
    finally:
        torch.set_float32_matmul_precision(before)


def l2_normalize(x: Tensor) -> Tensor:
    """x / ||x||_2 over the last dimension, 0 for a zero row. Any shape.

    The same as F.normalize, of which every loss takes several: written as a root-mean-square norm it is one
    kernel forwards and one backwards instead of a dozen, which is what a step on a GPU is made of.
    """
    width = x.shape[-1]
    # the eps keeps the cube of 1/||x||, which the backward pass forms, inside float32
    return F.rms_norm(x, (width,), eps=1e-20 / width) * width**-0.5
