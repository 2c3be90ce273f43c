"""Trunk and tail of one backbone on one device: images in, features out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from holotype.data.views import normalise
from holotype.machine.device import Compute
from holotype.methods.base import Method, Prediction
from holotype.models.backbone import Backbone
from holotype.models.compiled import CompiledTrunk

CHUNK = {"cpu": 64}
"""Images per pass of the trunk: on a CPU larger ones leave the cache of the processor (1.3 times slower)."""
LARGEST_CHUNK = 256
"""The same on other devices."""
PREDICTED_AT_ONCE = 4096


class Encoder:
    """Turns images into what the trained part takes (`inputs`), and that into features (`features`).

    Inputs are the trunk's tokens, or normalised images for a method that owns its encoder.
    """

    def __init__(
        self,
        backbone: Backbone,
        compute: Compute,
        method: Method | None = None,
        *,
        compiled: bool = False,
        images_at_once: int = LARGEST_CHUNK,
    ) -> None:
        """images_at_once: how many images a training step has; the trunk is compiled for a part of it."""
        self.compute = compute
        self.device = compute.device
        self.method = method if method is not None and method.needs == "images" else None
        self.mean = torch.tensor(backbone.mean, device=self.device)
        self.std = torch.tensor(backbone.std, device=self.device)
        self.dtype, self.trunk_dtype = compute.dtype, compute.trunk_dtype
        self.trunk: nn.Module = backbone.trunk.to(self.device, self.trunk_dtype).eval()
        self.tail: Any = backbone.tail.to(self.device, self.dtype)
        self.compiled = compiled and self.method is None
        if self.compiled:
            self.trunk = CompiledTrunk(self.trunk, self.mean, self.std, self.trunk_dtype)
        limit = CHUNK.get(self.device.type, LARGEST_CHUNK)
        self.chunk = -(-images_at_once // -(-images_at_once // limit))

    def inputs(self, images: Tensor) -> Tensor:
        """(n, 3, S, S) uint8 on the device -> tokens (n, N, D) without gradient (or normalised images)."""
        if self.method is not None:
            return normalise(images, self.mean, self.std, self.dtype)
        parts = [self._tokens(part) for part in images.split(self.chunk)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @torch.no_grad()
    def _tokens(self, images: Tensor) -> Tensor:
        """One pass of the trunk; a compiled one always sees the same shape."""
        n = len(images)
        tokens: Tensor
        if not self.compiled:
            tokens = self.trunk(normalise(images, self.mean, self.std, self.trunk_dtype))
        else:
            if n < self.chunk:
                images = torch.cat([images, images[:1].expand(self.chunk - n, -1, -1, -1)])
            tokens = self.trunk(images)
        return tokens[:n]

    def features(self, inputs: Tensor) -> Tensor:
        """(n, ...) inputs -> (n, D) features with gradient."""
        with self.compute.autocast():
            features = self.tail(inputs) if self.method is None else self.method.encode(inputs)
        return features.to(self.dtype)

    @torch.no_grad()
    def prepare(self, images: Tensor) -> Tensor:
        """(n, 3, S, S) uint8 -> what a token cache keeps (n, M, D)."""
        prepared: Tensor = self.tail.prepare(self.inputs(images))
        return prepared

    def features_of_prepared(self, prepared: Tensor) -> Tensor:
        """What `prepare` returned, in any floating type -> (n, D) features with gradient."""
        with self.compute.autocast():
            features = self.tail.finish(prepared.to(self.trunk_dtype))
        return features.to(self.dtype)


def place(method: Method, features: Tensor, rows: Tensor) -> Prediction:
    """The method's word on every image of a table, on the CPU; images outside `rows` are placed nowhere (-1)."""
    parts = [method.predict(part) for part in features.split(PREDICTED_AT_ONCE)]
    unread = torch.ones(len(features), dtype=torch.bool)
    unread[rows] = False
    nothing = torch.tensor(float("nan"))
    return Prediction(
        torch.cat([p.category for p in parts]).cpu().masked_fill(unread, -1),
        torch.where(unread, nothing, torch.cat([p.probability for p in parts]).cpu().float()),
        torch.where(unread, nothing, torch.cat([p.known_score for p in parts]).cpu().float()),
    )
