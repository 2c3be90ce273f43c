"""Device and arithmetic of a run: CPU or GPU, precision, threads."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

from holotype.config.parse import DEVICE_NAMES, is_device_name
from holotype.errors import InputError
from holotype.utils.console import progress_bar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Precision = Literal["fp32", "bf16", "fp64"]
"""fp32 and fp64 throughout; bf16: the frozen trunk in it, the tail under autocast, heads and losses in fp32."""


@dataclass(frozen=True)
class Device:
    """One process's device, and the arithmetic of the backbone on it."""

    device: torch.device
    precision: Precision

    @classmethod
    def on(cls, name: str = "auto", precision: Precision | None = None) -> Device:
        """Return the device that is asked for, as in --device; without a precision the usual one of the device."""
        import torch

        from holotype.utils.distributed import local_rank, world_size

        where = pick_device(name)
        if where == "mps" and precision == "fp64":
            raise InputError("--device mps has no double precision; use fp32, or --device cpu.")
        if where == "cuda":  # each process of a machine has a GPU of its own
            where = f"cuda:{local_rank()}" if world_size() > 1 else f"cuda:{torch.cuda.current_device()}"
        return cls(torch.device(where), precision or default_precision(where))

    @property
    def dtype(self) -> torch.dtype:
        """Of the tail's weights, of heads and losses."""
        import torch

        return torch.float64 if self.precision == "fp64" else torch.float32

    @property
    def trunk_dtype(self) -> torch.dtype:
        """Of the frozen blocks."""
        import torch

        return torch.bfloat16 if self.precision == "bf16" else self.dtype

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Around the tail."""
        import torch

        if self.precision != "bf16":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)


def pick_device(name: str) -> str:
    """Return the name of a device. auto: CUDA, else the CPU. One that is absent is an error, not a silent CPU."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if not is_device_name(name):
        raise InputError(f"--device {name} is unknown; use {DEVICE_NAMES}.")
    kind, _, number = name.partition(":")
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    gpus = torch.cuda.device_count()
    if not available[kind] or (number and int(number) >= gpus):
        raise InputError(f"--device {name} is not available here, where {gpus} GPUs are; use cpu or auto.")
    return name


def default_precision(where: str) -> Precision:
    """Return bf16 on CUDA, fp32 elsewhere: CPUs without bf16 units are ten times slower in it."""
    return "bf16" if where.startswith("cuda") else "fp32"


_largest_thread_count: int | None = None
"""What a process that shares its machine with others of its kind was told."""


def limit_threads(most: int) -> None:
    """Let this process use no more than so many, as one of several workers on a machine."""
    global _largest_thread_count
    _largest_thread_count = most


def cpu_count() -> int:
    """Return the processors that this process may use."""
    return min(_all_cpus(), _largest_thread_count or _all_cpus())


MANY_CPUS = 16
"""Processors from which on threads seldom wait for other programs."""


def busy_elsewhere(seconds: float = 0.2) -> float:
    """Return how many processors other programs keep busy at this moment; 0 where the system does not say."""

    def busy() -> float:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, *interrupts = map(int, file.readline().split()[1:8])
        used = (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")
        return used - sum(os.times()[:4])

    try:
        before, since = busy(), time.monotonic()
        time.sleep(seconds)
        return max(busy() - before, 0.0) / (time.monotonic() - since)
    except (OSError, ValueError):
        return 0.0


def threads_remark(device: torch.device) -> str:
    """Return a sentence where threads of this process and other programs fight over processors; "" elsewhere."""
    import torch

    threads, cpus = torch.get_num_threads(), _all_cpus()
    if device.type != "cpu" or threads < 2 or cpus > MANY_CPUS or (others := busy_elsewhere()) < 0.5:
        return ""
    return (
        f"Other programs keep {others:.1f} of the {cpus} processors busy, and {threads} threads would wait for each "
        "other; with OMP_NUM_THREADS=1 a step may be several times faster."
    )


def _all_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_ahead(items: Iterator[T], depth: int = 1) -> Iterator[T]:
    """Yield what an iterator yields, made in a thread, so many of them before they are asked for."""
    done = object()
    with ThreadPoolExecutor(1) as pool:
        coming = deque([pool.submit(next, items, done) for _ in range(depth + 1)])
        try:
            while (item := coming.popleft().result()) is not done:
                coming.append(pool.submit(next, items, done))
                yield item  # type: ignore[misc]
        finally:
            for future in coming:
                future.cancel()


def thread_map(
    function: Callable[[str], T], items: Sequence[str], title: str, progress: bool, threads: int | None = None
) -> Iterator[T]:
    """Yield function(item) for all items in their order, worked out in threads, with a bar on the terminal.

    threads: as many as there are processors unless given. Few results wait to be taken, however many items there are.
    """
    count = threads or cpu_count()
    ahead: deque[Future[T]] = deque()
    waiting = iter(items)
    with (
        progress_bar(title, len(items), progress and bool(items)) as advance,
        ThreadPoolExecutor(count) as pool,
    ):
        while True:
            for item in islice(waiting, 4 * count - len(ahead)):
                ahead.append(pool.submit(function, item))
            if not ahead:
                return
            yield ahead.popleft().result()
            advance(1)
