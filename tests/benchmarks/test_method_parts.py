"""Steps of all methods: each is measured in its own stage and way, and one that fails does not end the others."""

from __future__ import annotations

from pathlib import Path

import method_parts
import pytest
import torch
from effort import Effort
from measure import Plan
from method_parts import KINDS, TOKEN_METHODS, each, image_stages, measure_turns, methods
from ours import Bench

from holotype.methods import METHODS
from holotype.methods.dccl import DCCL
from holotype.methods.sptnet import SPTNet
from holotype.training.loop import Loop

PLAN = Plan(1, 2, 2)
EFFORT = Effort(PLAN, PLAN, PLAN, PLAN, 1, methods=PLAN, image_stages=PLAN)


@pytest.fixture
def bench(world, tmp_path: Path) -> Bench:
    return Bench(world, "3+2", tmp_path)


@pytest.fixture(autouse=True)
def small_heads(monkeypatch) -> None:
    """65 536 outputs take seconds a step on a CPU."""
    for name in ("gcd", "dccl", "promptcal"):
        given = method_parts.SETTINGS.get(name, {})
        monkeypatch.setitem(method_parts.SETTINGS, name, {**given, "proj_out": 0})


def test_every_method_on_tokens_is_measured(world) -> None:
    found = set()
    for name in METHODS:
        settings = {"proj_out": 0} if name in ("gcd", "dccl", "promptcal") else {}
        stages = world.method(name, 64, settings=settings).stages()
        if stages and all(stage.needs == "tokens" for stage in stages):
            found.add(name)
    assert found == set(TOKEN_METHODS)


def test_one_row_each_on_one_cache(bench: Bench, monkeypatch) -> None:
    """The search of DCCL is over before the first step that counts, and the cache is built once."""
    built, searched = [], []
    opened, before = Bench.open, DCCL.before_epoch
    monkeypatch.setattr(Bench, "open", lambda self, store: built.append(0) or opened(self, store))

    def searching(self, stage, epoch, images) -> None:
        before(self, stage, epoch, images)
        searched.append("_encoded" in vars(images))

    monkeypatch.setattr(DCCL, "before_epoch", searching)
    rows = list(methods(bench, EFFORT))
    assert [row["method"] for row in rows] == list(TOKEN_METHODS)
    assert {row["pipeline"] for row in rows} == {"cached 3+2"}
    assert all(row["ms"] > 0 and row["host_bytes"] > 0 for row in rows)
    assert len(built) == 1
    assert searched[0]
    assert len(searched) > 1  # epochs of 3 steps
    assert not any(searched[1:])


def test_stages_on_images_are_entered_where_they_begin(bench: Bench, monkeypatch) -> None:
    """No step of the stage before is taken, and what is shared with other parts is kept."""
    seen = []
    real = Loop.training

    def watching(self, *given):
        for step in real(self, *given):
            seen.append((type(self.method).__name__, self.position.stage, self.source.stage.needs))
            yield step

    monkeypatch.setattr(Loop, "training", watching)
    store = bench.store()
    rows = list(image_stages(bench, EFFORT))
    assert bench.store() is store
    assert set(seen) == {("SPTNet", 1, "images"), ("PromptCAL", 0, "images"), ("PromptCAL", 1, "images")}
    assert [(row["method"], row["stage"]) for row in rows] == [
        *(("sptnet", f"second stage, {kind}") for kind in KINDS),
        ("promptcal", "first stage"),
        ("promptcal", "second stage"),
    ]
    assert {row["pipeline"] for row in rows} == {"images"}


def test_the_two_kinds_of_step_are_told_apart(bench: Bench, monkeypatch) -> None:
    """A block holds steps of one kind alone."""
    from holotype.models.prompts import PixelPrompted

    taken = []
    of_model, of_prompt = PixelPrompted.of_model, PixelPrompted.of_prompt
    monkeypatch.setattr(PixelPrompted, "of_model", lambda *given: taken.append(0) or of_model(*given))
    monkeypatch.setattr(PixelPrompted, "of_prompt", lambda *given: taken.append(1) or of_prompt(*given))
    monkeypatch.setattr("holotype.training.loop.tell_duration", lambda *given: None)
    blocks = []
    timed = method_parts.time_steps

    def noting(step, plan, device):
        taken.clear()
        timing = timed(step, plan, device)
        blocks.append(list(taken))
        return timing

    monkeypatch.setattr(method_parts, "time_steps", noting)
    rows = measure_turns(bench, Plan(1, 2, 3))
    assert blocks == [[0] * 3, [1] * 3] * 2
    assert [row["steps"] for row in rows] == [6, 6]


def test_a_turn_on_a_gpu_is_the_published_one() -> None:
    from effort import EFFORTS

    assert EFFORTS["cuda"].image_stages.size == SPTNet.Config().turn == 20


def test_one_that_fails_does_not_end_the_others(bench: Bench, capsys) -> None:
    def broken() -> int:
        raise torch.OutOfMemoryError("too large")

    rows = each([lambda: 1, broken, lambda: 3], bench)
    assert [next(rows), next(rows)] == [1, 3]
    with pytest.raises(torch.OutOfMemoryError, match="too large"):
        next(rows)
    assert "too large" in capsys.readouterr().err
