"""Groups without labels: communities of the graph of neighbours, merged until as many are left as were asked for.

Communities follow the shape and the size of what is there, where k-means makes round clusters of about equal spread.
Which two merge is Ward's rule: those whose union adds least to the sum of squared distances,

    n_a n_b / (n_a + n_b) |m_a - m_b|^2.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from holotype.clustering.class_size import NEIGHBOURS, subsample_rows
from holotype.clustering.communities import communities
from holotype.clustering.knn import neighbour_graph

LINKS = 6
"""Nearest rows that each is linked with: few, so that there are more communities than groups."""


def group_centres(x: Tensor, k: int, seed: int = 0) -> Tensor | None:
    """Return (k, D) means of groups of rows x (N, D) of length 1; None where there are fewer communities."""
    rows = subsample_rows(len(x), NEIGHBOURS, seed).to(x.device)
    if len(rows) <= LINKS:
        return None
    part = x[rows].float()
    alone = torch.full((len(rows),), -1)
    graph = neighbour_graph(part - part.mean(0), alone, LINKS + 1, 0.0)
    community = communities(graph.maximum(graph.T), seed)
    if community.max() + 1 < k:
        return None
    size = np.bincount(community)
    mean = np.zeros((len(size), part.shape[1]))
    np.add.at(mean, community, part.double().cpu().numpy())
    return torch.from_numpy(merge_nearest(mean / size[:, None], size, k)).to(x)


def merge_nearest(mean: np.ndarray, size: np.ndarray, k: int) -> np.ndarray:
    """(k, D) means of what is left of groups with means (J, D) of `size` (J,) members after merging by Ward's rule."""
    mean, n = mean.copy(), size.astype(np.float64)
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
        gone = np.setdiff1d(np.arange(len(n)), left)
        costs[a] = cost(int(a))
        costs[a, gone] = np.inf
        costs[:, a], costs[b], costs[:, b] = costs[a], np.inf, np.inf
    return mean[left]
