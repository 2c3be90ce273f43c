"""BIA: Bures-isotropy alignment (Tang et al., ICLR 2026), in front of a method.

    L = L_method - weight * ||Z||_* / n

Z holds the unit features of the n unlabelled rows of a step. The sum of its singular values is largest where the rows
use all directions alike, so that classes which are pulled together do not fall onto a few axes.

Differs: the published weight is not known to us; ours is that of a mean over rows. The singular values come from
products alone, so that a step can be captured; those below a thousandth of the largest count less.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from holotype.config.parse import Weight
from holotype.losses.subspace import negative_isotropy
from holotype.methods.base import Batch, Now, Wrapper


@dataclass
class BIAConfig:
    """Settings of BIA."""

    weight: Weight = 0.1
    """Weight of the sum of singular values, a mean over rows."""


class BIA(Wrapper):
    """One more term on the features.

    Title: BIA
    Paper: Luyao Tang, Kunze Huang, Chaoqi Chen, Cheng Chen: Bures-Isotropy Alignment: Manifold Learning of Generalized
        Category Discovery. ICLR 2026
    Summary: Features of unlabelled images are spread over all directions alike.
    Differs:
    - Singular values come from matrix products; the smallest count less.
    - The published weight is not known to us.
    """

    Config = BIAConfig

    def loss(self, batch: Batch, now: Now) -> dict[str, Tensor]:
        f = batch.features[:2].flatten(0, 1)
        isotropy = negative_isotropy(f, ~batch.labelled.repeat(2))
        return {**super().loss(batch, now), "bia": self.config.bia.weight * isotropy}
