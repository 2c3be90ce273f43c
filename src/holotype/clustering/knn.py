"""The k-nearest-neighbour graph of features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from holotype.clustering.kmeans import CHUNK
from holotype.losses.ops import at_least_float32, exact_inner, l2_normalize

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Edges = Literal["labelled", "none"]


@torch.no_grad()
def neighbour_graph(
    features: Tensor, label: Tensor, k: int, least_similarity: float, edges: Edges = "labelled"
) -> csr_array:
    """(n, n) weights: i -> j, by their cosine, where j is among the k nearest to i, itself counted.

    edges = "labelled": two labelled images have an edge only if they are of one class, and it weighs as much
    as the best of i. An image without a label never decides anything by its class.
    features: (n, D), normalised here. label: (n,), -1 = unlabelled. least_similarity: of an edge.
    """
    from scipy.sparse import csr_array

    similarity, neighbour = nearest_neighbours(features, min(k - 1, len(features) - 1))
    keep = (similarity >= least_similarity) & (similarity > 0)
    if edges == "labelled":
        label = label.to(neighbour.device)
        mine, theirs = label[:, None], label[neighbour]
        both, same = (mine >= 0) & (theirs >= 0), mine == theirs
        weight = torch.where(both & same, similarity[:, :1], similarity)
        keep &= ~both | same
    else:
        weight = similarity
    n = len(features)
    source = torch.arange(n, device=keep.device)[:, None].expand_as(keep)
    values, rows, columns = (x[keep].cpu().numpy() for x in (weight, source, neighbour))
    return csr_array((values.astype(np.float64), (rows, columns)), shape=(n, n))


def nearest_neighbours(features: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Cosines and rows of the k images nearest to each, itself left out, best first. (n, D) -> twice (n, k)."""
    x, cosines, rows = l2_normalize(at_least_float32(features)), [], []
    for part in torch.arange(len(x), device=x.device).split(max(1, CHUNK // len(x))):
        # ten bits, which are enough for a loss, are not enough to tell neighbours apart
        best = exact_inner(x[part], x).scatter(1, part[:, None], -torch.inf).topk(k, dim=1)
        cosines.append(best.values)
        rows.append(best.indices)
    return torch.cat(cosines), torch.cat(rows)
