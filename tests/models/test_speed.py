"""Speed is measured with random weights; nothing is fetched."""

from __future__ import annotations

import itertools

import pytest
import torch

from holotype.models import speed
from holotype.models.speed import fastest_pass, measure_speed


def test_a_network_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "ENOUGH_SECONDS", 0.0)
    state = torch.random.get_rng_state()
    found = measure_speed("test_vit", 32, torch.device("cpu"), clock=itertools.count().__next__)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert 300_000 < found.parameters < 500_000
    assert (
        found.milliseconds == 1000 / speed.SPEED_BATCH
    )  # the clock goes on by a second whenever it is looked at


def test_the_fastest_pass_counts_and_the_first_does_not() -> None:
    passes, clock = iter([0.0, 0.3, 0.1, 0.3]), [0.0]

    def run() -> None:
        clock[0] += next(passes)

    assert fastest_pass(run, torch.device("cpu"), lambda: clock[0]) == pytest.approx(0.1)
    assert list(passes) == []  # until they have taken long enough together
