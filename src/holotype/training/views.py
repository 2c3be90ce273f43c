"""Views of a step: cut anew from the images (exact), drawn from the token cache, or made of vectors.

Both draw on the CPU from keyed generators, a block of steps at a time and for the whole batch, so that a
resumed run, another device and several processes see the same views. A step then takes two turns: `fetch`
brings what it needs to the device, `views` hands it to the encoder; only `views` is a part of a captured step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from holotype.config.schema import TrainConfig
from holotype.data.augment import CropParams, Recipe, apply_recipe, centre_crops, draw_crops, draw_recipe
from holotype.data.image_store import ImageStore, VectorStore
from holotype.data.samplers import keyed_generator
from holotype.errors import InputError
from holotype.methods.base import Method, Stage, Views
from holotype.models.backbone import Backbone
from holotype.models.token_cache import TokenCache
from holotype.training.encoder import Encoder
from holotype.utils.device import Device
from holotype.utils.distributed import all_gather_rows, local_rows, rank, world_size

Key = tuple[int | str, ...]


class ViewSource(ABC):
    """Gives the loop the views of a stage. V views, B images in a batch, b of them on this process."""

    shared = False
    """Whether each process can give the views of its own shards alone."""

    def __init__(
        self, encoder: Encoder, stage: Stage | None, device: torch.device, make: Callable[[Any], Tensor]
    ) -> None:
        """stage: whose views these are; by default the last, as which images are placed after training. device: where
        images or tokens lie. make: what a request stands for, on the CPU, where they lie elsewhere than the encoder.
        """
        self.encoder, self.stage = encoder, stage or encoder.last
        self.on_device = device.type == encoder.device.type
        self.ahead = Prefetcher(make, encoder.device)

    @abstractmethod
    def draw(self, rows: Tensor, views: Views, key: Key) -> Sequence[Any]:
        """(T, B) rows of the next T steps -> one request per step."""

    @abstractmethod
    def fetch(self, request: Any) -> dict[str, Tensor]:
        """What `views` needs, on the device; shapes are the same in every step of a stage."""

    @abstractmethod
    def views(self, fetched: dict[str, Tensor]) -> Tensor:
        """(V b, ...) inputs of the encoder, one view after the other."""

    @abstractmethod
    def centre(self, rows: Tensor) -> Tensor:
        """(n,) rows -> (n, D) features of the centre crops."""

    def expect(self, request: Any) -> None:
        """Announce a request: in the order in which they are fetched, a few steps ahead."""
        if not self.on_device:
            self.ahead.expect(request)

    def owner(self, rows: Tensor) -> Tensor:
        """(n,) rows -> (n,) number of the process that encodes them for evaluation."""
        return torch.arange(len(rows)) % world_size()

    def close(self) -> None:
        """Forget what was announced and not fetched."""
        self.ahead.drop()


@dataclass(frozen=True)
class ViewCrops:
    """The views of one step as cut from the images: all weak views, then all strong ones."""

    rows: Tensor
    """(V b,) rows of the table."""
    crops: CropParams
    """Of the V b views."""
    recipes: list[Recipe]
    """One of b rows per strong view; none where a stage has a transform of its own for them."""
    seeds: Tensor
    """(V b,) of the transforms of a stage of its own."""


class FreshViews(ViewSource):
    """Every view is cut from the stored image; for a stage on tokens (exact mode) it then runs through the trunk."""

    def __init__(self, store: ImageStore, encoder: Encoder, stage: Stage | None = None) -> None:
        self.store = store
        self.cut = cut = partial(store.cut, pin=encoder.device.type == "cuda")
        # no method of this object: a ring of references would keep the images until a garbage collector comes by
        super().__init__(encoder, stage, store.device, lambda request: cut(request.rows, request.crops))

    def draw(self, rows: Tensor, views: Views, key: Key) -> list[ViewCrops]:
        steps, batch = rows.shape
        n_views = views.weak + views.strong
        own = local_rows(torch.arange(batch))
        height, width = self.store.height[rows].flatten(), self.store.width[rows].flatten()
        generators = [keyed_generator(*key, "crop", view) for view in range(n_views)]
        drawn = [draw_crops(height, width, self.store.size, generator) for generator in generators]
        # (V, 3, T, B) -> a step's crops are (V b,)
        place = torch.stack([torch.stack([c.top, c.left, c.flip.long()]) for c in drawn])
        place = place.view(n_views, 3, steps, batch)[..., own]
        cuts = []
        seeds = self._seeds(rows, n_views if views.own else 0, key)[:, :, own].flatten(1)
        for step in range(steps):
            top, left, flip = place[:, :, step].transpose(0, 1).flatten(1)
            strong = [(*key, "strong", view, step) for view in range(views.weak, n_views)]
            strong = [] if views.strong_transform else strong
            recipes = [self._recipe(batch, views, each).take(own) for each in strong]
            crops = CropParams(top, left, flip.bool())
            cuts.append(ViewCrops(rows[step, own].repeat(n_views), crops, recipes, seeds[step]))
        return cuts

    def _seeds(self, rows: Tensor, n_views: int, key: Key) -> Tensor:
        """(T, V, B) of the transforms of a stage of its own."""
        found = [
            torch.randint(2**31, rows.shape, generator=keyed_generator(*key, "own", view))
            for view in range(n_views)
        ]
        return torch.stack(found, 1) if found else rows.new_empty(len(rows), 0, rows.shape[1])

    def _recipe(self, batch: int, views: Views, key: Key) -> Recipe:
        group = torch.arange(batch) % views.groups if views.share == "group" else None
        return draw_recipe(batch, keyed_generator(*key), share=views.share, group=group)

    def fetch(self, request: ViewCrops) -> dict[str, Tensor]:
        images = self.store.crop(request.rows, request.crops) if self.on_device else self.ahead.take()
        if request.recipes:
            strong = images[-sum(len(recipe) for recipe in request.recipes) :]
            parts = strong.chunk(len(request.recipes))
            changed = list(map(apply_recipe, parts, request.recipes))
            images = torch.cat([images[: -len(strong)], *changed])
        if len(request.seeds):
            images = transformed(images, request.seeds, self.stage.views)
        return {"inputs": self.encoder.inputs(images, self.stage.needs)}

    def views(self, fetched: dict[str, Tensor]) -> Tensor:
        return fetched["inputs"]

    def centre(self, rows: Tensor) -> Tensor:
        inputs = self.encoder.inputs(self.centre_images(rows), self.stage.needs)
        return self.encoder.embed(inputs, self.stage)

    def centre_images(self, rows: Tensor) -> Tensor:
        """(n, 3, S, S) uint8 on the device: the centre crops."""
        crops = centre_crops(self.store.height[rows], self.store.width[rows], self.store.size)
        images = self.store.crop(rows, crops) if self.on_device else self.cut(rows, crops)
        return images.to(self.encoder.device)


def transformed(images: Tensor, seeds: Tensor, views: Views) -> Tensor:
    """(V b, 3, S, S) uint8 views through the transforms of a stage, each image with random numbers of its own seed, so
    that they are the same after a stop and for any number of processes."""
    weak = len(images) // (views.weak + views.strong) * views.weak
    changed = list(images)
    with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
        for place, seed in enumerate(seeds.tolist()):
            if transform := views.weak_transform if place < weak else views.strong_transform:
                torch.manual_seed(seed)
                changed[place] = transform(images[place])
    for image in changed:
        if image.shape != images.shape[1:] or image.dtype != images.dtype:
            raise InputError(
                f"A transform of the views returned {tuple(image.shape)} of {image.dtype}; it must keep "
                f"{tuple(images.shape[1:])} of {images.dtype}."
            )
    return torch.stack(changed)


class CachedViews(ViewSource):
    """Token cache: a view is one of the M weak or S strong views of the image that the trunk has seen already."""

    def __init__(self, cache: TokenCache, encoder: Encoder, stage: Stage | None = None) -> None:
        super().__init__(encoder, stage, cache.tokens.device, lambda request: cache.take(request.flatten()))
        self.cache, self.shared = cache, cache.shards is not None

    def draw(self, rows: Tensor, views: Views, key: Key) -> Sequence[Tensor]:
        """One (V, b) tensor of cache entries per step, on the device where the cache is there."""
        steps, batch = rows.shape
        generator = keyed_generator(*key, "weak")
        drawn = [distinct_views(steps, batch, self.cache.views.weak, views.weak, generator)]
        if views.strong:
            sharers = {"batch": 1, "group": views.groups, "none": batch}[views.share]
            generator = keyed_generator(*key, "strong")
            strong = distinct_views(steps, sharers, self.cache.views.strong, views.strong, generator)
            drawn.append(self.cache.views.weak + strong[:, :, torch.arange(batch) % sharers])
        view = torch.cat(drawn, dim=1)  # (T, V, B)
        entry = local_rows(self.cache.entry(rows[:, None, :], view).movedim(-1, 0)).movedim(0, -1)
        return (to_device(entry, self.encoder.device) if self.on_device else entry).unbind(0)

    def fetch(self, request: Tensor) -> dict[str, Tensor]:
        return {"entry": request} if self.on_device else {"inputs": self.ahead.take()}

    def views(self, fetched: dict[str, Tensor]) -> Tensor:
        return self.cache.take(fetched["entry"].flatten()) if self.on_device else fetched["inputs"]

    def centre(self, rows: Tensor) -> Tensor:
        entry = self.cache.entry(rows, torch.full_like(rows, self.cache.views.centre))
        tokens = self.cache.take(entry.to(self.cache.tokens.device))
        return self.encoder.embed(tokens.to(self.encoder.device), self.stage)

    def owner(self, rows: Tensor) -> Tensor:
        return self.cache.shards.owner(rows) if self.cache.shards else super().owner(rows)


WEAK_STEP, STRONG_STEP = 0.5, 0.9
"""Share of the way from a vector to its neighbour that a weak and a strong view go at most."""


class VectorViews(ViewSource):
    """Vectors in the place of images: a view is a step x + a (x_j - x) from a vector towards one of its nearest
    neighbours, with a uniform from 0 to the step of its kind, so that it stays among the vectors that there are."""

    def __init__(self, store: VectorStore, encoder: Encoder, stage: Stage | None = None) -> None:
        super().__init__(encoder, stage, encoder.device, lambda request: request)
        self.vectors, self.neighbour = store.vectors.to(encoder.device), store.neighbour

    def draw(self, rows: Tensor, views: Views, key: Key) -> list[tuple[Tensor, ...]]:
        """Per step the rows, the rows of the neighbours and a, each (V b,)."""
        own, reach = local_rows(torch.arange(rows.shape[1])), [WEAK_STEP] * views.weak
        reach += [STRONG_STEP] * views.strong
        choice, share = [], []
        for view, most in enumerate(reach):
            generator = keyed_generator(*key, "vector", view)
            choice.append(torch.randint(self.neighbour.shape[1], rows.shape, generator=generator))
            share.append(most * torch.rand(rows.shape, generator=generator))
        row = rows[:, None, :].expand(-1, len(reach), -1)
        other = self.neighbour[row].gather(-1, torch.stack(choice, 1)[..., None]).squeeze(-1)
        drawn = (part[:, :, own].flatten(1).unbind(0) for part in (row, other, torch.stack(share, 1)))
        return list(zip(*drawn, strict=True))

    def fetch(self, request: tuple[Tensor, ...]) -> dict[str, Tensor]:
        row, other, share = (to_device(part, self.vectors.device) for part in request)
        x = self.vectors[row]
        return {"inputs": x + share[:, None] * (self.vectors[other] - x)}

    def views(self, fetched: dict[str, Tensor]) -> Tensor:
        return fetched["inputs"]

    def centre(self, rows: Tensor) -> Tensor:
        return self.encoder.embed(self.vectors[rows.to(self.vectors.device)], self.stage)


class ViewSources:
    """The views of every stage of a method: out of the cache where a stage can use one, else cut anew."""

    def __init__(
        self,
        config: TrainConfig,
        method: Method,
        backbone: Backbone,
        store: ImageStore | VectorStore,
        compute: Device,
        cache: TokenCache | None,
        seed: int,
    ) -> None:
        stages = method.stages()
        self.store, self.cache, self.stages = store, cache, stages
        on_images = [stage for stage in stages if stage.needs == "images"]
        if cache is not None:
            check_cacheable(stages, type(method).__name__)
        elif config.shards and stages:
            raise InputError(
                "--train.shards deals out a token cache, and this run has none; leave it out, or name --cache-views, "
                "such as 16+8."
            )
        looks = isinstance(store, ImageStore)  # vectors need no trunk
        compiles = compute.device.type == "cuda" and not config.eager and looks
        views = max((s.views.weak + s.views.strong for s in stages), default=1)
        with torch.random.fork_rng(devices=[]):  # an encoder's first weights depend on the seed alone
            torch.manual_seed(keyed_generator(seed, "encoder").initial_seed())
            self.encoder = Encoder(
                backbone,
                compute,
                method,
                compiled=compiles and cache is None and len(on_images) < max(len(stages), 1),
                compiled_blocks=compiles and bool(on_images),
                images_at_once=views * max(config.batch_size // world_size(), 1),
            )

    def of(self, stage: Stage) -> ViewSource:
        if isinstance(self.store, VectorStore):
            return VectorViews(self.store, self.encoder, stage)
        if self.cache is None or not stage.cacheable:
            return FreshViews(self.store, self.encoder, stage)
        return CachedViews(self.cache, self.encoder, stage)

    def mode(self, epochs: int, cached: str | None = None) -> str:
        """How the run gets its views, as records say it: `exact`, `cached 16+8`, `images`, or each with its epochs.

        epochs: of training. cached: another word for the token cache, where there is one.
        """
        plain = "vectors" if isinstance(self.store, VectorStore) else "exact"
        tokens = (cached or self.cache.mode) if self.cache else plain
        kinds = [tokens if s.cacheable else "images" if s.needs == "images" else plain for s in self.stages]
        modes = [(kind, s.length(epochs)) for kind, s in zip(kinds, self.stages, strict=True)]
        parts = [(mode, sum(n for _, n in same)) for mode, same in groupby(modes, key=itemgetter(0))]
        if len(parts) > 1:
            return ", ".join(f"{mode} {n} epoch{'s' * (n != 1)}" for mode, n in parts)
        return parts[0][0] if parts else tokens


def check_cacheable(stages: Sequence[Stage], method: str) -> None:
    """Refuse a token cache for a method of which no stage draws from it."""
    if stages and not any(stage.cacheable for stage in stages):
        names = " and ".join(stage.name for stage in stages)
        raise InputError(
            f"{method} cannot use cached views: it takes images, or views of its own, in {names}; use --cache-views "
            "off."
        )


def distinct_views(steps: int, n: int, of: int, views: int, generator: torch.Generator) -> Tensor:
    """(steps, views, n): for each step and row, `views` different numbers below `of`, uniformly at random."""
    return torch.rand(steps, n, of, generator=generator).topk(views, dim=-1).indices.transpose(1, 2)


@torch.no_grad()
def evaluation_features(source: ViewSource, rows: Tensor) -> Tensor:
    """(n,) rows -> (n, D) features of the centre crops, in the order of `rows`, on every process."""
    owner, world = source.owner(rows), world_size()
    places = [(owner == process).nonzero().flatten() for process in range(world)]
    own, longest = rows[places[rank()]], max(len(place) for place in places)
    own = torch.cat([own, (own if len(own) else rows)[:1].expand(longest - len(own))])
    parts = [source.centre(part) for part in own.split(source.encoder.chunk)]
    gathered = all_gather_rows(torch.cat(parts))  # the first row of each process, the second of each, ...
    if world == 1:
        return gathered
    features = gathered.new_empty(len(rows), gathered.shape[1])
    for process, place in enumerate(places):
        features[place.to(features.device)] = gathered[process::world][: len(place)]
    return features


def table_features(source: ViewSource, rows: Tensor, n: int) -> Tensor:
    """(n, D) features of a table of n images, of which `rows` can be read; zeros for the others."""
    found = evaluation_features(source, rows)
    features = found.new_zeros(n, found.shape[1])
    features[rows.to(found.device)] = found
    return features


class Prefetcher:
    """Makes host tensors in a thread and copies them to the device on a side stream, ahead of their use.

    All methods are for one thread, the one that trains. On a device without streams there is nothing to overlap
    with: `take` makes the tensor itself.
    """

    def __init__(
        self,
        make: Callable[[Any], Tensor],
        device: torch.device,
        depth: int = 2,
        *,
        thread: bool | None = None,
    ) -> None:
        """make: from a request to a tensor on the CPU. depth: how many results may wait, which bounds memory.

        thread: whether to make them in a thread; by default on CUDA only.
        """
        self.make, self.device, self.depth = make, device, depth
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        threaded = self._stream is not None if thread is None else thread
        # It starts its thread with the first request, and ends it when nobody has this object any more.
        self._pool = ThreadPoolExecutor(1, "holotype-prefetch") if threaded else None
        self._requests: deque[Any] = deque()
        self._coming: deque[Future[tuple[Tensor, torch.cuda.Event | None]]] = deque()

    def expect(self, request: Any) -> None:
        """Queue a request; never blocks."""
        self._requests.append(request)
        self._fill()

    def take(self) -> Tensor:
        """Return the next result on the device, in the order of `expect`; what `make` raised is raised here.

        On CUDA the current stream waits for the copy; the processor does not.
        """
        if not (self._coming or self._requests):
            raise RuntimeError("take() without a request: call expect() first")
        if self._pool is None:
            return self.make(self._requests.popleft()).to(self.device)
        coming = self._coming.popleft()
        self._fill()
        result, copied = coming.result()
        if copied is not None:
            here = torch.cuda.current_stream(self.device)
            here.wait_event(copied)
            # It was allocated on the side stream, which must not reuse it before this one is done with it.
            result.record_stream(here)
        return result

    def drop(self) -> None:
        """Forget what is queued; when this returns, `make` is not running."""
        self._requests.clear()
        for future in self._coming:
            future.cancel()
        wait(self._coming)
        self._coming.clear()

    def _fill(self) -> None:
        """Hand requests to the thread, as many as may wait."""
        while self._pool is not None and self._requests and len(self._coming) < self.depth:
            self._coming.append(self._pool.submit(self._prepare, self._requests.popleft()))

    def _prepare(self, request: Any) -> tuple[Tensor, torch.cuda.Event | None]:
        """In the thread: the result on the device, and the event after which it is there.

        torch keeps page-locked memory for reuse and hands it out again only after the copies from it are done, so a
        few buffers go round without an event of ours. The layout of the tensor (channels last) is kept.
        """
        if self._stream is None:
            return self.make(request).to(self.device), None
        # A thread begins on the first GPU, whichever one the run is on; the stream names the right one.
        with torch.cuda.stream(self._stream):
            made = self.make(request)
            pinned = made if made.is_pinned() else made.pin_memory()
            result = pinned.to(self._stream.device, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(self._stream)
        return result, copied


def to_device(host: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting for it."""
    if device.type != "cuda":
        return host.to(device)
    return host.contiguous().pin_memory().to(device, non_blocking=True)
