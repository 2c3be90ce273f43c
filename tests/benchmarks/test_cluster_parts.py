"""Clustering, measured: the features are like those of networks, and the sizes are told."""

from __future__ import annotations

import pytest
import torch
from cluster_parts import made_features, one_core, time_communities, time_kmeans
from effort import CUB, EFFORTS, IMAGENET_100, Clusters

from holotype.cluster.neighbours import nearest


def test_made_features_are_neither_trivial_nor_hopeless() -> None:
    """Neighbours are mostly of one class, not all of them, and near enough to be linked."""
    features, label = made_features(CUB)
    assert features.shape == (6000, 384)
    cosine, neighbour = nearest(features, 14)
    of = torch.arange(6000) % 200
    assert 0.4 < float((of[neighbour] == of[:, None]).float().mean()) < 0.8
    assert float((cosine >= 0.6).float().mean()) > 0.95
    assert 0.2 < float((label >= 0).float().mean()) < 0.3
    assert int(label.max()) == 99
    assert torch.equal(made_features(CUB)[0], features)


def test_communities_are_timed_on_one_core(monkeypatch) -> None:
    threads = []
    real = time_communities.__globals__["communities"]
    monkeypatch.setitem(
        time_communities.__globals__,
        "communities",
        lambda *given: threads.append(torch.get_num_threads()) or real(*given),
    )
    row = time_communities(Clusters(300, 32, 10))
    assert threads == [1, 1, 1]
    assert row["seconds"] == pytest.approx(row["graph_seconds"] + row["search_seconds"], abs=2e-3)
    assert (row["images"], row["dim"], row["k"], row["where"]) == (300, 32, 10, "1 CPU core")
    assert "links" in row["detail"]


def test_threads_are_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="stop"), one_core():
        raise ValueError("stop")
    assert torch.get_num_threads() == before


def test_kmeans_takes_its_sizes_and_says_them() -> None:
    row = time_kmeans(Clusters(200, 16, 5, starts=3), torch.device("cpu"))
    assert (row["images"], row["dim"], row["k"], row["detail"]) == (200, 16, 5, "3 starts")
    assert row["seconds"] > 0
    assert row["host_bytes"] > 0
    assert "CPU core" in row["where"]


def test_the_sizes_on_a_gpu_are_those_of_the_benchmarks() -> None:
    assert EFFORTS["cuda"].kmeans == IMAGENET_100 == Clusters(127_000, 768, 100, starts=100)
    assert EFFORTS["cuda"].communities == CUB == EFFORTS["cpu"].communities
