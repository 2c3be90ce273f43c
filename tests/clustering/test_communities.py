"""Communities: those of Infomap on the golden graphs, those that were planted on others."""

import math
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
from scipy.sparse import csr_array

from holotype.clustering.communities import Moves, codelength, communities, drop_small_communities, network
from holotype.errors import InputError

GOLDEN = np.load(Path(__file__).parents[1] / "parity/dccl.npz")
GRAPHS = ["blobs12x20", "blobs30x20", "small_and_outliers", "touching_a"]


def graph(source, goal, weight, n: int) -> csr_array:
    return csr_array((np.asarray(weight, dtype=float), (np.asarray(source), np.asarray(goal))), shape=(n, n))


def golden_graph(case: str, weight: str = "edge_w") -> csr_array:
    source, goal, w = (GOLDEN[f"graph_{case}__{name}"] for name in ("edge_src", "edge_dst", weight))
    return graph(source, goal, w, len(GOLDEN[f"graph_{case}__community"]))


def planted(n: int, classes: int, k: int, within: float, seed: int) -> tuple[csr_array, np.ndarray]:
    """k links from each node: a share of them, on average, into its class; most others into six that follow it."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % classes
    related = (truth[:, None] + rng.integers(1, 7, (n, k))) % classes
    elsewhere = np.where(rng.random((n, k)) < 0.7, related, rng.integers(0, classes, (n, k)))
    klass = np.where(rng.random((n, k)) < within, truth[:, None], elsewhere)
    goal = klass + classes * rng.integers(0, n // classes, (n, k))
    source = np.repeat(np.arange(n), k)
    apart = goal.ravel() != source
    weight = rng.uniform(0.6, 0.9, n * k)
    return graph(source[apart], goal.ravel()[apart], weight[apart], n), truth


@pytest.mark.parametrize(
    ("case", "rule"),
    [*((case, "") for case in GRAPHS), ("labelled_edges", ""), ("labelled_edges", "_intended")],
)
def test_the_communities_equal_those_of_infomap(case, rule):
    """With their outliers, and in the order of first appearance."""
    smallest = 1 + int(GOLDEN[f"graph_{case}__k2"])
    found = drop_small_communities(communities(golden_graph(case, f"edge_w{rule}"), seed=0), smallest)
    np.testing.assert_array_equal(found, GOLDEN[f"graph_{case}__community{rule}"])


def test_two_triangles_on_a_string():
    edges = (GOLDEN[f"two_triangles__edge_{name}"] for name in ("src", "dst", "w"))
    np.testing.assert_array_equal(communities(graph(*edges, 6), 0), [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(("n", "classes", "seed"), [(1200, 40, 0), (1200, 40, 1), (6000, 200, 0)])
def test_planted_classes_are_found_exactly_where_they_are_clear(n, classes, seed):
    weight, truth = planted(n, classes, 14, 2 / 3, seed)
    np.testing.assert_array_equal(communities(weight, seed), truth)


@pytest.mark.parametrize("seed", range(3))
def test_where_they_blur_what_is_found_is_shorter_than_what_was_planted(seed):
    weight, truth = planted(1200, 40, 14, 0.3, seed)
    walk = network(weight)
    found = communities(weight, seed)
    assert codelength(walk, found) <= codelength(walk, truth)
    assert codelength(walk, found) < codelength(walk, truth * 0)
    nodes, _, _ = Moves(walk, found).best(np.arange(1200))
    assert len(nodes) == 0  # no node gains by a move


def test_a_seed_is_a_partition_and_names_do_not_matter():
    weight, _ = planted(600, 30, 10, 0.4, 0)
    module = communities(weight, 3)
    np.testing.assert_array_equal(communities(weight, 3), module)
    assert (np.diff(np.unique(module, return_index=True)[1]) > 0).all()
    order = np.random.default_rng(0).permutation(600)
    walk, mixed = network(weight), network(weight[order][:, order])
    assert codelength(mixed, module[order]) == pytest.approx(codelength(walk, module), abs=1e-12)


def test_nodes_without_links_are_alone_and_an_empty_graph_is_no_fault():
    np.testing.assert_array_equal(communities(csr_array((5, 5)), 0), np.arange(5))
    assert len(communities(csr_array((0, 0)), 0)) == 0
    found = communities(graph([0, 1, 3, 4], [1, 0, 4, 3], [1, 1, 1, 1], 6), 0)
    np.testing.assert_array_equal(found, [0, 0, 1, 2, 2, 3])
    np.testing.assert_array_equal(drop_small_communities(np.arange(5), 2), -np.ones(5))
    some = drop_small_communities(np.array([0, 1, 1, 2, 3, 3, 3, 2]), 2)
    np.testing.assert_array_equal(some, [-1, 0, 0, 1, 2, 2, 2, 1])  # numbered anew


def test_infomap_is_given_the_directed_graph_and_the_seed(monkeypatch):
    """A stand-in with the package's names: it merges nodes 0 and 1 and leaves out the node without links."""
    monkeypatch.setitem(sys.modules, "infomap", None)
    with pytest.raises(InputError, match="need the package infomap, which is not installed"):
        communities(csr_array((3, 3)), 0, "infomap")
    stand_in = MagicMock()
    stand_in.Infomap.return_value.get_modules.return_value = {0: 7, 1: 7, 2: 1}
    monkeypatch.setitem(sys.modules, "infomap", stand_in)
    found = communities(graph([0, 1], [1, 2], [0.5, 0.25], 4), 4, "infomap")
    np.testing.assert_array_equal(found, [0, 0, 1, 2])
    stand_in.Infomap.assert_called_once_with("--two-level --directed --silent --seed 5")
    search = stand_in.Infomap.return_value
    assert search.add_node.call_count == 4
    assert [call.args for call in search.add_link.call_args_list] == [(0, 1, 0.5), (1, 2, 0.25)]
    search.run.assert_called_once_with()


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


@pytest.mark.parametrize("seed", range(3))
def test_flow_and_codelength_equal_a_slow_computation(seed):
    weight, rng = random_graph(30, 120, seed), np.random.default_rng(seed)
    walk = network(weight)
    node, link = slow_flow(weight.toarray())
    np.testing.assert_allclose(walk.node, node, atol=1e-12)
    np.testing.assert_allclose(walk.link.toarray(), link, atol=1e-12)
    for k in (1, 2, 7, 30):
        module = rng.integers(0, k, 30)
        assert codelength(walk, module) == pytest.approx(slow_length(node, link, module.tolist()), abs=1e-9)


@pytest.mark.parametrize("seed", range(2))
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
