"""Times and memory: checked on work whose cost is known."""

from __future__ import annotations

import mmap
import os
import time

import measure
import pytest
import torch
from measure import Peak, Plan, Timing, command, time_call, time_steps

CPU = torch.device("cpu")


def test_steps_are_counted_and_timed() -> None:
    count = 0

    def step() -> None:
        nonlocal count
        time.sleep(0.005)
        count += 1

    timing = time_steps(step, Plan(warmup=2, blocks=4, size=3), CPU)
    assert count == 2 + 4 * 3
    assert timing.steps == 12
    assert 5 <= timing.ms <= timing.slowest_ms
    assert 5 <= timing.mean_ms <= timing.slowest_ms


def test_one_slow_block_moves_the_mean_and_not_the_median() -> None:
    clock = iter([0.0, 1.0, *(x for block in (2, 2, 8, 2, 2) for x in (0.0, float(block)))])
    timing = patched(clock, Plan(1, 5, 2))
    assert timing.ms == 1000.0
    assert timing.mean_ms == pytest.approx(1600.0)
    assert timing.slowest_ms == 4000.0
    assert timing.start_seconds == 0.0  # the warm-up took what a step takes


def test_the_start_is_what_the_warm_up_took_beyond_steady_steps() -> None:
    clock = iter([0.0, 60.0, 0.0, 2.0, 0.0, 2.0])
    assert patched(clock, Plan(3, 2, 4)).start_seconds == 60 - 3 * 0.5


def patched(clock, plan: Plan) -> Timing:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure.time, "perf_counter", lambda: next(clock))
        return time_steps(lambda: None, plan, CPU)


def test_a_run_is_extrapolated_from_the_mean() -> None:
    record = Timing(ms=10.0, mean_ms=12.0, slowest_ms=20.0, start_seconds=3.0, steps=50).record(1000, 64)
    assert record["run_steps"] == 200 * 15
    assert record["extrapolated_seconds"] == 3.0 + 3000 * 0.012
    assert record["images_per_second"] == 6400.0


def test_a_call_is_warmed_up() -> None:
    calls = []
    time_call(lambda: calls.append(0), CPU, repeats=3)
    assert len(calls) == 5


def test_peak_memory_sees_what_was_given_back() -> None:
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("this system does not forget the peak of a process")
    with Peak(CPU) as before:
        pass
    # fresh pages: an allocator may hand out what it has already
    with Peak(CPU) as peak, mmap.mmap(-1, 200_000_000) as fresh:
        for page in range(0, len(fresh), mmap.PAGESIZE):
            fresh[page] = 1
    assert set(peak.record) == {"host_bytes"}
    assert peak.record["host_bytes"] > before.record["host_bytes"] + 150_000_000


def test_facts_name_device_and_versions() -> None:
    found = measure.facts(CPU)
    assert found["torch"] == torch.__version__
    assert "CPU cores" in found["hardware"]


def test_a_command_tells_no_folders() -> None:
    slash = "/"
    words = ["--images", f"{slash}home{slash}me{slash}birds", "--out", "results/speed/x.json"]
    assert command(words) == "python benchmarks/speed.py --images birds --out results/speed/x.json"
