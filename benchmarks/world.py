"""What every measurement starts from: a table of photographs, a network, a method."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from holotype.data.table import Table
from holotype.errors import InputError
from holotype.machine import torchvision_cure as _torchvision
from holotype.machine.device import Compute
from holotype.methods import Method, Task, find_method
from holotype.models.backbone import IMAGENET_MEAN, IMAGENET_STD, Backbone, BackboneConfig, load_backbone
from holotype.models.origins import MADE
from holotype.models.tails import split
from holotype.models.whole_tail import Model

EMBEDDED_ARCH, EMBEDDED_SIZE = "vit_tiny_patch16_224", 128


@dataclass(frozen=True)
class World:
    """The conditions under which everything is compared."""

    paths: list[str]
    arch: str
    """timm's name of a network or that of one made for the project, which gets random weights (they do not matter for
    speed), or "embedded"."""
    image_size: int
    batch: int
    k: int
    device: torch.device
    epochs: int = 200

    def table(self, n: int | None = None, k: int | None = None) -> Table:
        """The first n photographs, half of k classes known, and a quarter of the images labelled, as in CUB."""
        n, k = n or len(self.paths), k or self.k
        known = tuple(f"class {c:04d}" for c in range(max(k // 2, 1)))
        label = ["" if i % 4 else known[i // 4 % len(known)] for i in range(n)]
        return Table(
            np.array(self.paths[:n], dtype=object), np.array(label, dtype=object), known, name="speed"
        )

    def method(
        self,
        name: str,
        dim: int,
        n: int | None = None,
        k: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Method:
        """With fresh heads."""
        table, (cls, config) = self.table(n, k), self.configured(name, settings or {})
        torch.manual_seed(0)
        task = Task(len(table.known), k or self.k, dim, len(table), int(table.labelled.sum()), self.epochs)
        return cls(config, task)

    def configured(self, name: str, settings: Mapping[str, Any]) -> tuple[type[Method], Any]:
        """A method, and its settings: the defaults but for those that are given."""
        cls = find_method(name)
        return cls, cls.Config(**settings)

    def model(self) -> Model:
        """The whole network as timm builds it, with random weights."""
        _torchvision.cure()
        import timm

        arch = EMBEDDED_ARCH if self.arch == "embedded" else self.arch
        arch = MADE[arch].arch if arch in MADE else arch
        if not timm.is_model(arch):
            raise InputError(f"timm knows no network {arch}; give --arch another name.")
        torch.manual_seed(0)
        model = timm.create_model(arch, img_size=self.image_size, num_classes=0)
        for name, parameter in model.named_parameters():
            if name.endswith(".gamma"):  # timm starts it near 0, with which all images would look the same
                torch.nn.init.ones_(parameter)
        return model

    def backbone(self) -> Backbone:
        """The same network as trunk and tail."""
        if self.arch == "embedded" and self.image_size == EMBEDDED_SIZE:
            return load_backbone(BackboneConfig())
        model = self.model()
        dim = int(model.num_features)
        trunk, tail = split(model, 1)
        digest = hashlib.sha256(f"random {self.arch} {self.image_size}".encode()).hexdigest()
        return Backbone(
            trunk, tail, dim, self.image_size, IMAGENET_MEAN, IMAGENET_STD, self.arch, digest, caveat=""
        )

    def compute(self) -> Compute:
        """One process on this device: bf16 for the backbone on a GPU, fp32 on a CPU, as runs have it."""
        return Compute.on(self.device.type)
