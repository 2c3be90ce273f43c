"""Build the token cache: plan which views fit where, run the trunk once over them, keep them for later runs."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holotype.data.augment import (
    OPERATIONS,
    CropParams,
    Recipe,
    apply_recipe,
    centre_crops,
    draw_crops,
    draw_recipe,
)
from holotype.data.image_store import ImageStore
from holotype.data.samplers import keyed_generator
from holotype.errors import InputError
from holotype.methods.base import Views
from holotype.models.backbone import Backbone
from holotype.models.token_cache import (
    CacheViews,
    EntryChecksums,
    Size,
    TokenCache,
    TokenShape,
    cache_file,
    empty_tokens,
    evict_to_fit,
    file_bytes,
    is_complete,
    key_digest,
    read_tokens,
    save_tokens,
    storage_dtype,
    writing_tokens,
)
from holotype.training.batches import CacheShards
from holotype.training.encoder import Encoder
from holotype.utils.console import progress_bar
from holotype.utils.device import Device
from holotype.utils.distributed import all_gather_object, local_rank, rank, world_size
from holotype.utils.locks import remove_stale_lock, wait_for_lock
from holotype.utils.memory import (
    PLACE_NAMES,
    Budget,
    Level,
    MemoryConfig,
    cache_folder,
    find_budget,
    smallest_budget,
)
from holotype.utils.serialization import CorruptFile
from holotype.utils.text import format_bytes

log = logging.getLogger("holotype")

CACHE_FORMAT = 1
"""Part of every key: raised when the content of a cache changes for the same settings."""
VIEW_SEED = 0
"""The views are the same for every run, so that runs with different seeds share a cache."""
LEAST_VIEWS = CacheViews(4, 2)
"""Views shrink to these before the cache moves from the device to the host or from there to a file."""
WORTH_COMPILING = 400_000
"""Views from which on compiling the trunk (some seconds) pays."""


def open_cache(
    wanted: CacheViews,
    needs: Views,
    store: ImageStore,
    backbone: Backbone,
    compute: Device,
    usable: Tensor,
    memory: MemoryConfig,
    *,
    taken: Budget | None = None,
    fixed: bool = False,
    shards: int = 0,
    progress: bool = False,
) -> TokenCache:
    """Return the cache of the images `usable` of a store: read from a file of an earlier run, or built now.

    needs: the most weak and strong views that a step draws; strong ones are left out where none is drawn.
    taken: what images and other caches hold already; by default the images alone. fixed: take exactly `wanted`, as a
    resumed run must. Several processes open it together: all take as many views as fit the one with the least room.
    shards: each holds a part of the images (batches.py); 0 = each holds all of them. A file serves all of them at once.
    """
    started = time.monotonic()
    wanted = fit_to_needs(wanted, needs, fixed)
    compiled = compute.device.type == "cuda" and len(usable) * wanted.entries >= WORTH_COMPILING
    encoder = Encoder(backbone, compute, compiled=compiled)
    dealt = CacheShards.deal(usable, len(store), shards) if shards else None
    shape = _shape(store, encoder, dealt.largest(usable) if dealt else len(usable), usable[:1])
    budget = find_budget(memory, compute.device, taken or Budget.at(store.level, store.nbytes))
    budget = smallest_budget(all_gather_object(budget))  # so that the plan is the same on all processes
    plan = plan_cache(wanted, needs, shape, budget, compute.device, fixed, whole=len(usable))
    held = torch.arange(len(usable))
    if dealt and plan.level != "disk":
        held = dealt.held(usable)
    shape = replace(shape, images=len(held))
    file = None
    if plan.level == "disk" or _is_kept(compute.device, memory):
        part = _part(usable, held, len(store), shards)
        digest = key_digest(_facts(store, backbone, encoder, usable[held], plan.views) | part)
        file = cache_file(cache_folder(memory) / "tokens", digest)

    def fill_all(tokens: Tensor) -> None:
        fill_cache(tokens, plan.views, store, encoder, usable, held, progress)

    dtype = storage_dtype(encoder.trunk_dtype)
    place = CachePlace(file, shape.size(plan.views), dtype, plan.level, compute.device)
    got = (_through_file if plan.level == "disk" else _in_memory)(place, budget.disk, fill_all)
    position = torch.full((len(store),), -1)
    position[usable[held]] = torch.arange(len(held))
    seconds = time.monotonic() - started
    cache = TokenCache(plan.views, plan.level, got.tokens, position, seconds, got.checks, dealt)
    where = f"{format_bytes(cache.nbytes)} in {PLACE_NAMES[cache.level]}, {'read' if got.found else 'built'}"
    line = f"Token cache: {cache.views} views of {shape.images:,} images, {where} in {cache.seconds:.1f} s"
    log.log(
        logging.WARNING if plan.reason else logging.INFO, "; ".join(filter(None, (line, plan.reason))) + "."
    )
    return cache


# -- how many views fit where -----------------------------------------------------------------------------


@dataclass(frozen=True)
class CachePlan:
    """Where a cache goes, and how many views it can hold there."""

    views: CacheViews
    level: Level
    reason: str
    """Why it is not what was asked for; "" if it is."""


def fit_to_needs(wanted: CacheViews, needs: Views, fixed: bool) -> CacheViews:
    """Refuse fewer views than a step draws; leave out strong ones where none is drawn."""
    if wanted.weak < needs.weak or wanted.strong < needs.strong:
        raise InputError(
            f"cache_views {wanted} is too few: a step draws {needs.weak} weak and {needs.strong} strong views of each "
            f"image; use at least {max(needs.weak, 2)}+{needs.strong}."
        )
    return wanted if needs.strong or fixed else CacheViews(wanted.weak, 0)


def plan_cache(
    wanted: CacheViews,
    needs: Views,
    shape: TokenShape,
    budget: Budget,
    device: torch.device,
    fixed: bool = False,
    *,
    whole: int | None = None,
) -> CachePlan:
    """The highest level on which at least LEAST views fit, with as many views as fit there.

    shape: of the images that a process holds in memory. whole: those of all processes, which a file holds; by default
    the same.
    """
    of_all = replace(shape, images=shape.images if whole is None else whole)
    room: dict[Level, int] = {"device": budget.device, "host": budget.host, "disk": budget.disk}
    if device.type == "cpu":
        room.pop("device")
    highest = next(iter(room))
    for level, limit in room.items():
        held = of_all if level == "disk" else shape
        views = next((v for v in smaller_views(wanted, needs, fixed) if held.nbytes(v) <= limit), None)
        if views is None:
            continue
        if (views, level) == (wanted, highest):
            return CachePlan(views, level, "")
        levels = list(room)
        too_small = levels[: levels.index(level) + (views != wanted)]
        rooms = " or ".join(f"the {format_bytes(room[of])} of {PLACE_NAMES[of]}" for of in too_small)
        reason = f"{format_bytes(held.nbytes(wanted))} for {wanted} views do not fit {rooms}"
        return CachePlan(views, level, reason)
    raise InputError(
        f"A token cache of {of_all.images:,} images with {wanted} views takes {format_bytes(of_all.nbytes(wanted))}, "
        f"but there are only {format_bytes(budget.host)} of memory and {format_bytes(budget.disk)} of disk for it: ask "
        "for fewer views with --cache-views, allow more with --memory.disk_gb, or use --cache-views off."
    )


def smaller_views(wanted: CacheViews, needs: Views, fixed: bool) -> Iterator[CacheViews]:
    """`wanted`, then fewer and fewer weak views with strong ones in proportion, down to LEAST."""
    yield wanted
    if fixed:
        return
    least_strong = min(wanted.strong, max(LEAST_VIEWS.strong, needs.strong))
    for weak in range(wanted.weak - 1, max(LEAST_VIEWS.weak, needs.weak) - 1, -1):
        strong = max(least_strong, round(wanted.strong * weak / wanted.weak))
        yield CacheViews(weak, strong)


# -- read or built ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CachePlace:
    """Where the tokens of a cache go."""

    file: Path | None
    """None where none is kept."""
    size: Size
    dtype: torch.dtype
    level: Level
    device: torch.device

    def is_kept(self) -> bool:
        return self.file is not None and is_complete(self.file, self.size)

    def find(self) -> CacheTokens | None:
        """What an earlier run left; None where there is nothing, or it was damaged, which is said, and goes."""
        if self.file is None or not self.is_kept():
            return None
        remove_stale_lock(self.file)
        try:
            tokens, checks = read_tokens(self.file, self.size, self.dtype, self.level, self.device)
            return CacheTokens(tokens, checks, found=True)
        except CorruptFile as error:
            log.warning("%s was damaged since it was written (%s), and is made again.", self.file, error)
            self.file.unlink(missing_ok=True)
        except OSError:  # somebody may just have deleted the file to make room for another
            pass
        return None

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """While a cache is made: of two commands that need it, the second waits and finds it."""
        if self.file is None or world_size() > 1:  # the processes of a run meet on the way
            return contextlib.nullcontext()
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError:  # writing it will tell
            return contextlib.nullcontext()
        return wait_for_lock(self.file, "a token cache")


@dataclass(frozen=True)
class CacheTokens:
    """The tokens of a cache."""

    tokens: Tensor
    checks: EntryChecksums | None = None
    found: bool = False
    """Whether an earlier run had left them."""


Fill = Callable[[Tensor], None]


def _in_memory(place: CachePlace, limit: int, fill_all: Fill) -> CacheTokens:
    """Each process looks for itself: disks differ."""
    if found := place.find():
        return found
    with place.alone():
        if found := place.find():
            return found
        tokens = empty_tokens(place.size, place.dtype, place.level, place.device)
        fill_all(tokens)
        if place.file and local_rank() == 0:
            save_tokens(tokens, place.file, limit)
    return CacheTokens(tokens)


def _through_file(place: CachePlace, limit: int, fill_all: Fill) -> CacheTokens:
    """The same in a file, which the first process writes for all of them.

    Then, on machines that do not share its disk, the first process there does.
    """
    assert place.file is not None
    folder, found = place.file.parent, place.is_kept()
    for writes in (rank() == 0, local_rank() == 0):
        problem = ""
        if writes and not place.find():
            try:
                with place.alone():
                    if not place.find():
                        evict_to_fit(folder, file_bytes(place.size), limit)
                        with writing_tokens(place.file, place.size, place.dtype) as tokens:
                            fill_all(tokens)
            except OSError as error:
                problem = error.strerror or str(error)
        if problems := [told for told in all_gather_object(problem) if told]:
            raise InputError(
                f"The token cache could not be written to {folder} ({problems[0]}); free some space, give another "
                "folder with --memory.cache_dir, or ask for fewer views with --cache-views."
            )
    got = place.find()
    if got is None:
        raise InputError(
            f"{place.file} is gone or damaged though it was written just now; check the disk, or give another folder "
            "with --memory.cache_dir."
        )
    return got if found else replace(got, checks=None, found=False)


# -- the views of an image --------------------------------------------------------------------------------


@torch.no_grad()
def fill_cache(
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


# -- what decides its content -----------------------------------------------------------------------------


def _facts(
    store: ImageStore, backbone: Backbone, encoder: Encoder, usable: Tensor, views: CacheViews
) -> dict[str, Any]:
    """All that decides the content of a cache."""
    return {
        "format": CACHE_FORMAT,
        "images": store.digest(),
        "usable": [len(usable), int(usable.sum()), *_cache_name(usable, len(store))],
        "backbone": backbone.digest,
        "image_size": backbone.image_size,
        **backbone.changes,
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
        "dtype": str(storage_dtype(encoder.trunk_dtype)),
    }


def _part(usable: Tensor, held: Tensor, n: int, shards: int) -> dict[str, Any]:
    """Of the images that this process holds, where it holds a part of them: whose, and of which. Views are drawn for
    all of these."""
    if len(held) == len(usable):
        return {}
    return {"part": [shards, world_size(), rank()], "of": _cache_name(usable, n)}


def _cache_name(usable: Tensor, n: int) -> list[str]:
    """A digest of the rows where they are not all n: as many others may add up to the same."""
    return [] if len(usable) == n else [hashlib.sha256(usable.numpy().tobytes()).hexdigest()]


def _shape(store: ImageStore, encoder: Encoder, n: int, first: Tensor) -> TokenShape:
    """Sizes of n images, found by encoding the first. first: (1,) its row."""
    crops = centre_crops(store.height[first], store.width[first], store.size)
    prepared = encoder.inputs(store.crop(first, crops).to(encoder.device))
    return TokenShape(n, prepared.shape[1])


def _is_kept(device: torch.device, memory: MemoryConfig) -> bool:
    """A GPU computes a cache faster than a disk reads it: kept there only in a folder that was named."""
    return device.type == "cpu" or memory.cache_dir is not None
