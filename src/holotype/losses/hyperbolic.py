"""The Poincare ball of curvature -c: clipped features, the exponential map at its centre, distances of pairs."""

import torch
from torch import Tensor

from holotype.losses.ops import at_least_float32, inner

EPS = 1e-6
EDGE = 1 - 1e-4
"""Farthest that a point or a pair of them is taken to lie, as a share of the way to the edge of the ball."""


def clip_norm(x: Tensor, radius: float) -> Tensor:
    """x min(1, r / ||x||). (..., D) -> (..., D)."""
    x = at_least_float32(x)
    return x * (radius / x.square().sum(-1, keepdim=True).clamp_min(EPS).sqrt()).clamp_max(1)


def exp_at_centre(u: Tensor, c: float) -> Tensor:
    """exp_0(u) = tanh(sqrt(c) ||u||) u / (sqrt(c) ||u||), a point of the ball. (..., D) -> (..., D)."""
    u = at_least_float32(u)
    norm = (c * u.square().sum(-1, keepdim=True)).clamp_min(EPS).sqrt()
    return norm.tanh().clamp_max(EDGE) / norm * u


def poincare_distance(x: Tensor, c: float) -> Tensor:
    """d_ij = 2 / sqrt(c) artanh(sqrt(c) ||-x_i (+) x_j||) of points of the ball. (N, D) -> (N, N).

    ||-x (+) y||^2 = ||x - y||^2 / (1 - 2 c <x, y> + c^2 ||x||^2 ||y||^2), by Moebius addition.
    """
    x = at_least_float32(x)
    dot, square = inner(x, x), x.square().sum(-1)
    apart = (square[:, None] + square[None, :] - 2 * dot).clamp_min(0)
    ratio = c * apart / (1 - 2 * c * dot + c * c * square[:, None] * square[None, :]).clamp_min(EPS)
    return 2 * c**-0.5 * torch.atanh((ratio + EPS).sqrt().clamp_max(EDGE))
