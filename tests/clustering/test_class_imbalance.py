"""Are sizes different? Made-up classes of equal and of different sizes, labelled at random or by whim."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from holotype.clustering.class_imbalance import ClassImbalance, measure_imbalance

KNOWN, NOVEL = 10, 10
EQUAL = np.full(KNOWN, 60)
TAIL = np.round(120 * 10.0 ** -np.linspace(0, 1, KNOWN)).astype(int)


def look(sizes: np.ndarray, labels: np.ndarray, seed: int = 0) -> ClassImbalance:
    """Known classes of the sizes, labels[c] images of each labelled; as many new ones of the same sizes."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(KNOWN + NOVEL, 24))
    truth = np.repeat(np.arange(KNOWN + NOVEL), np.concatenate([sizes, sizes]))
    x = centres[truth] + 0.8 * random.normal(size=(len(truth), 24))
    label = np.full(len(truth), -1)
    for c in range(KNOWN):
        label[np.flatnonzero(truth == c)[: labels[c]]] = c
    return measure_imbalance(torch.from_numpy(x), torch.from_numpy(label), KNOWN)


def drawn(sizes: np.ndarray, seed: int) -> np.ndarray:
    """Labels of half of the images of the known classes together, drawn at random."""
    return np.random.default_rng(seed).multivariate_hypergeometric(sizes, int(sizes.sum() // 2))


@pytest.mark.parametrize("seed", range(5))
def test_a_random_draw_shows_the_sizes(seed: int) -> None:
    assert not look(EQUAL, drawn(EQUAL, seed), seed).uneven
    found = look(TAIL, drawn(TAIL, seed), seed)
    assert found.uneven
    assert abs(found.bias) < 0.5


@pytest.mark.parametrize("seed", range(5))
def test_labels_by_whim_say_nothing_of_sizes(seed: int) -> None:
    """Equal classes, of which people have labelled between 5 and 50 images."""
    whim = np.random.default_rng(seed).permutation(
        np.round(50 * 10.0 ** -np.linspace(0, 1, KNOWN)).astype(int)
    )
    found = look(EQUAL, whim, seed)
    assert found.spread > 0.5
    assert found.bias > 0.5
    assert not found.uneven
    assert found.words == (
        "known classes have 5 to 50 labelled images, but the unlabelled ones near them do not differ so: equal sizes "
        "are expected"
    )


def test_the_same_number_of_labels_for_each_class_says_nothing() -> None:
    found = look(TAIL, np.full(KNOWN, 6))
    assert (found.low, found.high, found.spread, found.uneven) == (6, 6, 0.0, False)
    assert found.words == "each known class has 6 labelled images, so equal sizes are expected"


def test_a_handful_of_labels_cannot_tell() -> None:
    for labels in (np.array([9, *[1] * 9]), np.array([60, 10, 5, *[0] * 7])):
        found = look(EQUAL, labels)
        assert math.isnan(found.spread)
        assert not found.uneven
        assert "too few labels" in found.words


def test_chance_is_not_unevenness() -> None:
    """Ten labels a class in the mean differ by a third by chance alone."""
    labels = np.random.default_rng(3).multinomial(100, np.full(KNOWN, 1 / KNOWN))
    assert labels.std(ddof=1) / labels.mean() > 0.2
    assert look(EQUAL, labels).spread < 0.2
