"""Where the views of a step come from: cut anew from the images (exact), or drawn from a token cache.

Both draw on the CPU from keyed generators, a block of steps at a time and for the whole batch, so that a
resumed run, another device and several processes see the same views. A step then takes two turns: `fetch`
brings what it needs to the device, `encode` makes features of it, with gradient; only `encode` is a part of
a captured step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from holotype.data.sampling import keyed_generator
from holotype.data.store import ImageStore
from holotype.data.strong import Recipe, apply_recipe, draw_recipe
from holotype.data.views import Crops, centre_crops, draw_crops
from holotype.errors import InputError
from holotype.machine.device import Compute
from holotype.machine.processes import gather_rows, local_rows, world_size
from holotype.methods.base import Method, Views
from holotype.models.backbone import Backbone
from holotype.models.cache import TokenCache
from holotype.training.ahead import Ahead
from holotype.training.config import TrainConfig
from holotype.training.encode import Encoder

Key = tuple[int | str, ...]


class Source(Protocol):
    """What the loop asks of a source. V views, B images in a batch, b of them on this process."""

    mode: str
    """As it stands in records."""
    encoder: Encoder

    def draw(self, rows: Tensor, views: Views, key: Key) -> Sequence[Any]:
        """(T, B) rows of the next T steps -> one request per step."""

    def expect(self, request: Any) -> None:
        """Requests are announced in the order in which they are fetched, a few steps ahead."""

    def fetch(self, request: Any) -> dict[str, Tensor]:
        """What `encode` needs, on the device, without gradient; shapes are the same in every step of a stage."""

    def encode(self, fetched: dict[str, Tensor]) -> Tensor:
        """(V b, D) features with gradient, one view after the other."""

    def centre(self, rows: Tensor) -> Tensor:
        """(n,) rows -> (n, D) features of the centre crops."""

    def close(self) -> None:
        """Forget what was announced and not fetched."""


@dataclass(frozen=True)
class Cuts:
    """The views of one step as cut from the images: all weak views, then all strong ones."""

    rows: Tensor
    """(V b,) rows of the table."""
    crops: Crops
    """Of the V b views."""
    recipes: list[Recipe]
    """One of b rows per strong view."""


class FreshViews:
    """Exact mode: every view is cut from the stored image and runs through the trunk in the step."""

    mode = "exact"

    def __init__(self, store: ImageStore, encoder: Encoder) -> None:
        self.store, self.encoder = store, encoder
        self.on_device = store.device.type == encoder.device.type
        self.ahead = Ahead(self._cut, encoder.device)

    def draw(self, rows: Tensor, views: Views, key: Key) -> list[Cuts]:
        steps, batch = rows.shape
        n_views = views.weak + views.strong
        own = local_rows(torch.arange(batch))
        height, width = self.store.height[rows].flatten(), self.store.width[rows].flatten()
        drawn = [
            draw_crops(height, width, self.store.size, keyed_generator(*key, "crop", view))
            for view in range(n_views)
        ]
        # (V, 3, T, B) -> a step's crops are (V b,)
        place = torch.stack([torch.stack([c.top, c.left, c.flip.long()]) for c in drawn])
        place = place.view(n_views, 3, steps, batch)[..., own]
        cuts = []
        for step in range(steps):
            top, left, flip = place[:, :, step].transpose(0, 1).flatten(1)
            recipes = [
                self._recipe(batch, views, (*key, "strong", view, step)).take(own)
                for view in range(views.weak, n_views)
            ]
            cuts.append(Cuts(rows[step, own].repeat(n_views), Crops(top, left, flip.bool()), recipes))
        return cuts

    def _recipe(self, batch: int, views: Views, key: Key) -> Recipe:
        group = torch.arange(batch) % views.groups if views.share == "group" else None
        return draw_recipe(batch, keyed_generator(*key), share=views.share, group=group)

    def expect(self, request: Cuts) -> None:
        if not self.on_device:
            self.ahead.expect((request.rows, request.crops))

    def fetch(self, request: Cuts) -> dict[str, Tensor]:
        images = self.store.crop(request.rows, request.crops) if self.on_device else self.ahead.take()
        if request.recipes:
            strong = images[-sum(len(recipe) for recipe in request.recipes) :]
            parts = strong.chunk(len(request.recipes))
            changed = [
                apply_recipe(part, recipe) for part, recipe in zip(parts, request.recipes, strict=True)
            ]
            images = torch.cat([images[: -len(strong)], *changed])
        return {"inputs": self.encoder.inputs(images)}

    def encode(self, fetched: dict[str, Tensor]) -> Tensor:
        return self.encoder.features(fetched["inputs"])

    def centre(self, rows: Tensor) -> Tensor:
        crops = centre_crops(self.store.height[rows], self.store.width[rows], self.store.size)
        images = self.store.crop(rows, crops) if self.on_device else self._cut((rows, crops))
        return self.encoder.features(self.encoder.inputs(images.to(self.encoder.device)))

    def _cut(self, request: tuple[Tensor, Crops]) -> Tensor:
        return self.store.cut(*request, pin=self.encoder.device.type == "cuda")

    def close(self) -> None:
        self.ahead.drop()


class CachedViews:
    """Token cache: a view is one of the M weak or S strong views of the image that the trunk has seen already."""

    def __init__(self, cache: TokenCache, encoder: Encoder) -> None:
        self.cache, self.encoder, self.mode = cache, encoder, cache.mode
        self.on_device = cache.tokens.device.type == encoder.device.type
        self.ahead = Ahead(cache.take, encoder.device)

    def draw(self, rows: Tensor, views: Views, key: Key) -> Sequence[Tensor]:
        """One (V, b) tensor of cache entries per step, on the device where the cache is there."""
        steps, batch = rows.shape
        drawn = [distinct(steps, batch, self.cache.views.weak, views.weak, keyed_generator(*key, "weak"))]
        if views.strong:
            sharers = {"batch": 1, "group": views.groups, "none": batch}[views.share]
            generator = keyed_generator(*key, "strong")
            strong = distinct(steps, sharers, self.cache.views.strong, views.strong, generator)
            drawn.append(self.cache.views.weak + strong[:, :, torch.arange(batch) % sharers])
        view = torch.cat(drawn, dim=1)  # (T, V, B)
        entry = local_rows(self.cache.entry(rows[:, None, :], view).movedim(-1, 0)).movedim(0, -1)
        if self.on_device and entry.device != self.encoder.device:
            entry = entry.contiguous().pin_memory().to(self.encoder.device, non_blocking=True)
        return entry.unbind(0)

    def expect(self, request: Tensor) -> None:
        if not self.on_device:
            self.ahead.expect(request.flatten())

    def fetch(self, request: Tensor) -> dict[str, Tensor]:
        return {"entry": request} if self.on_device else {"inputs": self.ahead.take()}

    def encode(self, fetched: dict[str, Tensor]) -> Tensor:
        inputs = self.cache.take(fetched["entry"].flatten()) if self.on_device else fetched["inputs"]
        return self.encoder.features_of_prepared(inputs)

    def centre(self, rows: Tensor) -> Tensor:
        entry = self.cache.entry(rows, torch.full_like(rows, self.cache.views.centre))
        tokens = self.cache.take(entry.to(self.cache.tokens.device))
        return self.encoder.features_of_prepared(tokens.to(self.encoder.device))

    def close(self) -> None:
        self.ahead.drop()


def make_source(
    config: TrainConfig,
    method: Method,
    backbone: Backbone,
    store: ImageStore,
    compute: Compute,
    cache: TokenCache | None,
) -> Source:
    """Views for a method: out of the cache, or without one cut anew."""
    views = max((s.views.weak + s.views.strong for s in method.stages()), default=1)
    encoder = Encoder(
        backbone,
        compute,
        method,
        compiled=compute.device.type == "cuda" and not config.eager and cache is None,
        images_at_once=views * max(config.batch_size // world_size(), 1),
    )
    if cache is None:
        return FreshViews(store, encoder)
    if method.needs == "images":
        raise InputError(f"{type(method).__name__} encodes images itself; use --cache-views off for it.")
    return CachedViews(cache, encoder)


def distinct(steps: int, n: int, of: int, views: int, generator: torch.Generator) -> Tensor:
    """(steps, views, n): for each step and row, `views` different numbers below `of`, uniformly at random."""
    return torch.rand(steps, n, of, generator=generator).topk(views, dim=-1).indices.transpose(1, 2)


@torch.no_grad()
def evaluation_features(source: Source, rows: Tensor) -> Tensor:
    """(n,) rows -> (n, D) features of the centre crops, in the order of `rows`, on every process."""
    padding = -len(rows) % world_size()
    own = local_rows(torch.cat([rows, rows[:1].expand(padding)]))
    parts = [source.centre(part) for part in own.split(source.encoder.chunk)]
    return gather_rows(torch.cat(parts))[: len(rows)]


def table_features(source: Source, rows: Tensor, n: int) -> Tensor:
    """(n, D) features of a table of n images, of which `rows` can be read; zeros for the others."""
    found = evaluation_features(source, rows)
    features = found.new_zeros(n, found.shape[1])
    features[rows.to(found.device)] = found
    return features
