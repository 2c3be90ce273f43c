"""Cells: the nearest centre, whatever else is looked at with a row."""

from __future__ import annotations

import numpy as np

from holotype.embeddings.coreset import find_cell_centres, nearest_centres, unit_rows_float32

RNG = np.random.default_rng(0)


def obvious(x: np.ndarray, centres: np.ndarray) -> tuple[list[int], list[float]]:
    cells, distances = [], []
    for row in x:
        apart = [float(((row.astype(float) - centre) ** 2).sum()) for centre in centres]
        cells.append(apart.index(min(apart)))
        distances.append(min(apart))
    return cells, distances


def test_nearest_is_that_of_a_plain_loop() -> None:
    x, centres = unit_rows_float32(RNG.normal(size=(300, 7))), unit_rows_float32(RNG.normal(size=(40, 7)))
    cell, distance = nearest_centres(x, centres)
    wanted, apart = obvious(x, centres)
    assert cell.tolist() == wanted
    np.testing.assert_allclose(distance, apart, rtol=1e-12)


def test_rivals_that_a_product_of_matrices_cannot_tell_apart() -> None:
    """Centres so near to each other that single precision says little: still the true nearest, in every company."""
    middle = unit_rows_float32(RNG.normal(size=(1, 64)))
    centres = (middle + 1e-7 * RNG.normal(size=(50, 64))).astype(np.float32)
    x = unit_rows_float32(RNG.normal(size=(200, 64)))
    cell, _ = nearest_centres(x, centres)
    assert cell.tolist() == obvious(x, centres)[0]
    one_by_one = [int(nearest_centres(x[row : row + 1], centres)[0][0]) for row in range(len(x))]
    assert cell.tolist() == one_by_one


def test_equal_centres_go_to_the_first() -> None:
    centre = unit_rows_float32(np.ones((1, 3)))
    cell, distance = nearest_centres(unit_rows_float32(np.ones((4, 3))), np.repeat(centre, 3, 0))
    assert cell.tolist() == [0] * 4
    assert distance.tolist() == [0.0] * 4


def test_unit_rows_and_rows_of_zeros() -> None:
    x = unit_rows_float32(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float16))
    np.testing.assert_allclose(x, [[0.6, 0.8], [0.0, 0.0]], atol=1e-7)
    assert x.dtype == np.float32


def test_centres_of_a_seed_are_the_same() -> None:
    x = unit_rows_float32(RNG.normal(size=(200, 6)))
    assert np.array_equal(find_cell_centres(x, 9, 1), find_cell_centres(x, 9, 1))
    assert find_cell_centres(x, 9, 1).shape == (9, 6)
    assert np.array_equal(find_cell_centres(x, 200, 1), x)
