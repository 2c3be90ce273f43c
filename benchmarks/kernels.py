"""Where the time of a step goes: the kernels of the stages that train on images, and of SimGCD in exact mode.

    python benchmarks/kernels.py --arch vit_small_patch14_224

Prints for each stage the time of a step by the clock while it is watched (which takes longer than one that is not),
the time that the device computes in it, and the kernels that take most of that. Where the device computes much less
than the clock says, it waits for the host. On a CPU the operators stand for kernels.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from holotype.training.progress import StopRequest
from holotype.utils.device import cpu_count, pick_device
from loops import SETTINGS, Bench, free, make_loop
from measure import EMBEDDED_SIZE, Plan, World, make_photographs, one_sentence, script_parser, wait

TURN = 20
"""Steps of SPTNet's prompt, and then of its network."""


@dataclass(frozen=True)
class Watched:
    """A stage, and the steps before it is watched."""

    name: str
    method: str
    stage: int
    warmup: int
    settings: Mapping[str, Any] = field(default_factory=dict)


STAGES = (
    Watched("SPTNet, prompt learns", "sptnet", 1, 2 * TURN - 1, {**SETTINGS["sptnet"], "turn": TURN}),
    Watched("SPTNet, network learns", "sptnet", 1, 3 * TURN - 1, {**SETTINGS["sptnet"], "turn": TURN}),
    Watched("PromptCAL, first stage", "promptcal", 0, 12),
    Watched("SimGCD, exact", "simgcd", 0, 12),
)


@dataclass(frozen=True)
class Times:
    """Milliseconds of a step."""

    clock: float
    device: float
    kernels: list[tuple[float, float, str]]
    """Milliseconds, calls and name of each, the longest first."""

    def lines(self, most: int) -> list[str]:
        return [f"{ms:9.3f} ms {calls:6.1f} x  {name[:90]}" for ms, calls, name in self.kernels[:most]]


def watch(bench: Bench, one: Watched, steps: int) -> Times:
    """Some steps of a stage under the profiler."""
    torch.compiler.reset()
    device = bench.world.device
    loop = make_loop(
        bench,
        one.method,
        Plan(one.warmup, 1, steps),
        bench.store(),
        settings=dict(one.settings),
        stage=one.stage,
    )
    training = loop.training(StopRequest())
    for _ in range(one.warmup):
        next(training)
    wait(device)
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]) as seen:
        start = time.perf_counter()
        for _ in range(steps):
            next(training)
        wait(device)
        clock = time.perf_counter() - start
    training.close()
    del loop, training
    free()
    events = [e for e in seen.key_averages() if not on_gpu or e.device_type != DeviceType.CPU]
    spent = [(e.self_device_time_total if on_gpu else e.self_cpu_time_total, e.count, e.key) for e in events]
    kernels = sorted(((us / 1e3 / steps, n / steps, name) for us, n, name in spent if us), reverse=True)
    return Times(1e3 * clock / steps, sum(ms for ms, _, _ in kernels), kernels)


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--arch", default="embedded", help="timm's name of the network (default: embedded)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10, help="that are watched")
    parser.add_argument("--most", type=int, default=25, help="kernels that are told of each stage")
    given = parser.parse_args(words)
    device = torch.device(pick_device(given.device))
    size = EMBEDDED_SIZE if given.arch == "embedded" else 224
    with tempfile.TemporaryDirectory(prefix="holotype-kernels-") as scratch:
        made = make_photographs(Path(scratch) / "photographs", given.images, threads=cpu_count())
        bench = Bench(
            World(made.paths, given.arch, size, given.batch, 200, device), "4+2", Path(scratch) / "cache"
        )
        for one in STAGES:
            times = watch(bench, one, given.steps)
            print(f"{one.name}: {times.clock:.1f} ms by the clock, {times.device:.1f} ms on the device")
            print("\n".join(times.lines(given.most)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
