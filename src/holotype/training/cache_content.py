"""What a token cache holds: every view of every image, run through the trunk once."""

from __future__ import annotations

import torch
from torch import Tensor

from holotype.data.augment import CropParams, Recipe, apply_recipe, centre_crops, draw_crops, draw_recipe
from holotype.data.image_store import ImageStore
from holotype.data.samplers import keyed_generator
from holotype.models.token_cache import CacheViews
from holotype.training.encode import Encoder
from holotype.utils.console import progress_bar

VIEW_SEED = 0
"""The views are the same for every run, so that runs with different seeds share a cache."""


@torch.no_grad()
def fill(
    tokens: Tensor,
    views: CacheViews,
    store: ImageStore,
    encoder: Encoder,
    usable: Tensor,
    held: Tensor,
    progress: bool,
) -> None:
    """Run every view of the images `usable[held]` through the trunk.

    tokens: (images * entries, tokens * D), written here. Views are drawn for all usable images, so that a part is as it
    is in the whole.
    """
    by_image = tokens.unflatten(0, (len(held), views.entries))
    crops = [draw_view(store, usable, views, view) for view in range(views.entries)]
    recipes = {view: draw_strong(view - views.weak) for view in range(views.weak, views.centre)}
    with progress_bar("Caching views", len(held) * views.entries, progress) as advance:
        for part in torch.arange(len(held)).split(encoder.chunk):
            rows = usable[held[part]]
            for view, drawn in enumerate(crops):
                images = store.crop(rows, drawn.take(held[part])).to(encoder.device)
                if view in recipes:
                    images = apply_recipe(images, recipes[view].take(torch.zeros_like(part)))
                by_image[part[0] : part[-1] + 1, view] = encoder.inputs(images).to(tokens.dtype)
                advance(len(part))


def draw_view(store: ImageStore, usable: Tensor, views: CacheViews, view: int) -> CropParams:
    """Where the given view of every image is cut; the same for any number of views of its kind."""
    height, width = store.height[usable], store.width[usable]
    if view == views.centre:
        return centre_crops(height, width, store.size)
    kind, number = ("weak", view) if view < views.weak else ("strong", view - views.weak)
    return draw_crops(height, width, store.size, keyed_generator(VIEW_SEED, "cache", kind, number))


def draw_strong(number: int) -> Recipe:
    """The recipe of one row that strong view `number` of every image shares."""
    return draw_recipe(1, keyed_generator(VIEW_SEED, "cache", "recipe", number), share="batch")
