"""The parts of the measurement. Each takes the bench and returns what it found, ready for JSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from holotype.clustering.balanced_kmeans import balanced_kmeans
from holotype.clustering.communities import communities, drop_small_communities
from holotype.clustering.kmeans import semi_supervised_centres
from holotype.clustering.knn import neighbour_graph
from holotype.config.schema import TrainConfig
from holotype.methods.dccl import DCCLConfig
from holotype.methods.selex import FIRST
from holotype.training.encoder import Encoder
from holotype.utils.device import cpu_count
from loops import Bench, cache_record, free, image_stages, measure_loop, measure_together, methods
from measure import Clusters, Effort, Peak, Plan, time_call, time_steps, wait
from reference_style import WORKERS, Arithmetic, ReferenceStyle

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


Row = dict[str, Any]

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
    """Seconds of a call, once it is really done, and what it returned."""
    start = time.perf_counter()
    found = call()
    if device is not None:
        wait(device)
    return time.perf_counter() - start, found


@contextmanager
def one_core() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


METHODS = ("simgcd", "rpc")
Row = dict[str, Any]


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


PARTS: dict[str, Callable[[Bench, Effort], Any]] = {
    "exact": exact,
    "ceilings": ceilings,
    "cached": cached,
    "batch": batch,
    "k": k,
    "together": together,
    "methods": methods,
    "images": images,
    "image_stages": image_stages,
    "reference": reference,
    "clustering": clustering,
}
"""In the order in which they run: exact mode first, which must find nothing compiled yet, and side by side what
shares the cache."""
