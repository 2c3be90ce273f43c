"""The directions that features use: the soft subspace of known classes (EAGC), and how evenly all of them (BIA)."""

import torch
from torch import Tensor

from holotype.losses.ops import at_least_float32, inner, l2_normalize, masked_mean

EPS = 1e-12
POLAR_STEPS = 20
"""Each brings a small singular value half as much again towards 1: 0.001 of the largest arrives."""


def conceptor(f: Tensor, aperture: float) -> Tensor:
    """S = R (R + I / aperture^2)^-1 with R = F^T F / N: 1 along what the features use much, 0 along what they do not.

    f: (N, D), not normalised -> (D, D), symmetric, eigenvalues in [0, 1).
    """
    f = at_least_float32(f)
    r = f.T @ f / len(f)
    ridge = torch.eye(len(r), dtype=r.dtype, device=r.device) / aperture**2
    return torch.linalg.solve(r + ridge, r)  # both commute


def subspace_energy(f: Tensor, subspace: Tensor) -> Tensor:
    """e(f) = f^T S f / ||f||^2, the share of a feature inside a soft subspace. (..., D), (D, D) -> (...)."""
    f = at_least_float32(f)
    return ((f @ subspace) * f).sum(-1) / f.square().sum(-1).clamp_min(EPS)


def squared_drift(f: Tensor, reference: Tensor, labelled: Tensor) -> Tensor:
    """L_pull = mean over labelled rows and dimensions of (f - sg reference)^2 / 2; 0 where no row is labelled.

    f, reference: (V, B, D). labelled: (B,) bool.
    """
    drift = (at_least_float32(f) - at_least_float32(reference).detach()).square().mean(-1)
    return masked_mean(drift, labelled) / 2


def negative_isotropy(f: Tensor, valid: Tensor) -> Tensor:
    """L = -||Z||_* / n, the sum of singular values of the n valid rows of unit length: -1 where all are orthogonal.

    ||Z||_* = <Z, P> with the polar factor P of Z, which is its gradient too; P comes from products alone.
    f: (N, D). valid: (N,) bool.
    """
    z = l2_normalize(at_least_float32(f)) * valid[:, None]
    return -(z * polar_factor(z.detach())).sum() / valid.sum().clamp_min(1)


@torch.no_grad()
def polar_factor(z: Tensor) -> Tensor:
    """U V^T of z = U diag(s) V^T by Newton-Schulz: X <- 3/2 X - 1/2 X X^T X. (N, D) -> (N, D), 0 for zero."""
    x = z / z.square().sum().sqrt().clamp_min(EPS)
    for _ in range(POLAR_STEPS):
        x = 1.5 * x - 0.5 * inner(x, x) @ x
    return x
