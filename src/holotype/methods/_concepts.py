"""DCCL's concepts: communities of the graph of neighbours (clustering/communities.py), and what they are worth."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holotype.clustering.communities import CommunityEngine, communities, drop_small_communities
from holotype.clustering.knn import Edges, neighbour_graph
from holotype.losses.ops import at_least_float32, l2_normalize

log = logging.getLogger("holotype")


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


def warn_few_concepts(concepts: Concepts, slots: int, told: set[str]) -> None:
    """Say in one line that there are too few concepts to fill the places of a step, or none at all; each once.

    told: which of the two were said before; it takes in what is said now. Their number changes from search to search.
    """
    n = concepts.count
    which = "none" if n == 0 else "few"
    if n >= slots or which in told:
        return
    told.add(which)
    if n == 0:
        log.warning(
            f"No concept was found among {len(concepts.of):,} images, so the concept loss is 0; "
            "a lower --method.least-similarity links more of them."
        )
    else:
        log.warning(f"Concepts found: {n}, fewer than the {slots} places of a step: they repeat in it.")


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
