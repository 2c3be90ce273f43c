"""Encoder: trunk and tail of one backbone on one device, images in, features out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from holotype.data.augment import normalise
from holotype.errors import InputError
from holotype.methods.base import Method, Needs, Now, Prediction, Stage
from holotype.models.backbone import Backbone
from holotype.models.compile import CompiledBlocks, CompiledTrunk
from holotype.models.tail import place_trunk
from holotype.utils.device import Device

CHUNK = {"cpu": 64}
"""Images per pass of the trunk: on a CPU larger ones leave the cache of the processor (1.3 times slower)."""
LARGEST_CHUNK = 256
"""The same on other devices."""
PREDICT_BATCH = 4096


class Unregistered:
    """Stand for a module that is called and never registered: its owner neither trains nor saves it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.module(*given, **named)

    def __getattr__(self, name: str) -> Any:
        if name == "module":  # a copy in the making has none yet
            raise AttributeError(name)
        return getattr(self.module, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Unregistered:
        """Everybody shares the one module."""
        return self


class Encoder:
    """Turns images into what the trained part takes (`inputs`), and that into features (`encode`, `embed`).

    Inputs are the trunk's tokens as the tail prepares them, or normalised images, as a stage needs.
    """

    def __init__(
        self,
        backbone: Backbone,
        compute: Device,
        method: Method | None = None,
        *,
        compiled: bool = False,
        compiled_blocks: bool = False,
        images_at_once: int = LARGEST_CHUNK,
    ) -> None:
        """method: whose encoder is built; without one the tail itself encodes. compiled: the trunk, for tokens.
        compiled_blocks: its blocks one by one, for an encoder that sends images through them with gradient.
        images_at_once: how many images a training step has; the trunk is compiled for a part of it.
        """
        self.compute, self.method = compute, method
        self.device = compute.device
        self.mean = torch.tensor(backbone.mean, device=self.device)
        self.std = torch.tensor(backbone.std, device=self.device)
        self.dtype, self.trunk_dtype = compute.dtype, compute.trunk_dtype
        self.trunk: nn.Module = place_trunk(backbone.trunk, self.device, self.trunk_dtype).eval()
        self.tail: Any = backbone.tail.to(self.device, self.dtype)
        self.module: Any = self.tail if method is None else self._build(method)
        stages = method.stages() if method is not None else []
        self.last = stages[-1] if stages else Stage()
        """The stage as which images are placed after training."""
        self.compiled = compiled
        self.blocks = CompiledBlocks(self.trunk) if compiled_blocks else None
        if compiled:
            self.trunk = CompiledTrunk(self.trunk, self.mean, self.std, self.trunk_dtype)
        limit = CHUNK.get(self.device.type, LARGEST_CHUNK)
        self.chunk = -(-images_at_once // -(-images_at_once // limit))

    def _build(self, method: Method) -> nn.Module:
        """What the method makes of trunk and tail, bound to it."""
        module = method.build_encoder(Unregistered(self.trunk), self.tail).to(self.device, self.dtype)
        frozen = {id(parameter) for parameter in self.trunk.parameters()}
        if any(id(parameter) in frozen for parameter in module.parameters()):
            raise InputError(
                f"The encoder of {type(method).__name__} registers the frozen trunk as a part of its own; keep the "
                "trunk that build_encoder is given as it is, and call it."
            )
        method.bind(module)
        return module

    def inputs(self, images: Tensor, needs: Needs = "tokens") -> Tensor:
        """(n, 3, S, S) uint8 on the device -> prepared tokens (n, M D), or normalised images; without gradient."""
        if needs == "images":
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
        prepared: Tensor = self.tail.prepare(tokens[:n])
        return prepared

    def encode(self, stage: Stage, inputs: Tensor, now: Now) -> Tensor:
        """(V, b, ...) inputs -> (V, b, D) or (V, b, P, D) features with gradient."""
        assert self.method is not None  # nothing else is trained
        with self.compute.autocast():
            return self._run(self.method.encode, stage, self._typed(stage, inputs), now).to(self.dtype)

    def embed(self, inputs: Tensor, stage: Stage | None = None) -> Tensor:
        """(n, ...) inputs -> (n, D) features for placing; by default as after the last stage."""
        stage, n = stage or self.last, len(inputs)
        inputs = self._typed(stage, inputs)
        if self.blocks is not None and stage.needs == "images" and n < self.chunk:
            # compiled blocks are compiled again for every other number of images
            inputs = torch.cat([inputs, inputs[:1].expand(self.chunk - n, -1, -1, -1)])
        with self.compute.autocast():
            if self.method is None:
                features: Tensor = self.tail(inputs)
            else:
                features = self._run(self.method.embed, stage, inputs)
        return features[:n].to(self.dtype)

    def _typed(self, stage: Stage, inputs: Tensor) -> Tensor:
        """A token cache keeps 16 bits."""
        return inputs.to(self.trunk_dtype) if stage.needs == "tokens" else inputs

    def _run(self, function: Any, *given: Any) -> Tensor:
        features: Tensor = function(*given) if self.blocks is None else self.blocks.run(function, *given)
        return features


def predict_table(method: Method, features: Tensor, rows: Tensor) -> Prediction:
    """The method's word on every image of a table, on the CPU; images outside `rows` are placed nowhere (-1)."""
    parts = [method.predict(part) for part in features.split(PREDICT_BATCH)]
    unread = torch.ones(len(features), dtype=torch.bool)
    unread[rows] = False
    nothing = torch.tensor(float("nan"))
    if torch.cat([p.probability for p in parts]).cpu()[rows].isnan().any():
        raise InputError(
            f"{type(method).__name__} gives images a probability of NaN; look at what its logits divide by."
        )
    return Prediction(
        torch.cat([p.category for p in parts]).cpu().masked_fill(unread, -1),
        torch.where(unread, nothing, torch.cat([p.probability for p in parts]).cpu().float()),
        torch.where(unread, nothing, torch.cat([p.known_score for p in parts]).cpu().float()),
    )
