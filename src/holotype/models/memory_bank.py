"""Memory bank: a ring buffer of the latest rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RingMemory(nn.Module):
    """The last `size` rows that were pushed, in buffers, so that they are saved and a resumed run finds them.

    Shapes never depend on the data: rows that are not to be kept are pushed with a mask. Two memories of one size that
    are pushed with the same masks hold the same images in the same places.
    """

    rows: Tensor
    """(size, ...)"""
    place: Tensor
    """Where the next row goes."""
    count: Tensor
    """How many rows there are, `size` at most."""

    def __init__(self, size: int, *shape: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(size, *shape))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @property
    def valid(self) -> Tensor:
        """(size,) bool: has the row been written?"""
        return torch.arange(len(self.rows), device=self.rows.device) < self.count

    @torch.no_grad()
    def push(self, new: Tensor, keep: Tensor) -> None:
        """Take in the rows of `new` (n, ...) where `keep` (n,) holds, in their order; the oldest give way."""
        size = len(self.rows)
        for part, kept in zip(new.split(size), keep.split(size), strict=True):
            order = (~kept).to(torch.uint8).argsort(stable=True)  # the kept ones first
            step, n = torch.arange(len(part), device=part.device), kept.sum()
            slot = (self.place + step) % size
            written = (step < n).view(-1, *[1] * (part.ndim - 1))
            rows = torch.where(written, part[order].to(self.rows.dtype), self.rows[slot])
            self.rows.index_copy_(0, slot, rows)
            self.place.copy_((self.place + n) % size)
            self.count.copy_((self.count + n).clamp_max(size))
