"""How times and memory are taken, the same way for everything that is compared.

A GPU works behind the program's back, so that clocks are read only after waiting for it, and only between
blocks of steps: waiting after every step would itself cost what it measures.
"""

from __future__ import annotations

import os
import platform
import resource
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from holotype.machine.device import processors
from holotype.runs.provenance import commit, hardware

EPOCHS = 200
"""Epochs of the run that step times are extrapolated to; what the methods' papers train."""


@dataclass(frozen=True)
class Plan:
    """How many steps are run, and how many of them count."""

    warmup: int
    blocks: int
    size: int
    """Steps of a block; the clock is read between blocks."""

    @property
    def steps(self) -> int:
        """In all."""
        return self.warmup + self.blocks * self.size


@dataclass(frozen=True)
class Timing:
    """What a step costs."""

    ms: float
    """Median over the blocks, in milliseconds a step."""
    mean_ms: float
    """Mean over all steps: it holds the turns of epochs, which the median leaves out."""
    slowest_ms: float
    """The slowest block."""
    start_seconds: float
    """What the warm-up took beyond as many steady steps: compilation, capture, first reads."""
    steps: int
    """Steps that count."""

    def record(self, images: int, batch: int) -> dict[str, Any]:
        """The figures of a run over `images` images: 200 epochs of full batches, extrapolated."""
        steps = EPOCHS * (images // batch)
        return {
            **{key: round(value, 4) for key, value in asdict(self).items()},
            "images_per_second": round(1e3 * batch / self.ms, 1),
            "run_steps": steps,
            "extrapolated_seconds": round(self.start_seconds + steps * self.mean_ms / 1e3, 1),
        }


def wait(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_steps(step: Callable[[], object], plan: Plan, device: torch.device) -> Timing:
    """Run `step` through the plan."""
    wait(device)
    start = time.perf_counter()
    for _ in range(plan.warmup):
        step()
    wait(device)
    warm = time.perf_counter() - start
    blocks = []
    for _ in range(plan.blocks):
        start = time.perf_counter()
        for _ in range(plan.size):
            step()
        wait(device)
        blocks.append((time.perf_counter() - start) / plan.size)
    steady = median(blocks)
    return Timing(
        ms=1e3 * steady,
        mean_ms=1e3 * mean(blocks),
        slowest_ms=1e3 * max(blocks),
        start_seconds=max(warm - plan.warmup * steady, 0.0),
        steps=plan.blocks * plan.size,
    )


def combined(timings: Sequence[Timing], start_seconds: float = 0.0) -> Timing:
    """What time_steps would say of blocks that were timed one by one, between others."""
    return Timing(
        ms=median(timing.ms for timing in timings),
        mean_ms=mean(timing.mean_ms for timing in timings),
        slowest_ms=max(timing.slowest_ms for timing in timings),
        start_seconds=start_seconds,
        steps=sum(timing.steps for timing in timings),
    )


def time_call(call: Callable[[], object], device: torch.device, *, repeats: int) -> float:
    """Median seconds of a call, each one waited for; twice unmeasured first."""
    seconds = []
    for _ in range(repeats + 2):
        wait(device)
        start = time.perf_counter()
        call()
        wait(device)
        seconds.append(time.perf_counter() - start)
    return median(seconds[2:])


class Peak:
    """The most memory in use between entering and leaving, of the GPU and of this process on the host."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.record: dict[str, int] = {}
        """`host_bytes`, and `device_bytes` on a GPU; filled on leaving."""

    def __enter__(self) -> Peak:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        # Linux forgets the peak of a process on request; elsewhere it is that of the whole life.
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        return self

    def __exit__(self, *_: object) -> None:
        self.record["host_bytes"] = _peak_resident()
        if self.device.type == "cuda":
            self.record["device_bytes"] = torch.cuda.max_memory_allocated(self.device)


def _peak_resident() -> int:
    """Bytes; worker processes of a loader are not in it."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM:")).split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def facts(device: torch.device) -> dict[str, Any]:
    """What stands beside every figure."""
    return {
        "hardware": hardware(device),
        "device": device.type,
        "cores": processors(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "timm": version("timm"),
        "torchvision": version("torchvision"),
        "commit": commit(),
        "load": _load(),
    }


def _load() -> float | None:
    """Programs that kept processors busy in the last minute, this one included; None where nobody counts."""
    try:
        return round(os.getloadavg()[0], 1)
    except (OSError, AttributeError):
        return None


def command(words: Sequence[str], script: str = "speed.py") -> str:
    """The command line, with whole paths shortened to names: where files lay is nobody's business."""
    told = [Path(word).name if Path(word).is_absolute() else word for word in words]
    return shlex.join(["python", f"benchmarks/{script}", *told])
