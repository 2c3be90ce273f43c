"""Methods that cluster once at the end: K centres in a buffer, and images placed by the nearest."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.methods.base import Method, Task

SOFTNESS = 0.1
"""Temperature that turns squared distances into probabilities; the same as the classifiers' on cosines."""


class Clustered(Method):
    """Nearest of `centres` on L2-normalised features; a subclass fills them in `finish`."""

    scores_early = False
    centres: Tensor

    def __init__(self, config: object, task: Task) -> None:
        super().__init__(config, task)
        self.register_buffer("centres", torch.zeros(task.k, task.dim))

    def logits(self, features: Tensor) -> Tensor:
        """-||x - c||^2 / 0.1 with the square multiplied out: a product for all pairs, which ONNX has as well."""
        x = F.normalize(features, dim=-1)
        squares = x.square().sum(-1, keepdim=True) + self.centres.square().sum(-1)
        return (2 * x @ self.centres.T - squares) / SOFTNESS
