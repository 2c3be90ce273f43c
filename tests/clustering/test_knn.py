"""The graph of neighbours: the released edges, labels that speak for labelled images only, and no self."""

from pathlib import Path

import numpy as np
import pytest
import torch

from holotype.clustering import knn
from holotype.clustering.knn import nearest_neighbours, neighbour_graph
from tests.data.test_augment import MPS, PretendedMps

GOLDEN = np.load(Path(__file__).parents[1] / "parity/dccl.npz")
GRAPHS = ["blobs12x20", "blobs30x20", "small_and_outliers", "touching_a", "labelled_edges"]


def golden(case: str, name: str) -> np.ndarray:
    return GOLDEN[f"graph_{case}__{name}"]


def edges(graph) -> dict[tuple[int, int], float]:
    links = graph.tocoo()
    return dict(zip(zip(*(x.tolist() for x in links.coords), strict=True), links.data.tolist(), strict=True))


def released(case: str, weight: str = "edge_w") -> dict[tuple[int, int], float]:
    pairs = zip(golden(case, "edge_src").tolist(), golden(case, "edge_dst").tolist(), strict=True)
    return dict(zip(pairs, golden(case, weight).tolist(), strict=True))


def ours(case: str, rule: str = "none", label: np.ndarray | None = None):
    x = torch.from_numpy(golden(case, "features_raw"))
    label = torch.from_numpy(np.full(len(x), -1) if label is None else label)
    return neighbour_graph(x, label, int(golden(case, "k1")), float(golden(case, "min_sim")), rule)


def agree(mine: dict, theirs: dict) -> None:
    assert mine.keys() == theirs.keys()
    keys = sorted(mine)
    np.testing.assert_allclose([mine[k] for k in keys], [theirs[k] for k in keys], rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("case", GRAPHS)
@pytest.mark.parametrize("rule", ["none", "labelled"])
def test_without_labels_the_edges_equal_the_released_ones(case, rule):
    graph = ours(case, rule)
    agree(edges(graph), released(case))
    alone = np.flatnonzero((graph.sum(1) == 0) & (graph.sum(0) == 0))
    np.testing.assert_array_equal(alone, golden(case, "isolated"))


def test_labelled_edges_equal_the_intended_rule():
    """Only labelled pairs of one class weigh more; -1 is no class of its own."""
    true, labelled = golden("labelled_edges", "labels_all_true"), golden("labelled_edges", "labelled")
    graph = ours("labelled_edges", "labelled", np.where(labelled, true, -1))
    agree(edges(graph), released("labelled_edges", "edge_w_intended"))


def test_neighbours_are_exact_in_parts_and_never_oneself(monkeypatch):
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    x[7] = x[3]  # a double: the nearest image of each other
    whole = nearest_neighbours(x, 5)
    monkeypatch.setattr(knn, "CHUNK", 50 * 3)
    parts = nearest_neighbours(x, 5)
    assert torch.equal(whole[1], parts[1])
    assert not (whole[1] == torch.arange(50)[:, None]).any()
    assert whole[1][3, 0] == 7
    cosine = torch.nn.functional.cosine_similarity(x[:, None], x[None], dim=-1).fill_diagonal_(-2)
    torch.testing.assert_close(whole[0], cosine.topk(5).values)


def test_more_neighbours_than_images_are_all_the_others():
    graph = neighbour_graph(torch.eye(3) + 0.1, torch.full((3,), -1), 15, -1.0)
    assert graph.nnz == 6
    assert neighbour_graph(torch.ones(1, 4), torch.tensor([-1]), 15, 0.6).nnz == 0


def test_a_device_without_float64_has_the_same_graph() -> None:
    x, label = torch.randn(30, 6, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 4 - 1
    expected = neighbour_graph(x, label, 6, 0.1)
    with PretendedMps():
        found = neighbour_graph(x.to(MPS), label.to(MPS), 6, 0.1)
    assert edges(found) == edges(expected)
