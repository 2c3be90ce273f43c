"""The stand-in learns, whatever the other seeds, and each size prior does what it says."""

from __future__ import annotations

import numpy as np
import pytest
from frozen import rate, train_frozen

K = 4


def made(sizes: tuple[int, ...], spread: float = 0.6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (N, 5, 16), targets with half of the first two classes labelled, classes."""
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(K), sizes)
    centres = random.normal(size=(K, 16))
    image = centres[truth] + spread * random.normal(size=(len(truth), 16))
    views = image[:, None] + 0.1 * random.normal(size=(len(truth), 5, 16))
    target = np.where((truth < 2) & (np.arange(len(truth)) % 2 == 0), truth, -1)
    return views.astype(np.float32), target, truth


def test_it_learns_and_seeds_do_not_disturb_each_other() -> None:
    features, target, truth = made((30, 30, 30, 30))
    p, layers = train_frozen(features, target, K, range(3), False, steps=150)
    assert p.shape == (3, 120, K)
    assert layers.shape == (3, 16, 16)
    assert p.sum(-1) == pytest.approx(1, abs=1e-5)
    known = truth < 2
    assert all((one.argmax(1)[known] == truth[known]).mean() > 0.9 for one in p)
    alone, _ = train_frozen(features, target, K, [2], False, steps=150)
    assert (alone[0].argmax(1) == p[2].argmax(1)).mean() > 0.97


def test_the_rate_rises_and_falls() -> None:
    rates = [rate(step, 100) for step in range(100)]
    assert rates[0] < rates[4] > rates[-1]
    assert max(rates) == pytest.approx(0.1, rel=0.01)
