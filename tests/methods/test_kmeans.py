"""The k-means baseline: it clusters the unlabelled images alone, and labels only name what it found."""

import pytest
import torch

from holotype.data.samplers import keyed_generator
from holotype.methods import Images, Task
from holotype.methods.kmeans import KMeans, KMeansConfig

N_KNOWN, K, DIM, EACH = 3, 5, 8, 12


class Blobs:
    """Five far blobs of 12 rows in mixed order; half of the rows of three of them are labelled."""

    def __init__(self, noise: float = 0.1) -> None:
        g = torch.Generator().manual_seed(0)
        self.truth = torch.randperm(K * EACH, generator=g) % K
        self.x = 5 * torch.eye(K, DIM)[self.truth] + noise * torch.randn(K * EACH, DIM, generator=g)
        self.labelled = (self.truth < N_KNOWN) & (torch.rand(K * EACH, generator=g) < 0.5)
        self.label = torch.where(self.labelled, self.truth, -1)


def cluster(x: torch.Tensor, label: torch.Tensor) -> tuple[KMeans, torch.Tensor]:
    method = KMeans(KMeansConfig(), Task(N_KNOWN, K, x.shape[1], len(x), int((label >= 0).sum())))
    method.finish(Images(torch.arange(len(x)), label, len(x), keyed_generator("test"), lambda: x))
    return method, method.predict(x).category


def partition(category: torch.Tensor) -> set[frozenset[int]]:
    """The clusters as sets of rows, whatever their names."""
    return {frozenset((category == c).nonzero().flatten().tolist()) for c in category.unique()}


@pytest.mark.parametrize("seed", range(2))
def test_labels_never_move_a_cluster(seed):
    blobs = Blobs(noise=3.0)  # so near each other that a label would make a difference if it could
    method, category = cluster(blobs.x, blobs.label)
    rows = blobs.labelled.nonzero().flatten()
    label = blobs.label.clone()
    label[rows] = label[rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]]
    assert not torch.equal(label, blobs.label)
    other_method, other = cluster(blobs.x, label)
    assert partition(other) == partition(category)
    order = torch.cdist(other_method.centres, method.centres).argmin(dim=1)
    assert sorted(order.tolist()) == list(range(K))
    assert torch.equal(other_method.centres, method.centres[order])


def test_the_first_categories_are_the_known_classes_by_name():
    blobs = Blobs()
    _, category = cluster(blobs.x, blobs.label)
    assert torch.equal(category[blobs.truth < N_KNOWN], blobs.truth[blobs.truth < N_KNOWN])
    assert (category[blobs.truth >= N_KNOWN] >= N_KNOWN).all()
