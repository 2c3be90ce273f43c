"""Vectors in the place of images: nothing looks, and a small head in front of the method learns.

    f(x) = u + W_2 gelu(W_1 u),    u = sqrt(D) x / |x|,

in which W_2 begins at zero, so that training begins with the vectors as they are.
"""

from __future__ import annotations

import math
import re

import torch.nn.functional as F
from torch import Tensor, nn

from holotype.config.schema import VECTOR_PREFIX, BackboneConfig

MAX_WIDTH = 1024
"""Of the hidden layer, which is as wide as the vectors up to here."""


class VectorTail(nn.Module):
    """Vectors (B, D) of any length -> features (B, D)."""

    blocks = ()
    """Of a network; here there are none."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.hidden = nn.Linear(dim, min(dim, MAX_WIDTH))
        self.out = nn.Linear(min(dim, MAX_WIDTH), dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def prepare(self, vectors: Tensor) -> Tensor:
        """Vectors are ready as they are."""
        return vectors

    def forward(self, x: Tensor) -> Tensor:
        u = math.sqrt(self.dim) * F.normalize(x.float(), dim=-1)
        return u + self.out(F.gelu(self.hidden(u)))


def vector_config(dim: int) -> BackboneConfig:
    """Return how a run names vectors of `dim` numbers in the place of its network."""
    return BackboneConfig(f"{VECTOR_PREFIX}{dim}")


def vector_dim(name: str) -> int | None:
    """Return how long the vectors are that a name of `vector_config` means; None for a network."""
    found = re.fullmatch(rf"{VECTOR_PREFIX}([1-9][0-9]*)", name)
    return int(found[1]) if found else None
