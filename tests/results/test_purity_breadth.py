"""A category that is as wide as several classes is trusted as far as its largest one may reach."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.results.purity import category_spread, largest_share


def world(seed: int = 0, n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit features of six classes, their class, and labels of half of the first three."""
    random = np.random.default_rng(seed)
    truth = np.repeat(np.arange(6), n)
    x = 3 * random.normal(size=(6, 32))[truth] + random.normal(size=(6 * n, 32))
    target = np.where((truth < 3) & (random.random(6 * n) < 0.5), truth, -1)
    return x / np.linalg.norm(x, axis=1, keepdims=True), truth, target


@pytest.mark.parametrize("seed", range(3))
def test_several_classes_in_one_category_are_seen(seed) -> None:
    u, truth, target = world(seed)
    assert largest_share(u, truth, target, 6) == pytest.approx(np.ones(6), abs=0.03)
    merged = np.where(truth >= 3, 3, truth)
    three = largest_share(u, merged, target, 6)[3]
    two = largest_share(u, np.where(truth == 4, 3, truth), target, 6)[3]
    strangers = np.where((truth == 4) & (np.arange(len(truth)) % 6 == 0), 3, truth)
    few = largest_share(u, strangers, target, 6)[3]
    assert 0.2 < three < 0.5
    assert three < two < 0.8
    assert two < few <= 1


def test_labels_say_what_a_known_class_is() -> None:
    u, truth, target = world()
    assert largest_share(u, np.where(truth >= 3, 0, truth), target, 6)[0] == 1


def test_without_two_classes_to_compare_with_nothing_is_said() -> None:
    u, truth, target = world()
    merged = np.where(truth >= 3, 3, truth)
    assert largest_share(u, merged, np.where(target == 0, 0, -1), 6).tolist() == [1] * 6
    noise = np.random.default_rng(1).normal(size=(360, 32))
    alike = noise / np.linalg.norm(noise, axis=1, keepdims=True)  # two of a class are as far apart as any two
    assert largest_share(alike, merged, target, 6).tolist() == [1] * 6


def test_the_spread_is_the_slow_loop() -> None:
    u, truth, _ = world(n=7)
    group = np.where(truth == 2, -1, truth)
    mean, wide, n = category_spread(u, group, 7)
    for c in (0, 1, 3):
        rows = u[group == c]
        pairs = [((a - b) ** 2).sum() for i, a in enumerate(rows) for b in rows[:i]]
        assert wide[c] == pytest.approx(np.mean(pairs))
        assert mean[c] == pytest.approx(rows.mean(axis=0))
    assert n.tolist() == [7, 7, 0, 7, 7, 7, 0]
    assert (wide[2], wide[6]) == (0, 0)
