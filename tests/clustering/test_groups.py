"""Groups without labels: communities of neighbours, merged."""

import numpy as np
import torch

from holotype.clustering.groups import group_centres, merge_nearest
from holotype.methods import Images, Task
from holotype.methods.kmeans import KMeans, KMeansConfig


def blobs(sizes: list[int], dim: int = 16, noise: float = 0.05) -> tuple[torch.Tensor, np.ndarray]:
    g = torch.Generator().manual_seed(0)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    x = torch.eye(dim)[truth] + noise * torch.randn(len(truth), dim, generator=g)
    return torch.nn.functional.normalize(x, dim=-1), truth


def test_groups_follow_unequal_sizes() -> None:
    x, truth = blobs([200, 40, 12, 12])
    centres = group_centres(x, 4)
    assert centres is not None
    nearest = torch.cdist(x, centres).argmin(dim=1).numpy()
    assert {tuple(np.unique(nearest[truth == c])) for c in range(4)} == {(0,), (1,), (2,), (3,)}


def test_more_groups_than_communities_are_left_to_kmeans() -> None:
    x, _ = blobs([12, 12])
    assert group_centres(x, 20) is None
    assert group_centres(x[:5], 2) is None
    method = KMeans(KMeansConfig(), Task(0, 20, x.shape[1], len(x), 0))
    nobody = torch.full((len(x),), -1)
    method.finish(Images(torch.arange(len(x)), nobody, len(x), torch.Generator(), lambda: x))
    assert len(set(method.predict(x).category.tolist())) > 2


def test_what_merges_adds_least_to_the_squares() -> None:
    random = np.random.default_rng(0)
    mean, size = random.normal(size=(9, 3)), random.integers(1, 20, 9)

    def spread(groups: list[list[int]]) -> float:
        centres = [np.average(mean[g], axis=0, weights=size[g]) for g in groups]
        return sum(
            float((size[g] * ((mean[g] - c) ** 2).sum(1)).sum()) for g, c in zip(groups, centres, strict=True)
        )

    groups = [[one] for one in range(9)]
    while len(groups) > 4:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a)]
        merged = {
            p: [g for i, g in enumerate(groups) if i not in p] + [groups[p[0]] + groups[p[1]]] for p in pairs
        }
        a, b = min(pairs, key=lambda p, merged=merged: spread(merged[p]))
        groups = [g for i, g in enumerate(groups) if i not in (a, b)] + [groups[a] + groups[b]]
    found = merge_nearest(mean, size, 4)
    assert {frozenset(np.flatnonzero(found == g)) for g in range(4)} == {frozenset(g) for g in groups}
