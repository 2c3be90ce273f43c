"""The parts of the measurement. Each takes the bench and returns what it found, ready for JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from ceilings import count_macs, measure_trunk
from cluster_parts import clustering
from effort import Effort
from measure import Peak, Plan, time_steps
from method_parts import image_stages, methods
from ours import Bench, cache_record, free, measure_loop, measure_together
from reference_style import WORKERS, Arithmetic, ReferenceStyle

from holotype.machine.device import processors
from holotype.training.encode import Encoder

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
    model, workers = world.model(), min(WORKERS, processors())
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
