"""The k-means baseline: it clusters the unlabelled images alone."""

import torch

from holotype.data.sampling import keyed_generator
from holotype.methods import Task
from holotype.methods.kmeans import KMeans, KMeansConfig


def test_it_sees_the_unlabelled_rows_only():
    g = torch.Generator().manual_seed(0)
    centres = torch.eye(4, 8) * 5
    x = centres[torch.arange(40) % 4] + 0.1 * torch.randn(40, 8, generator=g)
    far = torch.full((10, 8), -7.0)
    label = torch.cat([torch.full((40,), -1), torch.zeros(10, dtype=torch.long)])
    method = KMeans(KMeansConfig(), Task(2, 4, 8, 50, 10))
    method.finish(torch.cat([x, far]), label, keyed_generator("test"))
    placed = method.predict(x)
    groups = {tuple(placed.category[i::4].tolist()) for i in range(4)}
    assert all(len(set(group)) == 1 for group in groups)
    assert len(groups) == 4
    cosine = torch.nn.functional.cosine_similarity(method.centres, far[:1])
    assert cosine.max() < 0
    assert placed.known_score.isnan().all()
