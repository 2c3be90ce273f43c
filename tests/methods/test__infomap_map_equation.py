"""The map equation against a slow obvious computation, and moves against the lengths they lead to."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from holotype.methods._infomap import Moves, codelength, network

GOLDEN = np.load(Path(__file__).parents[1] / "parity/dccl.npz")


def graph(source, goal, weight, n: int) -> csr_array:
    return csr_array((np.asarray(weight, dtype=float), (np.asarray(source), np.asarray(goal))), shape=(n, n))


def golden_graph(case: str, weight: str = "edge_w") -> csr_array:
    source, goal, w = (GOLDEN[f"graph_{case}__{name}"] for name in ("edge_src", "edge_dst", weight))
    return graph(source, goal, w, len(GOLDEN[f"graph_{case}__community"]))


def random_graph(n: int, links: int, seed: int) -> csr_array:
    """Some nodes have no link out, some none at all, some one to themselves."""
    rng = np.random.default_rng(seed)
    source, goal = rng.integers(0, n - 4, links), rng.integers(0, n - 2, links)
    return graph(source, goal, rng.uniform(0.1, 1, links), n)


def slow_flow(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The stationary walk from the eigenvector of a dense matrix; then one step along links alone."""
    n, out = len(weight), weight.sum(1)
    jump = out / out.sum()
    rows = [0.15 * jump + 0.85 * weight[i] / out[i] if out[i] > 0 else jump for i in range(n)]  # where from i
    values, vectors = np.linalg.eig(np.array(rows).T)
    rank = np.real(vectors[:, np.argmax(np.real(values))])
    rank /= rank.sum()
    link = np.array([rank[i] * weight[i] / out[i] if out[i] > 0 else np.zeros(n) for i in range(n)])
    link /= link.sum()
    return link.sum(0), link


def slow_length(node: np.ndarray, link: np.ndarray, module: list[int]) -> float:
    """Shannon's entropies of the code books, weighted by their use, as the map equation is printed."""
    n, names = len(node), sorted(set(module))

    def entropy(shares: list[float]) -> float:
        total = sum(shares)
        return -sum(s / total * math.log2(s / total) for s in shares if s > 0)

    enter = dict.fromkeys(names, 0.0)
    leave = dict.fromkeys(names, 0.0)
    for i in range(n):
        for j in range(n):
            if module[i] != module[j]:
                leave[module[i]] += link[i, j]
                enter[module[j]] += link[i, j]
    total = sum(enter.values()) * entropy([*enter.values()]) if any(enter.values()) else 0.0
    for m in names:
        book = [leave[m], *(node[i] for i in range(n) if module[i] == m)]
        total += sum(book) * entropy(book) if sum(book) > 0 else 0.0
    return total


@pytest.mark.parametrize("seed", range(5))
def test_flow_and_codelength_equal_a_slow_computation(seed):
    weight, rng = random_graph(30, 120, seed), np.random.default_rng(seed)
    walk = network(weight)
    node, link = slow_flow(weight.toarray())
    np.testing.assert_allclose(walk.node, node, atol=1e-12)
    np.testing.assert_allclose(walk.link.toarray(), link, atol=1e-12)
    for k in (1, 2, 7, 30):
        module = rng.integers(0, k, 30)
        assert codelength(walk, module) == pytest.approx(slow_length(node, link, module.tolist()), abs=1e-9)


@pytest.mark.parametrize("case", ["blobs12x20", "small_and_outliers", "touching_a"])
def test_the_codelength_of_golden_partitions_equals_a_slow_computation(case):
    weight = golden_graph(case)
    alone = GOLDEN[f"graph_{case}__community"].astype(int)
    alone[alone < 0] = alone.max() + 1 + np.arange((alone < 0).sum())
    node, link = slow_flow(weight.toarray())
    assert codelength(network(weight), alone) == pytest.approx(
        slow_length(node, link, alone.tolist()), abs=1e-9
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_move_changes_the_codelength_by_what_was_foretold(seed):
    weight, rng = random_graph(40, 200, seed), np.random.default_rng(seed)
    walk = network(weight)
    moves = Moves(walk, rng.integers(0, 9, 40))
    before, length = moves.module, codelength(walk, moves.module)
    nodes, goals, delta = moves.best(np.arange(40))
    assert len(nodes) > 5
    for node, goal, change in zip(nodes, goals, delta, strict=True):
        module = before.copy()
        module[node] = goal
        assert codelength(walk, module) - length == pytest.approx(change, abs=1e-10)
        others = []
        for m in range(40):  # none of the other modules, the empty ones included, would have been better
            module[node] = m
            others.append(codelength(walk, module) - length)
        assert min(others) == pytest.approx(change, abs=1e-10)
