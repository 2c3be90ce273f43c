"""CMS: contrastive mean-shift learning (Choi, Kang and Cho, CVPR 2024), a published method outside the package.

    z_i = normalise((1 - alpha) v_i + alpha * mean_{j in N(i)} v_j),    L = (1 - lam) L_con_u(z) + lam L_con_s(z)

GCD's two terms, but an embedding v_i takes one step of mean shift before it is compared: towards the mean of the k = 8
images nearest to its own. Neighbours and their embeddings come from a bank of all images that is made once an epoch.

Differs: K is given, and images are placed by semi-supervised k-means, as in GCD; the paper clusters embeddings that are
shifted many times agglomeratively and finds K by the way. The bank holds projections of the centre crops.
From the top of the repository:

    PYTHONPATH=examples holotype train cms:CMS fashion-sample --method.alpha 0.5 --train.epochs 20
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from holotype.clustering.kmeans import semi_supervised_centres
from holotype.clustering.knn import nearest_neighbours
from holotype.losses.contrastive import info_nce, sup_con
from holotype.losses.ops import l2_normalize
from holotype.methods import Batch, Card, Images, Now, Stage, Task
from holotype.methods.base import NearestCentreMethod
from holotype.models.heads import Projector

GENERIC = ("cifar10", "cifar100", "cifar100-200", "imagenet100")


@dataclass
class CMSConfig:
    """Settings of CMS."""

    lam: float = 0.35
    """Weight of the supervised contrastive term; the unsupervised one gets 1 - lam."""
    alpha: float = 0.5
    """How far an embedding is shifted towards the mean of its neighbours; 0 is GCD."""
    k: int = 8
    """Neighbours that make the mean."""
    tau: float = 0.25
    """Temperature of the unsupervised term."""


class CMS(NearestCentreMethod):
    """A projector, and for every image the mean embedding of its neighbours."""

    Config = CMSConfig
    config: CMSConfig
    recipes: ClassVar[dict[str, dict[str, Any]]] = {
        "*": {"train.lr": 0.05},
        **{name: {"train.lr": 0.01} for name in GENERIC},
    }
    card = Card(
        title="CMS",
        paper="Sua Choi, Dahyun Kang, Minsu Cho: Contrastive Mean-Shift Learning for Generalized Category Discovery. "
        "CVPR 2024",
        year=2024,
        line="GCD, with each embedding shifted towards its nearest neighbours before it is compared.",
        differs=("K is given, and semi-supervised k-means places the images.",),
    )
    around: Tensor

    def __init__(self, config: CMSConfig, task: Task) -> None:
        super().__init__(config, task)
        self.projector = Projector(task.dim)
        self.register_buffer("around", torch.zeros(task.n_images, 256))

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        v = l2_normalize(self.projector(images.features()))  # (n, 256), the bank
        _, neighbour = nearest_neighbours(v, min(self.config.k, len(v) - 1))
        self.around.copy_(images.spread(v[neighbour].mean(1)))

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        c, v = self.config, l2_normalize(self.projector(batch.features))  # (2, B, 256)
        z = (1 - c.alpha) * v + c.alpha * self.around.index_select(0, batch.image)  # the losses normalise
        return {
            "con_u": (1 - c.lam) * info_nce(z, c.tau),
            "con_s": c.lam * sup_con(z, batch.label, batch.labelled),
        }

    def finish(self, images: Images) -> None:
        found = semi_supervised_centres(
            images.features(), images.label, self.task.k, n_init=10, generator=images.generator
        )
        self.centres.copy_(found)
