"""k-means on the backbone's features: the floor that every method must clear.

MacQueen (1967), as the GCD papers use it: L2-normalised features of the unlabelled images, K clusters,
the best of `n_init` starts. No label takes part in the clustering; the labelled images only name the
clusters afterwards, each known class one cluster, so that its categories read like those of other methods.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.clustering.groups import group_centres
from holotype.clustering.kmeans import kmeans
from holotype.config.parse import Count, RepeatCount
from holotype.methods.base import SOFTNESS, Images, NearestCentreMethod, Prediction, Stage

LEAST_CLASSES = 2
"""Known classes below which nothing is compared with k-means."""


@dataclass
class KMeansConfig:
    """Settings of the k-means baseline."""

    n_init: RepeatCount = 10
    """Number of random starts; the one with the lowest inertia is kept."""
    max_iter: Count = 300
    """Largest number of iterations of a start."""


class KMeans(NearestCentreMethod):
    """No stages: the loop encodes every image once and `finish` clusters.

    Title: k-means
    Paper: James MacQueen: Some Methods for Classification and Analysis of Multivariate Observations. Berkeley
        Symposium on Mathematical Statistics and Probability, 1967
    Summary: Clusters the backbone's features of the unlabelled images as they are; nothing is trained.
    Differs:
    - Labels only name the clusters afterwards, one for each known class.
    """

    Config = KMeansConfig
    config: KMeansConfig

    def stages(self) -> list[Stage]:
        return []

    def finish(self, images: Images) -> None:
        features, label = images.features(), images.label
        if self.task.n_known < LEAST_CLASSES:  # a discovery without labels: groups to name, and no baseline
            groups = group_centres(F.normalize(features, dim=-1), self.task.k)
            if groups is not None:
                self.centres.copy_(groups[self._known_first(features, label, groups)])
                return
        unlabelled = torch.argsort((label >= 0).to(torch.int8), stable=True)[: int((label < 0).sum())]
        found = kmeans(
            F.normalize(features.index_select(0, unlabelled), dim=-1),
            self.task.k,
            n_init=self.config.n_init,
            max_iter=self.config.max_iter,
            generator=images.generator,
        )
        self.centres.copy_(found.centres[self._known_first(features, label, found.centres)])

    def _known_first(self, features: Tensor, label: Tensor, centres: Tensor) -> Tensor:
        """(K,) order of the clusters: first the one that each known class's labelled images agree on most."""
        from scipy.optimize import linear_sum_assignment  # takes a third of a second to import

        nearest = torch.cdist(F.normalize(features, dim=-1), centres).argmin(dim=-1)
        votes = np.zeros((self.task.n_known, self.task.k))
        known, cluster_of = label.cpu().numpy(), nearest.cpu().numpy()
        np.add.at(votes, (known[known >= 0], cluster_of[known >= 0]), 1)
        _, cluster = linear_sum_assignment(votes, maximize=True)
        rest = np.setdiff1d(np.arange(self.task.k), cluster)
        return torch.from_numpy(np.concatenate([cluster, rest])).to(centres.device)

    def predict(self, features: Tensor) -> Prediction:
        distance = torch.cdist(F.normalize(features, dim=-1), self.centres)
        probability, category = (-(distance**2) / SOFTNESS).softmax(dim=-1).max(dim=-1)
        return Prediction(category, probability, torch.full_like(probability, float("nan")))
