"""DCCL through the whole loop: rows of its own, concepts between epochs, and nothing hidden in what it learns from."""

from __future__ import annotations

import json
import math

import pytest

from holotype.errors import Stopped

from .conftest import assert_equal_weights, weights
from .test_loop import interrupt_after


def test_it_trains_with_finite_losses_and_tells_what_it_found(world, tmp_path):
    loop = world.loop("dccl", epochs=3, out=tmp_path)
    loop.fit()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    epochs = [line for line in lines if line["kind"] == "epoch"]
    assert len(epochs) == 3
    for line in epochs:
        assert all(math.isfinite(line[term]) for term in ("con_u", "con_s", "concept", "loss"))
        assert line["concepts"] > 0
        assert 0 <= line["outliers"] < 48
        assert line["positives"] >= 4
    assert epochs[0]["concept"] > 0


def test_a_resumed_run_keeps_the_concepts_it_has(world, tmp_path):
    settings = {"recluster": 2}
    whole = world.loop("dccl", settings=settings, epochs=3)
    whole.fit()
    for stop_after in (1, 5):  # in the epoch that found them, and in the one after
        out = tmp_path / str(stop_after)
        first = world.loop("dccl", settings=settings, epochs=3, out=out)
        interrupt_after(first, stop_after)
        with pytest.raises(Stopped):
            first.fit()
        second = world.loop("dccl", settings=settings, epochs=3, out=out)
        second.fit()
        assert_equal_weights(weights(whole), weights(second))


def test_views_may_come_from_the_cache(world, tmp_path):
    loop = world.loop("dccl", cache=world.cache(tmp_path))
    loop.fit()
    assert loop.mode == "cached 4+2"
    assert loop.method.count > 0
