"""Speed is measured with random weights; nothing is fetched."""

from __future__ import annotations

import time

import pytest
import torch

from holotype.models import speed
from holotype.models.speed import fastest, measure


def test_a_network_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "ENOUGH", 0.0)
    state = torch.random.get_rng_state()
    found = measure("test_vit", 32, torch.device("cpu"))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert 300_000 < found.parameters < 500_000
    assert 0 < found.milliseconds < 1000


def test_the_fastest_pass_counts_and_the_first_does_not() -> None:
    naps = iter([0.0, 0.03, 0.01, *[0.03] * 1000])
    assert 0.01 <= fastest(lambda: time.sleep(next(naps)), torch.device("cpu")) < 0.03
