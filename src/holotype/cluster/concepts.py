"""Concepts: communities among the nearest neighbours of all images, as DCCL learns from them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from holotype.cluster.communities import Engine, communities, company, without_small
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
    *,
    neighbours: int = 15,
    least_similarity: float = 0.6,
    smallest: int = 5,
    edges: Edges = "labelled",
    engine: Engine = "own",
    seed: int,
) -> Concepts:
    """Communities of the graph of neighbours with at least `smallest` members; a function of its arguments alone.

    features: (n, D). label: (n,), -1 = unlabelled. neighbours: of an image, itself counted.
    """
    graph = neighbour_graph(features, label, neighbours, least_similarity, edges)
    found = without_small(communities(graph, seed, engine), smallest)
    positives, precision = company(found, label.cpu().numpy())
    count = int(found.max(initial=-1)) + 1
    return Concepts(torch.from_numpy(found).to(label.device), count, positives, precision)


def concept_means(features: Tensor, concepts: Concepts) -> Tensor:
    """(C, D): the mean of the raw features of each concept's images, then unit length."""
    x = at_least_float32(features)
    spare = torch.where(concepts.of < 0, concepts.count, concepts.of)
    total = x.new_zeros(concepts.count + 1, x.shape[1])
    return l2_normalize(total.index_put_((spare,), x, accumulate=True)[:-1])  # the same bits at every call


def tell_few(concepts: Concepts, slots: int, told: set[str]) -> None:
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
            "a lower --method.least_similarity links more of them."
        )
        return
    found = "1 concept was found: it repeats" if n == 1 else f"{n} concepts were found: they repeat"
    log.warning(f"Only {found} to fill the {slots} places of a step.")
