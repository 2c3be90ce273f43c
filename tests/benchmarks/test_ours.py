"""Holotype's own training, measured: the real loop, as many steps as the plan says, in both modes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from measure import Plan
from ours import Bench, measure_loop, measure_together

from holotype.training.loop import Loop

PLAN = Plan(warmup=2, blocks=2, size=2)


@pytest.fixture
def bench(world, tmp_path: Path) -> Bench:
    return Bench(world, "3+2", tmp_path)


@pytest.mark.parametrize("method", ["simgcd", "rpc"])
@pytest.mark.parametrize("mode", ["exact", "cached 3+2"])
def test_both_modes_of_both_methods_are_measured(bench: Bench, method: str, mode: str, monkeypatch) -> None:
    taken = []
    real = Loop.training
    monkeypatch.setattr(Loop, "training", lambda self, *given: counting(real(self, *given), taken))
    cache = None if mode == "exact" else bench.cache()
    row = measure_loop(bench, method, PLAN, bench.store(), cache)
    assert len(taken) == 2 + 2 * 2
    assert row["pipeline"] == mode
    assert (row["method"], row["images"], row["batch"], row["k"]) == (method, 24, 8, 4)
    assert row["ms"] > 0
    assert row["run_steps"] == 200 * 3
    assert row["host_bytes"] > 0
    assert row["captured"] is False  # on a CPU there is nothing to capture


def counting(training, taken: list):
    """Hand on every step of a training, and note it."""
    for step in training:
        taken.append(step)
        yield step


def test_training_leaves_the_shared_network_alone(bench: Bench) -> None:
    """Every measurement starts from the same weights."""
    before = {n: p.clone() for n, p in bench.backbone().tail.named_parameters()}
    measure_loop(bench, "simgcd", PLAN, bench.store())
    after = dict(bench.backbone().tail.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_batch_and_k_are_heeded(bench: Bench) -> None:
    row = measure_loop(bench, "rpc", PLAN, bench.store(), batch=4, k=6)
    assert (row["batch"], row["k"], row["run_steps"]) == (4, 6, 200 * 6)


def test_runs_at_once_take_turns(bench: Bench, monkeypatch) -> None:
    """Three runs of different seeds, each as many steps as the plan says, one after the other."""
    order = []
    real = Loop.training

    def noting(self, *given):
        for step in real(self, *given):
            order.append(self.seed)
            yield step

    monkeypatch.setattr(Loop, "training", noting)
    row = measure_together(bench, "simgcd", PLAN, 3)
    assert order == [0, 1, 2] * PLAN.steps
    assert row["runs"] == 3
    assert row["pipeline"] == "cached 3+2"


def test_what_is_paid_once_is_told(bench: Bench) -> None:
    store, cache = bench.store(), bench.cache()
    assert bench.store() is store
    assert bench.cache() is cache
    assert bench.costs["store"]["bytes"] == store.nbytes
    assert bench.costs["store"]["images"] == bench.costs["cache"]["images"] == 24
    assert bench.costs["cache"]["bytes"] == cache.nbytes
    assert bench.costs["cache"]["mode"] == "cached 3+2"


def test_a_cache_is_built_anew_every_time(bench: Bench, monkeypatch) -> None:
    """Not read from the file that the one before it left: its seconds would be those of reading."""
    from holotype.training import caching

    filled = []
    real = caching.fill
    monkeypatch.setattr(caching, "fill", lambda *given: filled.append(0) or real(*given))
    store = bench.store()
    first, second = bench.open(store), bench.open(store)
    assert len(filled) == 2
    assert torch.equal(first.tokens, second.tokens)
