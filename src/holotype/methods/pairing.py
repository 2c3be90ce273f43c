"""Which unlabelled images stand beside which labelled anchor (RPC's batch construction, inside the batch)."""

from __future__ import annotations

import torch
from torch import Tensor


def draw_pairs(
    key: Tensor, w_old: Tensor, candidate: Tensor, mu: int, mu_id: Tensor | int
) -> tuple[Tensor, Tensor]:
    """Each anchor draws `mu` distinct candidates at random and keeps the `mu_id` with the largest w_old.

    key: (B, B) uniform random numbers, row = anchor. w_old: (B,). candidate: (B, B) bool, may anchor i
    draw row j? -> partner (B, M) row indices, best first, and weight (B, M), their w_old where kept and 0
    elsewhere; M = min(mu, B). Shapes do not depend on the data.
    """
    drawn_key, drawn = torch.where(candidate, key, -1.0).topk(min(mu, key.shape[1]), dim=1)
    is_drawn = drawn_key >= 0
    w = torch.where(is_drawn, w_old[drawn], -1.0)
    w, order = w.sort(dim=1, descending=True, stable=True)
    position = torch.arange(w.shape[1], device=w.device)
    keep = (w >= 0) & (position < mu_id)
    return drawn.gather(1, order), torch.where(keep, w, torch.zeros_like(w))


def gather_rows(x: Tensor, row: Tensor) -> Tensor:
    """x[:, row] as a product with a one-hot matrix. x: (V, B, D), row: (B, M) indices -> (V, B, M, D).

    Exact, but for the ten bits of TF32 where train.matmul allows it on a GPU. Its gradient is a product too: that of an
    index sorts the rows first, in a dozen kernels.
    """
    one_hot = (row.flatten()[:, None] == torch.arange(x.shape[1], device=x.device)).to(x.dtype)
    return (one_hot @ x).unflatten(1, row.shape)
