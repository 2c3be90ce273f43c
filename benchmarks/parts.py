"""The parts of the measurement: runs through the loop that real runs use, the trunk alone, clustering.

Each part takes the bench and returns what it found, ready for JSON.
"""

from __future__ import annotations

import copy
import gc
import shutil
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from holotype.clustering.communities import communities, drop_small_communities
from holotype.clustering.kmeans import balanced_kmeans, semi_supervised_centres
from holotype.clustering.knn import neighbour_graph
from holotype.config.schema import TrainConfig
from holotype.data.image_store import ImageStore, place_pixels
from holotype.methods import Views
from holotype.methods.dccl import DCCLConfig
from holotype.methods.selex import FIRST
from holotype.models.backbone import Backbone
from holotype.models.token_cache import CacheViews, TokenCache
from holotype.training.build_token_cache import open_cache
from holotype.training.checkpoint import Position
from holotype.training.encoder import Encoder
from holotype.training.interleave import make_stream, on_stream
from holotype.training.loop import Loop
from holotype.training.progress import StopRequest
from holotype.utils.device import cpu_count
from holotype.utils.memory import MemoryConfig, find_budget
from measure import Clusters, Effort, Peak, Plan, Timing, World, combined, time_call, time_steps, wait
from reference_style import WORKERS, Arithmetic, ReferenceStyle

Row = dict[str, Any]

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


SIDES = {"cuda": 8192, "cpu": 1536}
"""Side of the square matrices whose product sets the ceiling."""


def matmul_tflops(device: torch.device, dtype: torch.dtype, side: int, repeats: int = 20) -> float:
    """TFLOP/s of a product of two square matrices of random numbers (zeros run faster than any real data)."""
    generator = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(side, side, device=device, generator=generator).to(dtype) for _ in range(2))
    out = torch.empty_like(a)
    seconds = time_call(lambda: torch.mm(a, b, out=out), device, repeats=repeats)
    return 2 * side**3 / seconds / 1e12


def count_macs(network: nn.Module, images: Tensor) -> int:
    """Multiply-accumulates of a vision transformer on `images`: its linear layers, convolutions and attention.

    Norms, activations and additions are not counted, as is the custom.
    """
    total = 0

    def add(macs: int) -> None:
        nonlocal total
        total += macs

    def linear(layer: nn.Linear, given: tuple[Tensor, ...], out: Tensor) -> None:
        add(out.numel() * layer.in_features)

    def convolution(layer: nn.Conv2d, given: tuple[Tensor, ...], out: Tensor) -> None:
        add(out.numel() * layer.weight[0].numel())

    def attention(layer: Any, given: tuple[Tensor, ...], out: Tensor) -> None:
        batch, tokens = given[0].shape[:2]
        add(2 * batch * tokens**2 * layer.num_heads * layer.head_dim)  # scores, then weighted values

    hooks = []
    for layer in network.modules():
        kind: Callable[..., None] | None = None
        if isinstance(layer, nn.Linear):
            kind = linear
        elif isinstance(layer, nn.Conv2d):
            kind = convolution
        elif hasattr(layer, "num_heads") and hasattr(layer, "head_dim"):
            kind = attention
        if kind is not None:
            hooks.append(layer.register_forward_hook(kind))
    try:
        with torch.no_grad():
            network(images)
    finally:
        for hook in hooks:
            hook.remove()
    return total


def measure_trunk(
    run: Callable[[Tensor], Tensor], macs: int, images: Tensor, repeats: int = 20, side: int | None = None
) -> dict[str, Any]:
    """The trunk alone, as the loop runs it, against the matrix product of the same device and arithmetic.

    run: normalised images (n, 3, S, S) -> tokens; macs: multiply-accumulates of one image.
    """
    device, dtype, views = images.device, images.dtype, len(images)
    with torch.no_grad():
        seconds = time_call(lambda: run(images), device, repeats=repeats)
    reached = 2 * macs * views / seconds / 1e12
    side = side or SIDES.get(device.type, 4096)
    ceiling = matmul_tflops(device, dtype, side, repeats)
    return {
        "views": views,
        "arithmetic": str(dtype).removeprefix("torch."),
        "trunk_ms": round(1e3 * seconds, 3),
        "gmac_per_view": round(macs / 1e9, 3),
        "trunk_tflops": round(reached, 3),
        "matmul_tflops": round(ceiling, 3),
        "matmul_side": side,
        "share": round(reached / ceiling, 3),
    }


RANK = 64
"""Directions in which made features differ."""
SPREAD = 1.35
"""Of a class, against the spread of its centres: five of six neighbours are of one class among CUB's numbers."""
OFFSET = 12.0
"""Length of what all features share, against about 8 of a centre."""
REPEATS = 3
"""Searches for communities, of which the median counts."""


def clustering(bench: Bench, effort: Effort) -> Iterator[Row]:
    """On one core, and on the device."""
    bench.drop()
    yield time_communities(effort.communities)
    yield time_kmeans(effort.kmeans, bench.world.device)
    yield time_balanced(effort.communities, bench.world.device)


def time_communities(size: Clusters) -> Row:
    """Graph and communities, as DCCL finds its concepts between epochs, on one core."""
    c = DCCLConfig()
    features, label = made_features(size)
    with one_core():
        graph_seconds, graph = clocked(
            lambda: neighbour_graph(features, label, c.neighbours, c.least_similarity, c.edges)
        )
        found = [clocked(partial(communities, graph, seed)) for seed in range(REPEATS)]
    search_seconds = median(seconds for seconds, _ in found)
    concepts = drop_small_communities(found[0][1], c.smallest)
    return {
        "what": "communities",
        "where": "1 CPU core",
        "images": size.images,
        "dim": size.dim,
        "k": size.classes,
        "detail": f"{graph.nnz:,} links, {int(concepts.max(initial=-1)) + 1:,} communities",
        "graph_seconds": round(graph_seconds, 3),
        "search_seconds": round(search_seconds, 3),
        "seconds": round(graph_seconds + search_seconds, 3),
    }


def time_balanced(size: Clusters, device: torch.device) -> Row:
    """A level of SelEx's clusters as its first epoch finds them, where the features lie on the device."""
    features, label = (given.to(device) for given in made_features(size))
    cluster = partial(balanced_kmeans, features, features[: size.classes], label, iterations=FIRST)
    found = [clocked(cluster, device)[0] for _ in range(REPEATS)]
    return {
        "what": "balanced k-means",
        "where": torch.cuda.get_device_name(device) if device.type == "cuda" else cores(),
        "images": size.images,
        "dim": size.dim,
        "k": size.classes,
        "detail": f"{FIRST} iterations",
        "seconds": round(median(found), 4),
    }


def time_kmeans(size: Clusters, device: torch.device) -> Row:
    """The clustering that ends GCD, DCCL and PromptCAL, where the features lie on the device."""
    torch.set_float32_matmul_precision(TrainConfig().matmul)  # as in a run
    features, label = (given.to(device) for given in made_features(size))
    draw = torch.Generator().manual_seed(0)
    cluster = partial(
        semi_supervised_centres, features, label, size.classes, n_init=size.starts, generator=draw
    )
    wait(device)
    with Peak(device) as peak:
        seconds, _ = clocked(cluster, device)
    del features, label, cluster
    free()
    return {
        "what": "semi-supervised k-means",
        "where": torch.cuda.get_device_name(device) if device.type == "cuda" else cores(),
        "images": size.images,
        "dim": size.dim,
        "k": size.classes,
        "detail": f"{size.starts} start{'s' * (size.starts != 1)}",
        "seconds": round(seconds, 3),
        **peak.record,
    }


def cores() -> str:
    n = min(cpu_count(), torch.get_num_threads())
    return f"{n} CPU core{'s' * (n != 1)}"


def made_features(size: Clusters) -> tuple[Tensor, Tensor]:
    """(N, D) features, and (N,) class, -1 = unlabelled: half of the classes are known, and half of their images
    labelled."""
    draw = torch.Generator().manual_seed(0)
    known = torch.arange(size.images) % size.classes
    centres = torch.randn(size.classes, RANK, generator=draw)
    noise = torch.randn(size.images, RANK, generator=draw)
    turned = torch.randn(RANK, size.dim, generator=draw) / size.dim**0.5
    shared = torch.nn.functional.normalize(torch.randn(size.dim, generator=draw), dim=0)
    features = (centres[known] + SPREAD * noise) @ turned + OFFSET * shared
    labelled = (known < max(size.classes // 2, 1)) & (torch.rand(size.images, generator=draw) < 0.5)
    return features, torch.where(labelled, known, -1)


def clocked(call: Callable[[], Any], device: torch.device | None = None) -> tuple[float, Any]:
    """Seconds of a call, once it is really done, and what it returned; of the processor where one core does it all,
    whoever else it works for."""
    alone = (device is None or device.type == "cpu") and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    start = clock()
    found = call()
    if device is not None:
        wait(device)
    return clock() - start, found


@contextmanager
def one_core() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


METHODS = ("simgcd", "rpc")


def ceilings(bench: Bench, effort: Effort) -> Row:
    """The trunk alone on the weak views of a batch, as a training step runs it."""
    world = bench.world
    on_cpu = world.backbone()  # uncompiled, and counted before it moves
    macs = count_macs(on_cpu.trunk, torch.zeros(1, 3, world.image_size, world.image_size))
    encoder = Encoder(
        on_cpu, world.compute(), compiled=world.device.type == "cuda", images_at_once=2 * world.batch
    )
    generator = torch.Generator(world.device).manual_seed(0)
    shape = (encoder.chunk, 3, world.image_size, world.image_size)
    images = torch.randn(shape, device=world.device, generator=generator).to(encoder.trunk_dtype)
    found = measure_trunk(encoder.trunk, macs, images, effort.repeats)
    del encoder, on_cpu
    free()
    return found


def reference(bench: Bench, effort: Effort) -> Iterator[Row]:
    """(a) in fp32, and in fp16 on a GPU."""
    bench.drop()
    kinds: tuple[Arithmetic, ...] = ("fp32", "fp16") if bench.world.device.type == "cuda" else ("fp32",)
    for method in METHODS:
        for arithmetic in kinds:
            yield reference_row(bench, effort.reference, method, arithmetic)


def reference_row(bench: Bench, plan: Plan, method: str, arithmetic: Arithmetic) -> Row:
    world = bench.world
    torch.set_float32_matmul_precision("highest")  # no TF32
    model, workers = world.model(), min(WORKERS, cpu_count())
    learner = world.method(method, int(model.num_features))
    # more than the plan takes, so that the loader is not running dry while it is measured
    steps = plan.steps + 2 * workers
    with Peak(world.device) as peak:
        training = ReferenceStyle(
            learner,
            model,
            world.table(),
            world.image_size,
            world.batch,
            world.device,
            arithmetic=arithmetic,
            steps=steps,
            workers=workers,
        )
        timing = time_steps(training.step, plan, world.device)
        training.close()
    n = len(world.paths)
    facts = {"pipeline": "reference style", "method": method, "arithmetic": arithmetic, "workers": workers}
    facts |= {"images": n, "batch": world.batch, "k": world.k}
    del training, model, learner
    free()
    return {**facts, **timing.record(n, world.batch), **peak.record}


def exact(bench: Bench, effort: Effort) -> Iterator[Row]:
    """(b)"""
    for method in METHODS:
        yield measure_loop(bench, method, effort.exact, bench.store())


def cached(bench: Bench, effort: Effort) -> Iterator[Row]:
    """(c)"""
    for method in METHODS:
        yield measure_loop(bench, method, effort.cached, bench.store(), bench.cache())


def batch(bench: Bench, effort: Effort) -> Iterator[Row]:
    """Growth with the batch: half, once and twice."""
    whole = bench.world.batch
    sizes = [size for size in (whole // 2, whole, 2 * whole) if 0 < size <= len(bench.world.paths)]
    for size in sizes:
        yield measure_loop(bench, "simgcd", effort.cached, bench.store(), bench.cache(), batch=size)
    if effort.exact_growth:
        for size in sizes:
            yield measure_loop(bench, "simgcd", effort.exact, bench.store(), batch=size)


def k(bench: Bench, effort: Effort) -> Iterator[Row]:
    """Growth with the number of categories."""
    for method in METHODS:
        for count in effort.ks:
            yield measure_loop(bench, method, effort.cached, bench.store(), bench.cache(), k=count)


def together(bench: Bench, effort: Effort) -> Iterator[Row]:
    """Several runs at once on one cache."""
    for method in METHODS:
        for runs in effort.runs:
            yield measure_together(bench, method, effort.together, runs)


def images(bench: Bench, effort: Effort) -> Iterator[Row]:
    """Growth with the number of images: bytes of store and cache, seconds to fill them, step time."""
    whole = len(bench.world.paths)
    sizes = sorted({max(whole // share, bench.world.batch) for share in (4, 2, 1)}, reverse=True)
    for n in sizes:
        if n == whole:
            store, cache = bench.store(), bench.cache()
            seconds = bench.costs["store"]["seconds"]
        else:
            store, seconds, _ = bench.decode(n)
            cache = bench.open(store)
        row = measure_loop(bench, "simgcd", effort.cached, store, cache)
        row |= {"store_bytes": store.nbytes, "decode_seconds": round(seconds, 2)}
        yield {**row, "cache": cache_record(cache, n)}
        del store, cache
        bench.drop()


def views(bench: Bench, effort: Effort) -> Iterator[Row]:
    """Growth with the cached views of an image: bytes of the cache, seconds to fill it, step time."""
    bench.drop_cache()
    for kept in effort.views:
        part = replace(bench, views=kept, costs={})
        row = measure_loop(part, "simgcd", effort.cached, bench.store(), part.cache())
        yield {**row, "cache": part.costs["cache"]}
        part.drop_cache()


def growth(bench: Bench, effort: Effort) -> Iterator[Row]:
    """k-means of made features: growth with the number of images, then with that of categories."""
    bench.drop()
    fixed = effort.ks[1]
    sizes = [(images, fixed) for images in effort.grown]
    sizes += [(effort.grown[-2], classes) for classes in effort.ks if classes != fixed]
    for images, classes in sizes:
        yield time_kmeans(Clusters(images, RANK, classes), bench.world.device)


PARTS: dict[str, Callable[[Bench, Effort], Any]] = {
    "exact": exact,
    "ceilings": ceilings,
    "cached": cached,
    "batch": batch,
    "k": k,
    "together": together,
    "methods": methods,
    "images": images,
    "views": views,
    "image_stages": image_stages,
    "reference": reference,
    "clustering": clustering,
    "growth": growth,
}
"""In the order in which they run: exact mode first, which must find nothing compiled yet, and side by side what
shares the cache."""
