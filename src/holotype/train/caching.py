"""Building a token cache: which views fit where, then every view of every image through the trunk, once."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any

import torch
from torch import Tensor

from holotype.data.sampling import keyed_generator
from holotype.data.store import ImageStore
from holotype.data.strong import OPERATIONS, Recipe, apply_recipe, draw_recipe
from holotype.data.views import Crops, centre_crops, draw_crops
from holotype.machine.bars import counting
from holotype.machine.device import Compute
from holotype.machine.memory import PLACE, Budget, MemoryConfig, cache_folder, find_budget, human
from holotype.machine.processes import barrier, rank
from holotype.methods.base import Views
from holotype.models.backbone import Backbone
from holotype.models.cache import (
    CacheViews,
    Shape,
    TokenCache,
    cache_file,
    empty_tokens,
    is_whole,
    keep_tokens,
    kept_type,
    key_digest,
    make_room,
    read_tokens,
    writing,
)
from holotype.train.cache_plan import Plan, fit_to_needs, plan_cache
from holotype.train.encode import Encoder

log = logging.getLogger("holotype")

FORMAT = 1
"""Part of every key: raised when the content of a cache changes for the same settings."""
VIEW_SEED = 0
"""The views are the same for every run, so that runs with different seeds share a cache."""
WORTH_COMPILING = 400_000
"""Views from which on compiling the trunk (some seconds) pays."""


def open_cache(
    wanted: CacheViews,
    needs: Views,
    store: ImageStore,
    backbone: Backbone,
    compute: Compute,
    usable: Tensor,
    memory: MemoryConfig,
    *,
    fixed: bool = False,
    progress: bool = False,
) -> TokenCache:
    """The cache of the images `usable` of a store: read from a file of an earlier run, or built now.

    needs: the most weak and strong views that a step draws; strong ones are left out where none is drawn.
    fixed: take exactly `wanted`, as a resumed run must.
    """
    started = time.monotonic()
    wanted = fit_to_needs(wanted, needs, fixed)
    encoder = Encoder(backbone, compute, compiled=_compiles(compute, len(usable) * wanted.entries))
    shape = _shape(store, encoder, usable)
    device = compute.device
    budget = find_budget(memory, device, Budget.at(store.level, store.nbytes))
    plan = plan_cache(wanted, needs, shape, budget, device, fixed)
    folder = cache_folder(memory) / "tokens"
    keeps = _keeps(device, memory)
    file = cache_file(folder, key_digest(_facts(store, backbone, encoder, usable, plan.views)))
    size, dtype = shape.size(plan.views), kept_type(encoder.trunk_dtype)
    found = (keeps or plan.level == "disk") and is_whole(file, size)
    if not found and plan.level == "disk":
        if rank() == 0:  # one process writes for all
            make_room(folder, shape.nbytes(plan.views), budget.disk)
            with writing(file, size, dtype) as tokens:
                fill(tokens, plan.views, store, encoder, usable, progress)
        barrier()
    if found or plan.level == "disk":
        tokens = read_tokens(file, size, dtype, plan.level, device)
    else:
        tokens = empty_tokens(size, dtype, plan.level, device)
        fill(tokens, plan.views, store, encoder, usable, progress)
        if keeps and rank() == 0:
            keep_tokens(tokens, file, budget.disk)
    position = torch.full((len(store),), -1)
    position[usable] = torch.arange(len(usable))
    cache = TokenCache(plan.views, plan.level, tokens, position, time.monotonic() - started)
    _say(cache, plan, shape, found)
    return cache


# -- content ----------------------------------------------------------------------------------------------


@torch.no_grad()
def fill(
    tokens: Tensor, views: CacheViews, store: ImageStore, encoder: Encoder, usable: Tensor, progress: bool
) -> None:
    """Run every view of every image through the trunk. tokens: (images * entries, tokens, D), written here."""
    by_image = tokens.unflatten(0, (len(usable), views.entries))
    crops = [draw_view(store, usable, views, view) for view in range(views.entries)]
    recipes = {view: draw_strong(view - views.weak) for view in range(views.weak, views.centre)}
    with counting("Caching views", len(usable) * views.entries, progress) as advance:
        for part in torch.arange(len(usable)).split(encoder.chunk):
            rows = usable[part]
            for view, drawn in enumerate(crops):
                images = store.crop(rows, drawn.take(part)).to(encoder.device)
                if view in recipes:
                    images = apply_recipe(images, recipes[view].take(torch.zeros_like(part)))
                by_image[part[0] : part[-1] + 1, view] = encoder.prepare(images).to(tokens.dtype)
                advance(len(part))


def draw_view(store: ImageStore, usable: Tensor, views: CacheViews, view: int) -> Crops:
    """Where the given view of every image is cut; the same for any number of views of its kind."""
    height, width = store.height[usable], store.width[usable]
    if view == views.centre:
        return centre_crops(height, width, store.size)
    kind, number = ("weak", view) if view < views.weak else ("strong", view - views.weak)
    return draw_crops(height, width, store.size, keyed_generator(VIEW_SEED, "cache", kind, number))


def draw_strong(number: int) -> Recipe:
    """The recipe of one row that strong view `number` of every image shares."""
    return draw_recipe(1, keyed_generator(VIEW_SEED, "cache", "recipe", number), share="batch")


def _facts(
    store: ImageStore, backbone: Backbone, encoder: Encoder, usable: Tensor, views: CacheViews
) -> dict[str, Any]:
    """All that decides the content of a cache."""
    return {
        "format": FORMAT,
        "images": store.digest(),
        "usable": [len(usable), int(usable.sum())],
        "backbone": backbone.digest,
        "image_size": backbone.image_size,
        "trained": sorted(name.split(".")[0] for name, _ in encoder.tail.blocks.named_children()),
        "prepared": type(backbone.tail).__name__,
        "views": str(views),
        "view_seed": VIEW_SEED,
        "operations": list(OPERATIONS),
        "recipes": [
            {f.name: getattr(draw_strong(n), f.name).tolist() for f in dataclasses.fields(Recipe)}
            for n in range(views.strong)
        ],
        "trunk": str(encoder.trunk_dtype),
        "dtype": str(kept_type(encoder.trunk_dtype)),
    }


def _shape(store: ImageStore, encoder: Encoder, usable: Tensor) -> Shape:
    """Sizes, found by encoding the first image."""
    first = usable[:1]
    crops = centre_crops(store.height[first], store.width[first], store.size)
    prepared = encoder.prepare(store.crop(first, crops).to(encoder.device))
    return Shape(len(usable), *prepared.shape[1:])


def _keeps(device: torch.device, memory: MemoryConfig) -> bool:
    """A GPU computes a cache faster than a disk reads it: kept there only in a folder that was named."""
    return device.type == "cpu" or memory.cache_dir is not None


def _compiles(compute: Compute, n_views: int) -> bool:
    return compute.device.type == "cuda" and n_views >= WORTH_COMPILING


def _say(cache: TokenCache, plan: Plan, shape: Shape, found: bool) -> None:
    how = "read" if found else "built"
    line = (
        f"Token cache: {cache.views} views of {shape.images:,} images, {human(cache.nbytes)} in {PLACE[cache.level]}, "
        f"{how} in {cache.seconds:.1f} s"
    )
    if plan.reason:
        log.warning("%s; %s.", line, plan.reason)
    else:
        log.info("%s.", line)
