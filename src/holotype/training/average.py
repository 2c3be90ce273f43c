"""The mean of the weights over the last epochs of a stage."""

from __future__ import annotations

import torch
from torch import Tensor, nn

PREFIX = "mean."


class WeightMean:
    """Running mean of parameters, taken at the end of each of the last `epochs` epochs."""

    def __init__(self, learnable: dict[str, nn.Parameter], epochs: int) -> None:
        """epochs: 0 for no mean."""
        self.learnable, self.epochs = learnable, epochs
        self.mean: dict[str, Tensor] = {}

    @property
    def begun(self) -> bool:
        return bool(self.mean)

    @torch.no_grad()
    def take(self, epoch: int, epochs: int) -> None:
        """After epoch `epoch` (from 0) of `epochs`; a stage begins its own mean."""
        first = max(epochs - self.epochs, 0)
        if not self.epochs or epoch < first:
            return
        if epoch == first or not self.mean:
            self.mean = {name: p.detach().clone() for name, p in self.learnable.items()}
        else:
            for name, parameter in self.learnable.items():
                self.mean[name].lerp_(parameter, 1 / (epoch - first + 1))

    @torch.no_grad()
    def put(self) -> None:
        """Make the mean the weights."""
        for name, value in self.mean.items():
            self.learnable[name].copy_(value)

    def tensors(self) -> dict[str, Tensor]:
        """For the saved state."""
        return {PREFIX + name: value for name, value in self.mean.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.mean = {
            name: tensors[PREFIX + name].to(parameter.device, copy=True)
            for name, parameter in self.learnable.items()
            if PREFIX + name in tensors
        }
