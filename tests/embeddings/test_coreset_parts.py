"""Rows chosen from a stream by their keys: the same as a loop over everything chooses, in any order."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.embeddings.coreset import PerCell, SmallestKeys, level_quota, path_hashes, uniform

RNG = np.random.default_rng(0)


def test_hashes_depend_on_path_and_seed_alone() -> None:
    paths = [f"{i}.jpg" for i in range(50)]
    both, one = path_hashes(paths, 3), path_hashes(paths[7:8], 3)
    assert {name: int(values[7]) for name, values in both.items()} == {n: int(v[0]) for n, v in one.items()}
    assert not np.array_equal(both["images"], both["cells"])
    assert not np.array_equal(both["images"], path_hashes(paths, 4)["images"])
    drawn = uniform(path_hashes([f"{i}" for i in range(20_000)], 0)["far"])
    assert drawn.min() > 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.01


def test_path_that_is_no_text_has_a_hash() -> None:
    assert path_hashes(["a\udcff.jpg"], 0)["images"].shape == (1,)


@pytest.mark.parametrize("seed", range(20))
def test_level_is_the_largest_that_fits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, n = rng.integers(0, 30, 12), int(rng.integers(1, 200))
    found = level_quota(size, n)
    if size.sum() <= n:
        assert found == size.max()
    else:
        assert np.minimum(size, found).sum() <= n < np.minimum(size, found + 1).sum()


def obvious(cell: np.ndarray, number: np.ndarray, path: list[str], n: int) -> set[str]:
    """Round after round, each cell gives the row with its smallest hash; in the last one the smallest of all."""
    queues: dict[int, list[tuple[int, str]]] = {}
    for c, h, p in zip(cell.tolist(), number.tolist(), path, strict=True):
        queues.setdefault(c, []).append((h, p))
    for queue in queues.values():
        queue.sort(reverse=True)
    taken: set[str] = set()
    while len(taken) < n and any(queues.values()):
        round_ = sorted(queue.pop() for queue in queues.values() if queue)
        taken |= {p for _, p in round_[: n - len(taken)]}
    return taken


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("n", [1, 7, 40, 300, 1000, 5000])
def test_per_cell_is_what_a_plain_loop_takes(n: int, coarse: bool) -> None:
    """coarse: hashes that are often equal, so that paths decide."""
    cell = RNG.zipf(1.5, 1000).clip(max=30) - 1
    path = [f"{i:04d}" for i in RNG.permutation(1000)]
    number = RNG.integers(0, 5 if coarse else 2**63, 1000).astype(np.uint64)
    order = RNG.permutation(1000)
    chosen = PerCell(30, n)
    for rows in np.array_split(order, 17):
        chosen.add(cell[rows], number[rows], [path[row] for row in rows])
        assert len(chosen.rows) <= 2 * n + 2 * 30 + len(rows)  # flat in the number of rows
    found = chosen.chosen()
    assert {p for _, _, p in found} == obvious(cell, number, path, n)
    assert len(found) == min(n, 1000)
    assert chosen.size.tolist() == np.bincount(cell, minlength=30).tolist()


@pytest.mark.parametrize("coarse", [False, True])
def test_smallest_in_any_order(coarse: bool) -> None:
    path = [f"{i:04d}" for i in range(500)]
    key = RNG.integers(0, 4, 500).astype(float) if coarse else RNG.random(500)
    x = RNG.normal(size=(500, 3)).astype(np.float32)
    wanted = x[sorted(range(500), key=lambda row: (key[row], path[row]))[:40]]
    for order in (np.arange(500), RNG.permutation(500)):
        some = SmallestKeys(40)
        for rows in np.array_split(order, 9):
            some.add(key[rows], [path[row] for row in rows], x[rows])
        assert np.array_equal(some.features(), wanted)


def test_equal_keys_at_the_border_are_not_lost() -> None:
    some = SmallestKeys(2)
    for path in ("d", "c", "b", "a", "e", "f"):
        some.add(np.zeros(1), [path], np.zeros((1, 1)))
    some._shrink()
    assert [row[1] for row in some.rows] == ["a", "b"]
