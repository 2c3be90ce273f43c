"""The parts about all methods: a step of each on cached tokens, and the stages that train on images."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from effort import Effort
from measure import Peak, Plan, Timing, combined, time_steps, wait
from ours import LR, NEVER, Bench, describe, free, make_loop, measure_loop

from holotype.training.progress import StopRequest

Row = dict[str, Any]

TOKEN_METHODS = ("simgcd", "debgcd", "rpc", "gcd", "rs", "uno", "protogcd", "dccl")
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
        return measure_loop(bench, name, effort.methods, store, cache, settings=SETTINGS.get(name))

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
