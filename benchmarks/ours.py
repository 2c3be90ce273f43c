"""Holotype's own training, measured through the loop that real runs use: exact mode and token cache."""

from __future__ import annotations

import copy
import gc
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import Peak, Plan, Timing, time_steps
from world import World

from holotype.data.placement import place
from holotype.data.store import ImageStore
from holotype.machine.memory import MemoryConfig, find_budget
from holotype.methods import Views
from holotype.models.backbone import Backbone
from holotype.models.cache import CacheViews, TokenCache
from holotype.training.caching import open_cache
from holotype.training.config import TrainConfig
from holotype.training.journal import Position
from holotype.training.loop import Loop
from holotype.training.progress import StopRequest
from holotype.training.turns import make_stream, on_stream

NEEDS = Views(weak=2, strong=1)
"""The views of the most demanding method measured (RPC)."""
NEVER = 10**9
LR = 1e-3


@dataclass
class Bench:
    """Store, network and cache, made when first asked for and shared by the measurements."""

    world: World
    views: str
    """Cached views per image, as in `--cache-views`."""
    scratch: Path
    costs: dict[str, Any] = field(default_factory=dict)
    """What is paid once: seconds and bytes of the store and of the cache."""
    _store: ImageStore | None = None
    _cache: TokenCache | None = None
    _backbone: Backbone | None = None
    """On the CPU, as it was built: what is measured gets copies."""

    def decode(self, n: int) -> tuple[ImageStore, float, str]:
        """The first n photographs, placed; seconds; where they lie."""
        budget, start = find_budget(MemoryConfig(), self.world.device), time.perf_counter()
        store = ImageStore.decode(self.world.paths[:n], self.world.image_size, progress=False)
        store, line = place(store, self.world.device, "auto", budget, self.scratch)
        return store, time.perf_counter() - start, line

    def store(self) -> ImageStore:
        if self._store is None:
            self._store, seconds, line = self.decode(len(self.world.paths))
            self.costs["store"] = {
                "images": len(self._store),
                "bytes": self._store.nbytes,
                "seconds": round(seconds, 2),
                "line": line,
            }
        return self._store

    def backbone(self) -> Backbone:
        """A copy of its own for every measurement: training changes the tail, and compilation the trunk."""
        if self._backbone is None:
            self._backbone = self.world.backbone()
        return copy.deepcopy(self._backbone)

    def open(self, store: ImageStore) -> TokenCache:
        """The token cache of a store's images, built anew: nothing is kept from an earlier run."""
        # A CPU run keeps its cache in a file, which the next one of the same images would find.
        kept = self.scratch / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        memory = MemoryConfig(cache_dir=str(kept) if self.world.device.type == "cpu" else None)
        wanted, usable = CacheViews.parse(self.views), torch.arange(len(store))
        compute, backbone = self.world.compute(), self.backbone()
        return open_cache(wanted, NEEDS, store, backbone, compute, usable, memory)

    def cache(self) -> TokenCache:
        if self._cache is None:
            self._cache = self.open(self.store())
            self.costs["cache"] = cache_record(self._cache, len(self.store()))
        return self._cache

    def drop(self) -> None:
        """Give store and cache back, so that what is measured next has the memory to itself."""
        self._store = None
        self.drop_cache()

    def drop_cache(self) -> None:
        """The same for what needs the images alone."""
        self._cache = None
        free()


def cache_record(cache: TokenCache, images: int) -> dict[str, Any]:
    return {
        "mode": cache.mode,
        "images": images,
        "bytes": cache.nbytes,
        "seconds": round(cache.seconds, 2),
        "level": cache.level,
    }


def free() -> None:
    """Give memory back that nothing refers to any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def make_loop(
    bench: Bench,
    method: str,
    plan: Plan,
    store: ImageStore,
    cache: TokenCache | None = None,
    *,
    k: int | None = None,
    batch: int | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    stage: int = 0,
) -> Loop:
    """The loop of a run as `holotype train` makes it, without scoring and saving.

    settings: of the method, where they are not its defaults. stage: that it starts with, the weights being as they are.
    """
    world, n = bench.world, len(store)
    batch, backbone = batch or world.batch, bench.backbone()
    epochs = max(world.epochs, plan.steps // max(n // batch, 1) + 1)  # enough of them for the plan
    # a small rate: random networks must not end a measurement with a loss that is no number
    config = TrainConfig(epochs=epochs, batch_size=batch, lr=LR, eval_every=NEVER, save_seconds=NEVER)
    torch.set_float32_matmul_precision(config.matmul)
    learner, table = world.method(method, backbone.dim, n, k, settings), world.table(n, k)
    loop = Loop(config, learner, backbone, store, table, world.compute(), seed=seed, cache=cache)
    loop.position = Position(stage=stage)
    return loop


def describe(loop: Loop, method: str) -> dict[str, Any]:
    """What was measured."""
    return {
        "pipeline": loop.mode,
        "method": method,
        "arithmetic": "bf16" if loop.device.type == "cuda" else "fp32",
        "captured": loop.step is not None and loop.step.captured is not None,
        "images": len(loop.table),
        "batch": loop.config.batch_size,
        "k": loop.method.task.k,
    }


def measure_loop(
    bench: Bench,
    method: str,
    plan: Plan,
    store: ImageStore,
    cache: TokenCache | None = None,
    *,
    k: int | None = None,
    batch: int | None = None,
    settings: Mapping[str, Any] | None = None,
    stage: int = 0,
) -> dict[str, Any]:
    """Step time of one run, in the stage of this number."""
    with Peak(bench.world.device) as peak:
        loop = make_loop(bench, method, plan, store, cache, k=k, batch=batch, settings=settings, stage=stage)
        training = loop.training(StopRequest())
        timing = time_steps(partial(next, training), plan, bench.world.device)
        training.close()
    facts = describe(loop, method)
    del loop, training
    free()
    return {**facts, **timing.record(facts["images"], facts["batch"]), **peak.record}


def measure_together(bench: Bench, method: str, plan: Plan, runs: int) -> dict[str, Any]:
    """Time of one step of each of several runs on one cache, which take turns as in `holotype bench --parallel`."""
    store, cache = bench.store(), bench.cache()
    with Peak(bench.world.device) as peak:
        loops = [make_loop(bench, method, plan, store, cache, seed=seed) for seed in range(runs)]
        timing = time_rounds(loops, plan, bench.world.device)
    facts = {**describe(loops[0], method), "runs": runs}
    del loops
    free()
    return {**facts, **timing.record(facts["images"], facts["batch"]), **peak.record}


def time_rounds(loops: list[Loop], plan: Plan, device: torch.device) -> Timing:
    """A "step" here is one step of every loop, each on a stream of its own."""
    turns = [(loop.training(StopRequest()), make_stream(device)) for loop in loops]

    def round_of_steps() -> None:
        for training, stream in turns:
            with on_stream(stream):
                next(training)

    timing = time_steps(round_of_steps, plan, device)
    for training, _ in turns:
        training.close()
    return timing
