"""Groups without labels: communities of the graph of neighbours, merged until as many are left as were asked for.

Communities follow the shape and the size of what is there, where k-means makes round clusters of about equal spread.
Which two merge is Ward's rule: those whose union adds least to the sum of squared distances,

    n_a n_b / (n_a + n_b) |m_a - m_b|^2.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
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
