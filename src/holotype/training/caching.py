"""Building a token cache: which views fit where, then every view of every image through the trunk, once."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from holotype.data.augment import OPERATIONS, Recipe, centre_crops
from holotype.data.image_store import ImageStore
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
from holotype.training.cache_content import VIEW_SEED, draw_strong, fill
from holotype.training.cache_plan import Plan, fit_to_needs, plan_cache
from holotype.training.encode import Encoder
from holotype.training.shards import Shards
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
    format_bytes,
    smallest_budget,
)
from holotype.utils.serialization import CorruptFile

log = logging.getLogger("holotype")

FORMAT = 1
"""Part of every key: raised when the content of a cache changes for the same settings."""
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
    """The cache of the images `usable` of a store: read from a file of an earlier run, or built now.

    needs: the most weak and strong views that a step draws; strong ones are left out where none is drawn.
    taken: what images and other caches hold already; by default the images alone. fixed: take exactly `wanted`, as a
    resumed run must. Several processes open it together: all take as many views as fit the one with the least room.
    shards: each holds a part of the images (shards.py); 0 = each holds all of them. A file serves all of them at once.
    """
    started = time.monotonic()
    wanted = fit_to_needs(wanted, needs, fixed)
    encoder = Encoder(backbone, compute, compiled=_compiles(compute, len(usable) * wanted.entries))
    dealt = Shards.deal(usable, len(store), shards) if shards else None
    shape = _shape(store, encoder, dealt.largest(usable) if dealt else len(usable), usable[:1])
    budget = find_budget(memory, compute.device, taken or Budget.at(store.level, store.nbytes))
    budget = smallest_budget(all_gather_object(budget))  # so that the plan is the same on all processes
    plan = plan_cache(wanted, needs, shape, budget, compute.device, fixed, whole=len(usable))
    held = torch.arange(len(usable))
    if dealt and plan.level != "disk":
        held = dealt.held(usable)
    shape = replace(shape, images=len(held))
    file = None
    if plan.level == "disk" or _keeps(compute.device, memory):
        part = _part(usable, held, len(store), shards)
        digest = key_digest(_facts(store, backbone, encoder, usable[held], plan.views) | part)
        file = cache_file(cache_folder(memory) / "tokens", digest)

    def fill_all(tokens: Tensor) -> None:
        fill(tokens, plan.views, store, encoder, usable, held, progress)

    place = Place(
        file, shape.size(plan.views), storage_dtype(encoder.trunk_dtype), plan.level, compute.device
    )
    get = _through_file if plan.level == "disk" else _in_memory
    got = get(place, budget.disk, fill_all)
    position = torch.full((len(store),), -1)
    position[usable[held]] = torch.arange(len(held))
    seconds = time.monotonic() - started
    cache = TokenCache(plan.views, plan.level, got.tokens, position, seconds, got.checks, dealt)
    _say(cache, plan, shape, got.found)
    return cache


# -- read or built ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where the tokens of a cache go."""

    file: Path | None
    """None where none is kept."""
    size: Size
    dtype: torch.dtype
    level: Level
    device: torch.device

    def is_kept(self) -> bool:
        return self.file is not None and is_complete(self.file, self.size)

    def find(self) -> Got | None:
        """What an earlier run left; None where there is nothing, or it was damaged, which is said, and goes."""
        if self.file is None or not self.is_kept():
            return None
        remove_stale_lock(self.file)
        try:
            return Got(*read_tokens(self.file, self.size, self.dtype, self.level, self.device), found=True)
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
class Got:
    """The tokens of a cache."""

    tokens: Tensor
    checks: EntryChecksums | None = None
    found: bool = False
    """Whether an earlier run had left them."""


Fill = Callable[[Tensor], None]


def _in_memory(place: Place, limit: int, fill_all: Fill) -> Got:
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
    return Got(tokens)


def _through_file(place: Place, limit: int, fill_all: Fill) -> Got:
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


# -- what decides its content ------------------------------------------------------------------------------


def _facts(
    store: ImageStore, backbone: Backbone, encoder: Encoder, usable: Tensor, views: CacheViews
) -> dict[str, Any]:
    """All that decides the content of a cache."""
    return {
        "format": FORMAT,
        "images": store.digest(),
        "usable": [len(usable), int(usable.sum()), *_which(usable, len(store))],
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
    return {"part": [shards, world_size(), rank()], "of": _which(usable, n)}


def _which(usable: Tensor, n: int) -> list[str]:
    """A digest of the rows where they are not all n: as many others may add up to the same."""
    return [] if len(usable) == n else [hashlib.sha256(usable.numpy().tobytes()).hexdigest()]


def _shape(store: ImageStore, encoder: Encoder, n: int, first: Tensor) -> TokenShape:
    """Sizes of n images, found by encoding the first. first: (1,) its row."""
    crops = centre_crops(store.height[first], store.width[first], store.size)
    prepared = encoder.inputs(store.crop(first, crops).to(encoder.device))
    return TokenShape(n, prepared.shape[1])


def _keeps(device: torch.device, memory: MemoryConfig) -> bool:
    """A GPU computes a cache faster than a disk reads it: kept there only in a folder that was named."""
    return device.type == "cpu" or memory.cache_dir is not None


def _compiles(compute: Device, n_views: int) -> bool:
    return compute.device.type == "cuda" and n_views >= WORTH_COMPILING


def _say(cache: TokenCache, plan: Plan, shape: TokenShape, found: bool) -> None:
    how = "read" if found else "built"
    where = f"{format_bytes(cache.nbytes)} in {PLACE_NAMES[cache.level]}, {how} in {cache.seconds:.1f} s"
    line = f"Token cache: {cache.views} views of {shape.images:,} images, {where}"
    if plan.reason:
        log.warning("%s; %s.", line, plan.reason)
    else:
        log.info("%s.", line)
