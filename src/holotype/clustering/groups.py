"""Groups of the graph of neighbours: DCCL's concepts, and groups without labels.

Communities (communities.py) follow the shape and the size of what is there, where k-means makes round clusters of about
equal spread. Without labels they are merged until as many are left as were asked for, by Ward's rule: those whose
union adds least to the sum of squared distances,

    n_a n_b / (n_a + n_b) |m_a - m_b|^2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.clustering.class_size import NEIGHBOURS, subsample_rows
from holotype.clustering.communities import CommunityEngine, communities, drop_small_communities
from holotype.clustering.knn import Edges, neighbour_graph
from holotype.losses.ops import at_least_float32, l2_normalize

LINKS = 6
"""Nearest rows that each is linked with: few, so that there are more communities than groups."""


def group_centres(x: Tensor, k: int, seed: int = 0) -> Tensor | None:
    """Return (k, D) means of groups of rows x (N, D) of length 1; None where there are fewer communities."""
    rows = subsample_rows(len(x), NEIGHBOURS, seed).to(x.device)
    if len(rows) <= LINKS:
        return None
    part = x[rows].float()
    apart = F.normalize(part - part.mean(0), dim=-1)
    graph = neighbour_graph(apart, torch.full((len(rows),), -1), LINKS + 1, 0.0)
    community = communities(graph.maximum(graph.T), seed)
    size = np.bincount(community)
    if len(size) < k:
        return None
    group = merge_nearest(_means(apart, community), size, k)[community]
    return torch.from_numpy(_means(part, group)).to(x)


def _means(x: Tensor, group: np.ndarray) -> np.ndarray:
    """(J, D) means of the rows of each group, none of which is empty."""
    total = np.zeros((group.max() + 1, x.shape[1]))
    np.add.at(total, group, x.double().cpu().numpy())
    return np.asarray(total / np.bincount(group)[:, None])


def merge_nearest(mean: np.ndarray, size: np.ndarray, k: int) -> np.ndarray:
    """(J,) the group below k of each of J groups, with means (J, D) of `size` (J,) members, merged by Ward's rule."""
    mean, n, group = mean.copy(), size.astype(np.float64), np.arange(len(size))
    left = list(range(len(n)))

    def cost(a: int) -> np.ndarray:
        apart = ((mean - mean[a]) ** 2).sum(axis=1) * n * n[a] / (n + n[a])
        apart[a] = np.inf
        return apart

    costs = np.stack([cost(a) for a in left])
    while len(left) > k:
        a, b = np.unravel_index(costs.argmin(), costs.shape)
        mean[a] = (n[a] * mean[a] + n[b] * mean[b]) / (n[a] + n[b])
        n[a] += n[b]
        left.remove(int(b))
        group[group == b] = a
        gone = np.setdiff1d(np.arange(len(n)), left)
        costs[a] = cost(int(a))
        costs[a, gone] = np.inf
        costs[:, a], costs[b], costs[:, b] = costs[a], np.inf, np.inf
    return np.searchsorted(left, group)


@dataclass(frozen=True)
class Concepts:
    """What was found among n images."""

    of: Tensor
    """(n,) long: the concept of each image, -1 = none (an outlier)."""
    count: int
    positives: float
    """Other images in the concept of an image, on average over those that have one; NaN without concepts."""
    precision: float
    """Of the pairs of labelled images in one concept, the share of one class; NaN where there is none. Where edges
    follow labels, these have helped it."""


def find_concepts(
    features: Tensor,
    label: Tensor,
    neighbours: int = 15,
    least_similarity: float = 0.6,
    smallest: int = 5,
    edges: Edges = "labelled",
    engine: CommunityEngine = "own",
    *,
    seed: int,
) -> Concepts:
    """Communities of the graph of neighbours with at least `smallest` members; a function of its arguments alone.

    features: (n, D). label: (n,), -1 = unlabelled. neighbours: of an image, itself counted.
    """
    graph = neighbour_graph(features, label, neighbours, least_similarity, edges)
    found = drop_small_communities(communities(graph, seed, engine), smallest)
    positives, precision = partition_stats(found, label.cpu().numpy())
    count = int(found.max(initial=-1)) + 1
    return Concepts(torch.from_numpy(found).to(label.device), count, positives, precision)


def concept_means(features: Tensor, concepts: Concepts) -> Tensor:
    """(C, D): the mean of the raw features of each concept's images, then unit length."""
    x = at_least_float32(features)
    spare = torch.where(concepts.of < 0, concepts.count, concepts.of)
    total = x.new_zeros(concepts.count + 1, x.shape[1])
    return l2_normalize(total.index_put_((spare,), x, accumulate=True)[:-1])  # the same bits at every call


def partition_stats(community: np.ndarray, label: np.ndarray) -> tuple[float, float]:
    """What a partition says of its members: how many others each has in its community, on average, and of the pairs of
    labelled images in one community the share that is of one class. NaN where there is nothing to count.

    community, label: (n,), -1 = none.
    """
    size = np.bincount(community[community >= 0])
    named = (community >= 0) & (label >= 0)
    kinds, count = np.unique(np.stack([community[named], label[named]]), axis=1, return_counts=True)
    together = np.bincount(kinds[0], count)
    pairs, alike = (together * (together - 1)).sum(), (count * (count - 1)).sum()
    return (
        float((size * (size - 1)).sum() / size.sum()) if size.sum() else float("nan"),
        float(alike / pairs) if pairs else float("nan"),
    )
