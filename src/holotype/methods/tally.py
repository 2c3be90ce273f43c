"""What a pseudo-labeller did in an epoch, for the log: means over its steps, gathered on the device."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Tally(nn.Module):
    """Named means of an epoch, in buffers: a step reads no value back, and a resumed epoch goes on counting."""

    total: Tensor
    count: Tensor

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.register_buffer("total", torch.zeros(len(names)))
        self.register_buffer("count", torch.zeros(len(names)))

    def reset(self) -> None:
        """A new epoch begins."""
        self.total.zero_()
        self.count.zero_()

    @torch.no_grad()
    def add(self, name: str, values: Tensor, counted: Tensor | None = None) -> None:
        """Take in the `values` (any shape) where `counted` holds; it is broadcast to them, None = everywhere."""
        at = self.names.index(name)
        counted = torch.ones_like(values) if counted is None else counted.expand(values.shape)
        self.total[at] += torch.where(counted > 0, values, 0).sum()
        self.count[at] += counted.sum()

    def means(self) -> dict[str, Tensor]:
        """Name -> mean, without the names of which nothing was counted. Looks at values: not for use in a step."""
        every = zip(self.names, self.total, self.count, strict=True)
        return {name: total / count for name, total, count in every if float(count) > 0}
