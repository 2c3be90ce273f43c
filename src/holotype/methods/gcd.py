"""GCD: contrastive learning and semi-supervised k-means (Vaze et al., CVPR 2022), the first method of the task.

    L = (1 - lam) * L_con_u + lam * L_con_s

over two weak views: InfoNCE of all images at temperature 1.0, supervised contrast of the labelled ones at 0.07, both
on the normalised output of a DINO head with 65 536 directions. Afterwards semi-supervised k-means on the features
below the head, the best of 100 starts: labelled images stay with their class.

Differs: the last epoch is used, where the paper picks the one with the best accuracy on held-out images of known
classes; weight decay spares biases, as everywhere here; an empty cluster is seeded anew instead of becoming NaN.
`proj_out` below 65 536 (or 0, none: the 256 outputs of the bottleneck) trains faster and is not the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from holotype.clustering.kmeans import semi_supervised_centres
from holotype.config.parse import Count, RepeatCount, UnitInterval, Width
from holotype.errors import InputError
from holotype.losses.contrastive import info_nce, sup_con
from holotype.methods.base import Batch, Images, NearestCentreMethod, Now, Task
from holotype.methods.simgcd import TAU_S, TAU_U
from holotype.models.heads import GCDHead


@dataclass
class GCDConfig:
    """Settings of GCD."""

    lam: UnitInterval = 0.35
    """Weight of the supervised contrastive term; the unsupervised one gets 1 - lam."""
    proj_out: Width = 65_536
    """Outputs of the contrastive head; fewer are faster, 0 stops at its bottleneck of 256."""
    n_init: RepeatCount = 100
    """Random starts of the k-means at the end; the one with the lowest inertia is kept."""
    max_iter: Count = 200
    """Largest number of iterations of a start."""


class GCD(NearestCentreMethod):
    """The contrastive head on the tail's features; centres at the end.

    Title: GCD
    Paper: Sagar Vaze, Kai Han, Andrea Vedaldi, Andrew Zisserman: Generalized Category Discovery. CVPR 2022
    Summary: Contrastive learning on all images and on labels, then k-means in which labelled images stay with their
        class.
    Differs:
    - The last epoch is used, not the best one on held-out images of known classes.
    - A cluster that runs empty gets a new seed.
    - The rate rises over the first twentieth of the epochs; --train.warmup 0 takes that back.
    """

    Config = GCDConfig
    config: GCDConfig
    presets: ClassVar[dict[str, dict[str, Any]]] = {"light": {"proj_out": 0}}

    def __init__(self, config: GCDConfig, task: Task) -> None:
        super().__init__(config, task)
        self.head = GCDHead(task.dim, out=config.proj_out or None)

    def check(self) -> list[str]:
        """Every centre of a new category begins at an image without a label: too few would be told after training."""
        new, there = self.task.k - self.task.n_known, self.task.n_unlabelled
        if new > there:
            raise InputError(
                f"k = {self.task.k} asks for {new:,} new categories, and only {there:,} images have no label; lower k."
            )
        return []

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        return self.contrast(self.head(batch.features[:2]), batch)

    def contrast(self, z: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The two weighted terms. z: (2, B, out) of the two views."""
        lam = self.config.lam
        return {
            "con_u": (1 - lam) * info_nce(z, TAU_U),
            "con_s": lam * sup_con(z, batch.label, batch.labelled, TAU_S),
        }

    def finish(self, images: Images) -> None:
        search = {"n_init": self.config.n_init, "max_iter": self.config.max_iter}
        centres = semi_supervised_centres(
            images.features(), images.label, self.task.k, **search, generator=images.generator
        )
        self.centres.copy_(centres)
