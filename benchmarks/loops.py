"""Holotype's own training, measured through the loop that real runs use: exact mode and token cache."""

from __future__ import annotations

import copy
import gc
import shutil
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from holotype.config.schema import TrainConfig
from holotype.data.image_store import ImageStore, place_pixels
from holotype.methods import Views
from holotype.models.backbone import Backbone
from holotype.models.token_cache import CacheViews, TokenCache
from holotype.training.build_token_cache import open_cache
from holotype.training.checkpoint import Position
from holotype.training.interleave import make_stream, on_stream
from holotype.training.loop import Loop
from holotype.training.progress import StopRequest
from holotype.utils.memory import MemoryConfig, find_budget
from measure import Effort, Peak, Plan, Timing, World, combined, time_steps, wait

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
        store, line = place_pixels(store, self.world.device, "auto", budget, self.scratch)
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
        "captured": loop.current.step.captured is not None,
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


Row = dict[str, Any]

WRAPPED = {"eagc+simgcd": 1, "eagc+selex": 1, "bia+simgcd": 0, "hyp+simgcd": 0}
"""Compositions, and the stage of each that takes the time."""
TOKEN_METHODS = ("simgcd", "debgcd", "rpc", "gcd", "rs", "uno", "protogcd", "dccl", "selex", *WRAPPED)
"""All whose stages take tokens, and which can so draw from a cache."""
SETTINGS: dict[str, dict[str, Any]] = {
    "dccl": {"recluster": NEVER},
    "sptnet": {"prompt_lr": LR, "model_lr": LR},
}
"""Other than the defaults. DCCL searches concepts once, before the steps that count: its search is a figure of its own.
Rates are small, as everywhere here."""
KINDS = ("network learns", "prompt learns")
"""The two kinds of step that take turns in SPTNet's second stage, in the order of the blocks that count."""


def methods(bench: Bench, effort: Effort) -> Iterator[Row]:
    """A cached step of every method that takes tokens, with its default settings."""

    def measured(name: str) -> Row:
        store, cache = bench.store(), bench.cache()
        settings, stage = SETTINGS.get(name), WRAPPED.get(name, 0)
        return measure_loop(bench, name, effort.methods, store, cache, settings=settings, stage=stage)

    return each((partial(measured, name) for name in TOKEN_METHODS), bench)


def image_stages(bench: Bench, effort: Effort) -> Iterator[Row]:
    """The stages in which images go through the whole network with gradient."""
    bench.drop_cache()  # the peaks are to be those of the stages
    plan = effort.image_stages
    measurements = [
        lambda: measure_turns(bench, plan),
        lambda: [measure_stage(bench, "promptcal", plan, 0)],
        lambda: [measure_stage(bench, "promptcal", plan, 1)],
    ]
    for rows in each(measurements, bench):
        yield from rows


def each(measurements: Iterable[Callable[[], Any]], bench: Bench) -> Iterator[Any]:
    """What they return, one by one. One that fails is told and does not end the others, but the part has failed."""
    failure: RuntimeError | None = None
    for measure in measurements:
        try:
            found = measure()
        except RuntimeError as error:  # out of memory, a kernel that failed
            traceback.print_exc()
            failure = error.with_traceback(None)  # its frames would keep the memory
            bench.drop()
            continue
        yield found
    if failure is not None:
        raise failure


def measure_stage(bench: Bench, name: str, plan: Plan, stage: int) -> Row:
    """The stage of this number of a method, all of whose steps are alike."""
    torch.compiler.reset()  # blocks are compiled for so many uses at most, and a run has them for itself
    row = measure_loop(bench, name, plan, bench.store(), settings=SETTINGS.get(name), stage=stage)
    return {**row, "pipeline": "images", "stage": ("first stage", "second stage")[stage]}


def measure_turns(bench: Bench, plan: Plan) -> list[Row]:
    """SPTNet's second stage: the steps of the network and those of the prompt, apart. A block is a turn."""
    turn = plan.size
    # the first turn is a step short; then each kind has one turn that does not count
    whole = Plan(3 * turn - 1, 2 * plan.blocks, turn)
    torch.compiler.reset()
    settings = {**SETTINGS["sptnet"], "turn": turn}
    loop = make_loop(bench, "sptnet", whole, bench.store(), settings=settings, stage=1)
    training = loop.training(StopRequest())
    warm, turns = time_turns(partial(next, training), whole, bench.world.device)
    training.close()
    facts = describe(loop, "sptnet") | {"pipeline": "images"}
    del loop, training
    free()
    rows = []
    for kind, found in turns.items():
        timing = combined([timing for timing, _ in found], warm)
        memory = {name: max(peak[name] for _, peak in found) for name in found[0][1]}
        record = timing.record(facts["images"], facts["batch"])
        rows.append({**facts, "stage": f"second stage, {kind}", **record, **memory})
    return rows


def time_turns(
    step: Callable[[], object], plan: Plan, device: torch.device
) -> tuple[float, dict[str, list[tuple[Timing, dict[str, int]]]]]:
    """Seconds of the start, and of both kinds of step the time and the peak of memory of each of its turns."""
    start = time.perf_counter()
    for _ in range(plan.warmup):
        step()
    wait(device)
    warm = time.perf_counter() - start
    found: dict[str, list[tuple[Timing, dict[str, int]]]] = {kind: [] for kind in KINDS}
    for number in range(plan.blocks):
        with Peak(device) as peak:
            timing = time_steps(step, Plan(0, 1, plan.size), device)
        found[KINDS[number % 2]].append((timing, peak.record))
    network, prompt = (median(timing.ms for timing, _ in found[kind]) / 1e3 for kind in KINDS)
    return max(warm - plan.size * network - (plan.warmup - plan.size) * prompt, 0.0), found
