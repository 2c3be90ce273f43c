"""VectorStore: vectors in memory, in the place of decoded images."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class VectorStore:
    """N vectors at length 1, and what an ImageStore tells of images."""

    vectors: Tensor
    """(N, D) float32."""
    neighbour: Tensor
    """(N, n) int64: rows of the nearest other vectors, from which views are made."""
    problem: np.ndarray
    note: np.ndarray = field(init=False)
    level = "host"

    def __post_init__(self) -> None:
        object.__setattr__(self, "note", np.full(len(self.vectors), "", dtype=object))

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def nbytes(self) -> int:
        return self.vectors.numel() * self.vectors.element_size()

    @property
    def device(self) -> torch.device:
        return self.vectors.device
