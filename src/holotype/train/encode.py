"""From rows of the table to features: store, views, trunk and tail in one place.

Exact mode: every view is cropped from the stored image and runs through the frozen trunk in the step.
"""

from __future__ import annotations

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from holotype.data.sampling import keyed_generator
from holotype.data.store import ImageStore
from holotype.data.strong import apply_recipe, draw_recipe
from holotype.data.views import Crops, centre_crops, draw_crops, normalise
from holotype.device import arithmetic
from holotype.methods.base import Method, Prediction, Views
from holotype.models.backbone import Backbone
from holotype.train.gather import gather_rows, local_rows, world_size

EVALUATION_BATCH = 256


class Encoder:
    """Encodes images of one store with one backbone, for training views and for evaluation."""

    def __init__(self, store: ImageStore, backbone: Backbone, method: Method, fabric: Fabric) -> None:
        self.fabric = fabric
        self.device = fabric.device
        self.store = store.to(self.device)
        self.method = method
        self.mean = torch.tensor(backbone.mean, device=self.device)
        self.std = torch.tensor(backbone.std, device=self.device)
        precision = arithmetic(fabric)
        self.dtype = torch.float64 if precision.startswith("64") else torch.float32
        self.trunk_dtype = torch.bfloat16 if precision.startswith("bf16") else self.dtype
        self.trunk: nn.Module = backbone.trunk.to(self.device, self.trunk_dtype).eval()
        self.tail: nn.Module = backbone.tail.to(self.device, self.dtype)

    def training_features(self, rows: Tensor, views: Views, key: tuple[int | str, ...]) -> Tensor:
        """(B,) rows of the whole batch -> (V, B, D) features with gradient, gathered from all processes."""
        n_views = views.weak + views.strong
        images = torch.cat([self._view(rows, views, index, key) for index in range(n_views)])
        features = self._features(images).unflatten(0, (n_views, -1))
        return gather_rows(features.transpose(0, 1)).transpose(0, 1)

    @torch.no_grad()
    def evaluation_features(self, rows: Tensor) -> Tensor:
        """(n,) rows -> (n, D) features of the centre crops, in the order of `rows`, on every process."""
        padding = -len(rows) % world_size()
        padded = torch.cat([rows, rows[:1].expand(padding)])
        own = local_rows(padded)
        crops = centre_crops(self.store.height[own], self.store.width[own], self.store.size)
        parts = [
            self._features(self._normalised(self._crop(own[part], crops.take(part))))
            for part in torch.arange(len(own)).split(EVALUATION_BATCH)
        ]
        return gather_rows(torch.cat(parts))[: len(rows)]

    def table_features(self, rows: Tensor, n: int) -> Tensor:
        """(n, D) features of a table of n images, of which `rows` can be read; zeros for the others."""
        found = self.evaluation_features(rows)
        features = found.new_zeros(n, found.shape[1])
        features[rows.to(found.device)] = found
        return features

    def _view(self, rows: Tensor, views: Views, index: int, key: tuple[int | str, ...]) -> Tensor:
        """One normalised view of this process's rows; drawn for the whole batch, so that processes agree."""
        generator = keyed_generator(*key, "crop", index)
        own = local_rows(torch.arange(len(rows)))
        height, width = self.store.height[rows], self.store.width[rows]
        images = self._crop(rows[own], draw_crops(height, width, self.store.size, generator).take(own))
        if index >= views.weak:
            group = torch.arange(len(rows)) % views.groups if views.share == "group" else None
            generator = keyed_generator(*key, "strong", index)
            recipe = draw_recipe(len(rows), generator, share=views.share, group=group)
            images = apply_recipe(images, recipe.take(own))
        return self._normalised(images)

    def _crop(self, rows: Tensor, crops: Crops) -> Tensor:
        return self.store.crop(rows.to(self.device, non_blocking=True), crops.to(self.device))

    def _normalised(self, images: Tensor) -> Tensor:
        dtype = self.dtype if self.method.needs == "images" else self.trunk_dtype
        return normalise(images, self.mean, self.std, dtype)

    def _features(self, images: Tensor) -> Tensor:
        with self.fabric.autocast():
            if self.method.needs == "images":
                return self.method.encode(images).to(self.dtype)
            with torch.no_grad():
                tokens = self.trunk(images)
            features: Tensor = self.tail(tokens)
        return features.to(self.dtype)


def place(method: Method, features: Tensor, rows: Tensor) -> Prediction:
    """The method's word on every image of a table, on the CPU; images outside `rows` are placed nowhere (-1)."""
    parts = [method.predict(part) for part in features.split(EVALUATION_BATCH)]
    unread = torch.ones(len(features), dtype=torch.bool)
    unread[rows] = False
    nothing = torch.tensor(float("nan"))
    return Prediction(
        torch.cat([p.category for p in parts]).cpu().masked_fill(unread, -1),
        torch.where(unread, nothing, torch.cat([p.probability for p in parts]).cpu().float()),
        torch.where(unread, nothing, torch.cat([p.known_score for p in parts]).cpu().float()),
    )
