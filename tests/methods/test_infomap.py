"""Communities: those of Infomap on the golden graphs, those that were planted on others."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from unittest.mock import MagicMock
from unittest.mock import call as mock_call

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from holotype.errors import InputError
from holotype.methods._infomap import (
    Concepts,
    Moves,
    codelength,
    communities,
    concept_means,
    drop_small_communities,
    find_concepts,
    network,
    partition_stats,
    warn_few_concepts,
)

GOLDEN = np.load(Path(__file__).parents[1] / "parity/dccl.npz")
GRAPHS = ["blobs12x20", "blobs30x20", "small_and_outliers", "touching_a"]


def graph(source, goal, weight, n: int) -> csr_array:
    return csr_array((np.asarray(weight, dtype=float), (np.asarray(source), np.asarray(goal))), shape=(n, n))


def golden_graph(case: str, weight: str = "edge_w") -> csr_array:
    source, goal, w = (GOLDEN[f"graph_{case}__{name}"] for name in ("edge_src", "edge_dst", weight))
    return graph(source, goal, w, len(GOLDEN[f"graph_{case}__community"]))


def planted(n: int, classes: int, k: int, within: float, seed: int) -> tuple[csr_array, np.ndarray]:
    """k links from each node: a share of them, on average, into its class; most others into a few related classes."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % classes
    related = np.stack([rng.permutation(classes)[:6] for _ in range(classes)])
    elsewhere = np.where(
        rng.random((n, k)) < 0.7,
        np.take_along_axis(related[truth], rng.integers(0, 6, (n, k)), 1),
        rng.integers(0, classes, (n, k)),
    )
    klass = np.where(rng.random((n, k)) < within, truth[:, None], elsewhere)
    goal = klass + classes * rng.integers(0, n // classes, (n, k))
    source = np.repeat(np.arange(n), k)
    apart = goal.ravel() != source
    weight = rng.uniform(0.6, 0.9, n * k)
    return graph(source[apart], goal.ravel()[apart], weight[apart], n), truth


# -- the search --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", GRAPHS)
def test_the_communities_equal_those_of_infomap(case):
    g = {key.removeprefix(f"graph_{case}__"): GOLDEN[key] for key in GOLDEN.files if f"graph_{case}__" in key}
    found = drop_small_communities(communities(golden_graph(case), seed=0), 1 + int(g["k2"]))
    np.testing.assert_array_equal(found, g["community"])  # outliers, and the order of first appearance
    assert found.max() + 1 == g["n_communities"]
    assert (found < 0).sum() == g["n_outliers"]


@pytest.mark.parametrize("rule", ["", "_intended"])
def test_the_communities_with_labelled_edges_equal_those_of_infomap(rule):
    found = drop_small_communities(communities(golden_graph("labelled_edges", f"edge_w{rule}"), seed=0), 5)
    np.testing.assert_array_equal(found, GOLDEN[f"graph_labelled_edges__community{rule}"])


def test_two_triangles_on_a_string_and_small_cliques_in_a_ring():
    """Modularity merges neighbours there: 40 cliques of 5 are below its resolution."""
    edges = (GOLDEN[f"two_triangles__edge_{name}"] for name in ("src", "dst", "w"))
    np.testing.assert_array_equal(communities(graph(*edges, 6), 0), [0, 0, 0, 1, 1, 1])
    source, goal = [], []
    for c in range(40):
        pairs = [(5 * c + i, 5 * c + j) for i in range(5) for j in range(5) if i != j]
        pairs += [(5 * c, (5 * c + 6) % 200), ((5 * c + 6) % 200, 5 * c)]
        source += [a for a, _ in pairs]
        goal += [b for _, b in pairs]
    found = communities(graph(source, goal, np.ones(len(source)), 200), 0)
    np.testing.assert_array_equal(found, np.repeat(np.arange(40), 5))


@pytest.mark.parametrize(
    ("n", "classes", "seed"), [(1200, 40, 0), (1200, 40, 1), (1200, 40, 2), (6000, 200, 0)]
)
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


def test_the_search_ends_where_moves_one_by_one_end():
    """Within what the seeds of either differ by."""
    weight, _ = planted(240, 12, 11, 0.45, 0)
    walk = network(weight)
    ours = [codelength(walk, communities(weight, s)) for s in range(4)]
    slow = [codelength(walk, one_by_one(walk, s)) for s in range(2)]
    assert min(ours) < min(slow) + 0.01
    assert max(ours) < 1.005 * min(slow)


def one_by_one(walk, seed: int) -> np.ndarray:
    """The plain search: every node in turn goes where L falls most, then every module."""
    rng, n = np.random.default_rng(seed), len(walk.node)
    moves, moved = Moves(walk, np.arange(n)), True
    while moved:
        moved = False
        for i in rng.permutation(n):
            node, goal, _ = moves.best(np.array([i]))
            if len(node):
                module, moved = moves.module.copy(), True
                module[node] = goal
                moves.set(module)
    module, merged = moves.module, True
    while merged:
        merged = False
        for m in np.unique(module):
            options = {codelength(walk, np.where(module == m, o, module)): o for o in np.unique(module)}
            best = options[min(options)]
            if best != m and min(options) < codelength(walk, module) - 1e-10:
                module, merged = np.where(module == m, best, module), True
    return module


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


# -- what stands beside it ---------------------------------------------------------------------------


def test_company_counts_the_others_and_the_labelled_pairs():
    community = np.array([0, 0, 0, 1, 1, -1])
    label = np.array([4, 4, 5, 2, -1, 4])
    positives, precision = partition_stats(community, label)
    assert positives == pytest.approx((3 * 2 + 2 * 1) / 5)
    assert precision == pytest.approx(1 / 3)  # of three pairs in the first community one is of one class
    assert all(math.isnan(x) for x in partition_stats(np.full(3, -1), np.zeros(3, dtype=int)))


def test_infomap_is_asked_for_by_name_and_missed_in_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "infomap", None)
    with pytest.raises(InputError, match="need the package infomap, which is not installed") as error:
        communities(csr_array((3, 3)), 0, "infomap")
    assert "\n" not in str(error.value)


def test_infomap_is_given_the_directed_graph_and_the_seed(monkeypatch):
    """A stand-in with the package's names: it merges nodes 0 and 1 and leaves out the node without links."""
    stand_in = MagicMock()
    stand_in.Infomap.return_value.get_modules.return_value = {0: 7, 1: 7, 2: 1}
    monkeypatch.setitem(sys.modules, "infomap", stand_in)
    found = communities(graph([0, 1], [1, 2], [0.5, 0.25], 4), 4, "infomap")
    np.testing.assert_array_equal(found, [0, 0, 1, 2])
    stand_in.Infomap.assert_called_once_with("--two-level --directed --silent --seed 5")
    search = stand_in.Infomap.return_value
    assert [call.args for call in search.add_node.call_args_list] == [(0,), (1,), (2,), (3,)]
    assert [call.args for call in search.add_link.call_args_list] == [(0, 1, 0.5), (1, 2, 0.25)]
    assert search.mock_calls[-2:] == [mock_call.run(), mock_call.get_modules()]


def blobs(n: int = 6, each: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    truth = torch.arange(n * each) % n
    x = 2 * torch.eye(n, 10)[truth] + 0.1 * torch.randn(n * each, 10, generator=g)
    return x, truth


def test_groups_are_found_and_the_same_call_finds_the_same():
    x, truth = blobs()
    nobody = torch.full_like(truth, -1)
    found, again = (find_concepts(x, nobody, seed=3) for _ in range(2))
    assert torch.equal(found.of, truth)  # numbered by first appearance
    assert torch.equal(found.of, again.of)
    assert (found.count, found.positives) == (6, 8)
    assert math.isnan(found.precision)  # nothing is labelled
    keep = (truth != 2) | (torch.arange(len(truth)) < 12)  # two images of group 2 are outliers
    few = find_concepts(x[keep], nobody[keep], seed=0)
    assert few.count == 5
    assert (few.of[truth[keep] == 2] == -1).all()


def test_means_are_of_raw_features_and_then_of_unit_length():
    x = torch.tensor([[4.0, 0.0], [0.0, 1.0], [5.0, 5.0], [0.0, 2.0]])
    found = Concepts(torch.tensor([0, 0, -1, 1]), 2, 1.0, 1.0)
    expected = torch.tensor([[4.0, 1.0], [0.0, 1.0]]) / torch.tensor([[17.0**0.5], [1.0]])
    torch.testing.assert_close(concept_means(x, found), expected)
    assert concept_means(x, Concepts(torch.full((4,), -1), 0, 0.0, 0.0)).shape == (0, 2)


def test_what_was_said_is_not_said_again(caplog):
    """Their number changes from one search to the next: that is no news."""
    told: set[str] = set()

    def search(count: int) -> list[str]:
        warn_few_concepts(Concepts(torch.zeros(5, dtype=torch.long), count, 4.0, 1.0), 8, told)
        return [record.getMessage() for record in caplog.records]

    assert search(8) == []
    assert len(search(1)) == 1
    assert search(3) == search(9) == search(2)
    assert len(search(7)) == 1
    assert "so the concept loss is 0" in search(0)[1]
    assert len(search(0)) == len(search(1)) == 2


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
