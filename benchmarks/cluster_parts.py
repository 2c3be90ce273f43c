"""The part about clustering: communities among neighbours (DCCL), and semi-supervised k-means (GCD and its heirs).

Both see made features, so that nothing needs to be encoded: classes overlap, and all features share a direction, as
those of networks do. How many rounds k-means needs depends on that; the same numbers are made on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import torch
from effort import Clusters, Effort
from measure import Peak, wait
from ours import Bench, free
from torch import Tensor

from holotype.cluster.communities import communities, without_small
from holotype.cluster.kmeans import semi_supervised_centres
from holotype.cluster.neighbours import neighbour_graph
from holotype.machine.device import processors
from holotype.methods.dccl import DCCLConfig
from holotype.training.config import TrainConfig

Row = dict[str, Any]

RANK = 64
"""Directions in which made features differ."""
SPREAD = 1.35
"""Of a class, against the spread of its centres: five of six neighbours are of one class among CUB's numbers."""
OFFSET = 12.0
"""Length of what all features share, against about 8 of a centre."""
REPEATS = 3
"""Searches for communities, of which the median counts."""


def clustering(bench: Bench, effort: Effort) -> Iterator[Row]:
    """On one core, and on the device."""
    bench.drop()
    yield time_communities(effort.communities)
    yield time_kmeans(effort.kmeans, bench.world.device)


def time_communities(size: Clusters) -> Row:
    """Graph and communities, as DCCL finds its concepts between epochs, on one core."""
    c = DCCLConfig()
    features, label = made_features(size)
    with one_core():
        graph_seconds, graph = clocked(
            lambda: neighbour_graph(features, label, c.neighbours, c.least_similarity, c.edges)
        )
        found = [clocked(partial(communities, graph, seed)) for seed in range(REPEATS)]
    search_seconds = median(seconds for seconds, _ in found)
    concepts = without_small(found[0][1], c.smallest)
    return {
        "what": "communities",
        "where": "1 CPU core",
        "images": size.images,
        "dim": size.dim,
        "k": size.classes,
        "detail": f"{graph.nnz:,} links, {int(concepts.max(initial=-1)) + 1:,} communities",
        "graph_seconds": round(graph_seconds, 3),
        "search_seconds": round(search_seconds, 3),
        "seconds": round(graph_seconds + search_seconds, 3),
    }


def time_kmeans(size: Clusters, device: torch.device) -> Row:
    """The clustering that ends GCD, DCCL and PromptCAL, where the features lie on the device."""
    torch.set_float32_matmul_precision(TrainConfig().matmul)  # as in a run
    features, label = (given.to(device) for given in made_features(size))
    draw = torch.Generator().manual_seed(0)
    cluster = partial(
        semi_supervised_centres, features, label, size.classes, n_init=size.starts, generator=draw
    )
    wait(device)
    with Peak(device) as peak:
        seconds, _ = clocked(cluster, device)
    del features, label, cluster
    free()
    return {
        "what": "semi-supervised k-means",
        "where": torch.cuda.get_device_name(device) if device.type == "cuda" else cores(),
        "images": size.images,
        "dim": size.dim,
        "k": size.classes,
        "detail": f"{size.starts} start{'s' * (size.starts != 1)}",
        "seconds": round(seconds, 3),
        **peak.record,
    }


def cores() -> str:
    n = min(processors(), torch.get_num_threads())
    return f"{n} CPU core{'s' * (n != 1)}"


def made_features(size: Clusters) -> tuple[Tensor, Tensor]:
    """(N, D) features, and (N,) class, -1 = unlabelled: half of the classes are known, and half of their images
    labelled."""
    draw = torch.Generator().manual_seed(0)
    known = torch.arange(size.images) % size.classes
    centres = torch.randn(size.classes, RANK, generator=draw)
    noise = torch.randn(size.images, RANK, generator=draw)
    turned = torch.randn(RANK, size.dim, generator=draw) / size.dim**0.5
    shared = torch.nn.functional.normalize(torch.randn(size.dim, generator=draw), dim=0)
    features = (centres[known] + SPREAD * noise) @ turned + OFFSET * shared
    labelled = (known < max(size.classes // 2, 1)) & (torch.rand(size.images, generator=draw) < 0.5)
    return features, torch.where(labelled, known, -1)


def clocked(call: Callable[[], Any], device: torch.device | None = None) -> tuple[float, Any]:
    """Seconds of a call, once it is really done, and what it returned."""
    start = time.perf_counter()
    found = call()
    if device is not None:
        wait(device)
    return time.perf_counter() - start, found


@contextmanager
def one_core() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
