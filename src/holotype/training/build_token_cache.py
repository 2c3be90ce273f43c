"""Build the token cache: plan which views fit where, run the trunk once over them, keep them for later runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from holotype.data.augment import (
    OPERATIONS,
    CropParams,
    Recipe,
    apply_recipe,
    centre_crops,
    crops_at,
    draw_crops,
    draw_recipe,
)
from holotype.data.image_store import ImageStore
from holotype.data.samplers import keyed_generator, keyed_uniforms
from holotype.errors import InputError
from holotype.methods.base import Views
from holotype.models.backbone import Backbone
from holotype.models.token_cache import (
    CacheShards,
    CacheViews,
    EntryChecksums,
    KeyedTokens,
    Size,
    TokenCache,
    cache_file,
    evict_to_fit,
    file_bytes,
    is_complete,
    read_tokens,
    save_tokens,
    storage_dtype,
    writing_tokens,
)
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

T = TypeVar("T")
Fill = Callable[[Tensor], None]
Tokens = tuple[Tensor, EntryChecksums | None]
"""Of a cache, with the checksums of a file whose entries are compared as they are used."""
CACHE_FORMAT = 1
"""Part of every key: raised when the content of a cache changes for the same settings."""
VIEW_SEED = 0
"""The views are the same for every run, so that runs with different seeds share a cache."""
CONTENT_SEED = 11
"""Of views that depend on the pixels of an image alone."""
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
    by_content: bool = False,
    progress: bool = False,
) -> TokenCache:
    """Return the cache of the images `usable` of a store: read from a file of an earlier run, or built now.

    needs: the most weak and strong views that a step draws; strong ones are left out where none is drawn.
    taken: what images and other caches hold already; by default the images alone. fixed: take exactly `wanted`, as a
    resumed run must. Several processes open it together: all take as many views as fit the one with the least room.
    shards: each holds a part of the images (CacheShards), or all of them if 0. A file serves all processes at once.
    by_content: the views of an image depend on its pixels alone, and tokens that a cache of other images holds of it
    are copied, so that a collection that has changed costs the difference.
    """
    started = time.monotonic()
    wanted = fit_to_needs(wanted, needs, fixed)
    encoder = trunk_encoder(backbone, compute, len(usable) * wanted.entries)
    width = _width(store, encoder, usable[:1])
    budget = find_budget(memory, compute.device, taken or Budget.at(store.level, store.nbytes))
    budget = smallest_budget(all_gather_object(budget))  # so that the plan is the same on all processes
    dealt = CacheShards.deal(usable, len(store), shards) if shards else None
    most = dealt.largest(usable) if dealt else len(usable)
    plan = plan_cache(wanted, needs, width, (most, len(usable)), budget, compute.device, fixed)
    held = dealt.held(usable) if dealt and plan.level != "disk" else torch.arange(len(usable))
    keys = store.keys(usable) if by_content else []
    own = [keys[at] for at in held.tolist()] if by_content else []
    file = None
    # a GPU computes a cache faster than a disk reads it: kept there only in a folder that was named
    if plan.level == "disk" or compute.device.type == "cpu" or memory.cache_dir is not None:
        digest = cache_key(store, backbone, encoder, usable, held, plan.views, shards, own)
        file = cache_file(cache_folder(memory) / "tokens", digest)
    size = (len(held) * plan.views.entries, width)
    place = CachePlace(file, size, storage_dtype(encoder.trunk_dtype), plan.level, compute.device, own)
    how = "read"

    def fill(tokens: Tensor) -> None:
        nonlocal how
        missing = place.copy_earlier(tokens) if own else torch.arange(len(held))
        copied = len(held) - len(missing)
        how = f"{copied:,} of them read, built" if copied else "built"
        fill_cache(tokens, plan.views, store, encoder, usable, held, progress, keys, missing)

    tokens, checks = (_through_file if plan.level == "disk" else _in_memory)(place, budget.disk, fill)
    position = torch.full((len(store),), -1).index_copy_(0, usable[held], torch.arange(len(held)))
    checks, seconds = checks if how == "read" else None, time.monotonic() - started
    cache = TokenCache(plan.views, plan.level, tokens, position, seconds, checks, dealt)
    _say(cache, len(held), how, plan.reason)
    return cache


def trunk_encoder(backbone: Backbone, compute: Device, views: int) -> Encoder:
    """Return what runs the frozen blocks over so many views, compiled where that pays."""
    return Encoder(backbone, compute, compiled=compute.device.type == "cuda" and views >= WORTH_COMPILING)


def _width(store: ImageStore, encoder: Encoder, row: Tensor) -> int:
    """Return the numbers of a view. row: (1,) of any image."""
    centre = centre_crops(store.height[row], store.width[row], store.size)
    return int(encoder.inputs(store.crop(row, centre).to(encoder.device)).shape[1])


def _say(cache: TokenCache, images: int, how: str, reason: str) -> None:
    where = f"{format_bytes(cache.nbytes)} in {PLACE_NAMES[cache.level]}, {how}"
    line = f"Token cache: {cache.views} views of {images:,} images, {where} in {cache.seconds:.1f} s"
    log.log(logging.WARNING if reason else logging.INFO, "; ".join(filter(None, (line, reason))) + ".")


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
    width: int,
    images: tuple[int, int],
    budget: Budget,
    device: torch.device,
    fixed: bool = False,
) -> CachePlan:
    """Return the highest level on which at least LEAST_VIEWS fit, with as many views as fit there.

    width: numbers of a view. images: how many a process holds in memory, and how many a file holds, which serves all
    processes.
    """
    room: dict[Level, int] = {"device": budget.device, "host": budget.host, "disk": budget.disk}
    if device.type == "cpu":
        room.pop("device")
    levels = list(room)
    for level, limit in room.items():
        n = images[level == "disk"]
        every = smaller_views(wanted, needs, fixed)
        views = next((v for v in every if v.nbytes(n, width) <= limit), None)
        if views is None:
            continue
        too_small = levels[: levels.index(level) + (views != wanted)]
        rooms = " or ".join(f"the {format_bytes(room[of])} of {PLACE_NAMES[of]}" for of in too_small)
        reason = f"{format_bytes(wanted.nbytes(n, width))} for {wanted} views do not fit {rooms}"
        return CachePlan(views, level, reason if too_small else "")
    size = format_bytes(wanted.nbytes(images[1], width))
    raise InputError(
        f"A token cache of {images[1]:,} images with {wanted} views takes {size}, but there are only "
        f"{format_bytes(budget.host)} of memory and {format_bytes(budget.disk)} of disk for it: ask for fewer views "
        "with --cache-views, allow more with --memory.disk-gb, or use --cache-views off."
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


@dataclass(frozen=True)
class CachePlace:
    """Where the tokens of a cache go."""

    file: Path | None
    """None where none is kept."""
    size: Size
    dtype: torch.dtype
    level: Level
    device: torch.device
    keys: Sequence[bytes] = ()
    """Of the images, where their views depend on nothing else."""

    def copy_earlier(self, tokens: Tensor) -> Tensor:
        """Copy what other caches of the same family hold of these images; returns the places of the others."""
        missing: dict[bytes, list[int]] = {}
        for at, key in enumerate(self.keys):
            missing.setdefault(key, []).append(at)
        family = f"{self.file.name.partition('-')[0]}-*{self.file.suffix}" if self.file else ""
        others = sorted(self.file.parent.glob(family), key=_age) if self.file else []
        by_image = tokens.unflatten(0, (len(self.keys), -1))
        for file in others:
            try:
                earlier = KeyedTokens(file, *by_image.shape[1:])
            except (OSError, CorruptFile):  # it may be gone, or half of it
                continue
            for image, key in enumerate(earlier.keys):
                if key in missing and earlier.copy(image, by_image[missing[key][0]]):
                    for at in missing[key][1:]:
                        by_image[at] = by_image[missing[key][0]]
                    del missing[key]
        return torch.tensor(sorted(at for places in missing.values() for at in places), dtype=torch.int64)

    def find(self) -> Tokens | None:
        """Return what an earlier run left; None where there is nothing, or where it was damaged, which is logged."""
        if self.file is None or not is_complete(self.file, self.size, self.keys):
            return None
        remove_stale_lock(self.file)
        try:
            return read_tokens(self.file, self.size, self.dtype, self.level, self.device)
        except CorruptFile as error:
            log.warning("%s was damaged since it was written (%s), and is made again.", self.file, error)
            self.file.unlink(missing_ok=True)
        except OSError:  # somebody may just have deleted the file to make room for another
            pass
        return None

    def find_or_make(self, make: Callable[[], T]) -> Tokens | T:
        """Return what an earlier run left, else what `make` returns; of two commands, the second waits and finds it."""
        if found := self.find():
            return found
        lock: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.file is not None and world_size() == 1:  # the processes of a run meet on the way
            with contextlib.suppress(OSError):  # writing it will tell
                self.file.parent.mkdir(parents=True, exist_ok=True)
                lock = wait_for_lock(self.file, "a token cache")
        with lock:
            return self.find() or make()


def _in_memory(place: CachePlace, limit: int, fill: Fill) -> Tokens:
    """Each process looks for itself: disks differ."""

    def make() -> Tokens:
        where = place.device if place.level == "device" else "cpu"
        tokens = torch.empty(place.size, dtype=place.dtype, device=where)
        fill(tokens)
        if place.file and local_rank() == 0:
            save_tokens(tokens, place.file, limit, place.keys)
        return tokens, None

    return place.find_or_make(make)


def _through_file(place: CachePlace, limit: int, fill: Fill) -> Tokens:
    """The same in a file, which the first process writes for all of them.

    Then, on machines that do not share its disk, the first process there does.
    """
    assert place.file is not None
    file, folder, problem = place.file, place.file.parent, ""

    def make() -> None:
        evict_to_fit(folder, file_bytes(place.size, place.keys), limit)
        with writing_tokens(file, place.size, place.dtype, place.keys) as tokens:
            fill(tokens)

    for writes in (rank() == 0, local_rank() == 0):
        try:
            if writes:
                place.find_or_make(make)
        except OSError as error:
            problem = error.strerror or str(error)
        if problems := [each for each in all_gather_object(problem) if each]:
            raise InputError(
                f"The token cache could not be written to {folder} ({problems[0]}); free some space, give another "
                "folder with --memory.cache-dir, or ask for fewer views with --cache-views."
            )
    if (found := place.find()) is None:
        raise InputError(
            f"{file} is gone or damaged though it was written just now; check the disk, or give another folder with "
            "--memory.cache-dir."
        )
    return found


@torch.no_grad()
def fill_cache(
    tokens: Tensor,
    views: CacheViews,
    store: ImageStore,
    encoder: Encoder,
    usable: Tensor,
    held: Tensor,
    progress: bool,
    keys: Sequence[bytes],
    missing: Tensor,
) -> None:
    """Run every view of the images `usable[held]` through the trunk.

    tokens: (images * entries, tokens * D), written here. Views are drawn for all usable images, so that a part is as it
    is in the whole. keys: of draw_view. missing: places among `held` that are to be filled.
    """
    by_image = tokens.unflatten(0, (len(held), views.entries))
    crops = [draw_view(store, usable, views, view, keys) for view in range(views.entries)]
    recipes = {view: draw_strong(view - views.weak) for view in range(views.weak, views.centre)}
    with progress_bar("Caching views", len(missing) * views.entries, progress) as advance:
        for part in missing.split(encoder.chunk) if len(missing) else ():
            rows, there = usable[held[part]], part.to(tokens.device)
            for view, drawn in enumerate(crops):
                images = store.crop(rows, drawn.take(held[part])).to(encoder.device)
                if view in recipes:
                    images = apply_recipe(images, recipes[view].take(torch.zeros_like(part)))
                by_image[there, view] = encoder.inputs(images).to(by_image.device, tokens.dtype)
                advance(len(part))


def draw_view(
    store: ImageStore, usable: Tensor, views: CacheViews, view: int, keys: Sequence[bytes] = ()
) -> CropParams:
    """Where the given view of every image is cut; the same for any number of views of its kind.

    keys: of the images, where nothing else is to decide.
    """
    height, width = store.height[usable], store.width[usable]
    if view == views.centre:
        return centre_crops(height, width, store.size)
    kind, number = ("weak", view) if view < views.weak else ("strong", view - views.weak)
    if keys:
        return crops_at(
            height, width, store.size, keyed_uniforms(keys, 3, VIEW_SEED, CONTENT_SEED, kind, number)
        )
    return draw_crops(height, width, store.size, keyed_generator(VIEW_SEED, "cache", kind, number))


def draw_strong(number: int) -> Recipe:
    """The recipe of one row that strong view `number` of every image shares."""
    return draw_recipe(1, keyed_generator(VIEW_SEED, "cache", "recipe", number), share="batch")


def cache_key(
    store: ImageStore,
    backbone: Backbone,
    encoder: Encoder,
    usable: Tensor,
    held: Tensor,
    views: CacheViews,
    shards: int,
    keys: Sequence[bytes] = (),
) -> str:
    """Return a digest of all that decides the content of a cache of the images `usable[held]`.

    keys: of these images, where their views depend on nothing else; the digest then begins with that of the family.
    """

    def rows(some: Tensor) -> list[str]:
        """A digest of rows where they are not all: as many others may add up to the same."""
        return [] if len(some) == len(store) else [hashlib.sha256(some.numpy().tobytes()).hexdigest()]

    if keys:
        family = digest_of(network_facts(backbone, encoder, views) | {"content": True})
        return f"{family[:16]}-{hashlib.sha256(b''.join(keys)).hexdigest()}"
    here = usable[held]
    facts = network_facts(backbone, encoder, views)
    facts |= {"images": store.digest(), "usable": [len(here), int(here.sum()), *rows(here)]}
    if len(held) < len(usable):  # views are drawn for all of them
        facts |= {"part": [shards, world_size(), rank()], "of": rows(usable)}
    return digest_of(facts)


def network_facts(backbone: Backbone, encoder: Encoder, views: CacheViews) -> dict[str, Any]:
    """Return all that decides the tokens of an image, but for the image and its crops."""
    return {
        "format": CACHE_FORMAT,
        "backbone": backbone.digest,
        "image_size": backbone.image_size,
        **backbone.changes,
        "trained": sorted(name.split(".")[0] for name, _ in encoder.tail.blocks.named_children()),
        "prepared": type(backbone.tail).__name__,
        "views": str(views),
        "view_seed": VIEW_SEED,
        "operations": list(OPERATIONS),
        "recipes": [{k: v.tolist() for k, v in vars(draw_strong(n)).items()} for n in range(views.strong)],
        "trunk": str(encoder.trunk_dtype),
        "dtype": str(storage_dtype(encoder.trunk_dtype)),
    }


def digest_of(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _age(file: Path) -> float:
    """Return seconds to sort by, the file used last first."""
    try:
        return -file.stat().st_mtime
    except OSError:  # somebody has just made room
        return 0.0
