"""A method of one's own, outside the package: prototypes that start well, and neighbours that agree.

    L = con * L_con_u + L_cls_s + near * L_near + L_me,    L_near = -mean_i log <p_i, p_n(i)>

The classifier's K prototypes start at the centres of semi-supervised k-means. n(i) is the image of the batch
whose features lie nearest to those of image i: both should fall into the same category (the idea of SCAN,
Van Gansbeke et al. 2020). The mean-entropy term L_me keeps all K in use. From the top of the repository:

    PYTHONPATH=examples holotype train my_method:Mine fashion-sample --method.near 0.5 --train.epochs 20

An edited file is another method: its runs start anew, in another `--out`.
To change the network, write `build_encoder(trunk, tail)`: the features are `tail(inputs)` in a stage on tokens, as
here, and `tail(trunk(images))` in one on images.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from holotype.clustering.kmeans import semi_supervised_kmeans
from holotype.losses.classification import mean_entropy_deficit, supervised_cross_entropy
from holotype.losses.contrastive import info_nce
from holotype.methods import Batch, Images, Method, Now, Stage, Task
from holotype.models.heads import CosineClassifier, Projector


@dataclass
class MineConfig:
    """Settings of Mine; each is a flag, and the sentence under it is the flag's help."""

    con: float = 0.5
    """Weight of the contrastive term."""
    near: float = 1.0
    """Weight of the agreement between neighbours."""
    tau: float = 0.1
    """Temperature of the classifier."""


class Mine(Method):
    """A projector for the contrastive term, a prototype per category for the rest."""

    Config = MineConfig
    config: MineConfig

    def __init__(self, config: MineConfig, task: Task) -> None:
        super().__init__(config, task)
        self.projector = Projector(task.dim)
        self.classifier = CosineClassifier(task.dim, task.k)

    def before_epoch(self, stage: Stage, epoch: int, images: Images) -> None:
        if epoch > 0:
            return
        f, labelled = F.normalize(images.features(), dim=-1), images.label >= 0  # (n, D), (n,)
        found = semi_supervised_kmeans(
            f[~labelled], f[labelled], images.label[labelled], self.task.k, generator=images.generator
        )
        self.classifier.v.copy_(found.centres)

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        c, f = self.config, batch.features  # (2, B, D): two weak views of each image
        q = self.classifier(f)
        return {
            "con": c.con * info_nce(self.projector(f)),
            "cls_s": supervised_cross_entropy(q, batch.label, batch.labelled, c.tau),
            "near": c.near * self.agreement(f, q, batch.image),
            "me": mean_entropy_deficit(q, c.tau),
        }

    def agreement(self, f: Tensor, q: Tensor, image: Tensor) -> Tensor:
        """L_near. f: (2, B, D) features, q: (2, B, K) cosines, image: (B,) rows of the table."""
        direction = F.normalize(f.detach().mean(0), dim=-1)
        itself = image[:, None] == image[None, :]  # an image may be drawn twice
        nearest = (direction @ direction.T).masked_fill(itself, -1).argmax(-1)
        p = (q / self.config.tau).softmax(-1)
        # One view against the other view of the neighbour, so that a shared crop explains nothing.
        return -(p[0] * p[1].index_select(0, nearest)).sum(-1).clamp_min(1e-8).log().mean()

    def logits(self, features: Tensor) -> Tensor:
        """(N, D) -> (N, K); images are placed by the largest, and `holotype export` writes them."""
        return self.classifier(features) / self.config.tau
