"""Class imbalance: are the categories of very different sizes?

Two questions, and both must be answered with yes:

1. Do the labelled classes differ in size more than chance would have it? The spread of their l_c labelled images is
       s^2 = max(0, var(l) / mean(l)^2 - 1 / mean(l)),
   the second term being what drawing alone does. s = 1/3 is what sizes have that fall from 3 to 1 in equal ratios.
2. Do the images around them differ likewise? People may have labelled more of one class than of another. If the labels
   are a random draw, the share of labelled ones among the images near a labelled image is the same in large and in
   small classes; if all classes are equally large, it is as different as the labels are. Let r be that share among the
   nearest images that are no strangers (class_size.py counts those out), over the half of the classes with the most
   labels and over the other half. With b = log(r_large / r_small) / log(l_large / l_small), a random draw has b = 0,
   and labels that nobody drew have b = 1. Below 1/2 the images agree with the labels.

What it cannot see: sizes of new classes, which are taken to differ as those of known ones do; and collections in
which each class has the same number of labels, where there is nothing to compare. docs/how-many.md has the rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from holotype.clustering.estimate_k import subsample
from holotype.clustering.knn import nearest_neighbours

SPREAD = 1 / 3
"""s from which sizes count as different."""
DRAWN = 0.5
"""b below which labels count as a random draw."""
NEAREST = (3, 5, 8, 12)
"""Images near a labelled one that are looked at; the mean of the four is taken."""
LOOKED_AT = 20_000
"""Images, at most."""
LEAST_CLASSES, LEAST_LABELS = 4, 4.0
"""Known classes, and labelled images of a class in the mean, below which nothing can be told."""


@dataclass(frozen=True)
class ClassImbalance:
    """What the labels say of sizes."""

    low: int
    """Labelled images of the smallest known class."""
    high: int
    """Of the largest."""
    spread: float
    """s; NaN where there are too few labels."""
    bias: float
    """b; NaN where it was not asked."""

    @property
    def uneven(self) -> bool:
        return self.spread >= SPREAD and self.bias < DRAWN

    @property
    def words(self) -> str:
        if math.isnan(self.spread):
            return (
                "there are too few labels to tell whether categories differ in size: equal sizes are expected"
            )
        if self.low == self.high:
            return f"each known class has {self.low:,} labelled images, so equal sizes are expected"
        sizes = f"{self.low:,} to {self.high:,} labelled images"
        if self.spread < SPREAD:
            return f"known classes have {sizes}, no large difference, so equal sizes are expected"
        if self.uneven:
            return (
                f"known classes have {sizes}, and unlabelled ones near them in proportion, so different sizes are "
                "expected"
            )
        return (
            f"known classes have {sizes}, but the unlabelled ones near them do not differ so: equal sizes are "
            "expected"
        )


def measure_imbalance(features: Tensor, label: Tensor, n_known: int, seed: int = 0) -> ClassImbalance:
    """features: (N, D) of the frozen backbone. label: (N,) long, -1 = unlabelled."""
    size = np.bincount(label[label >= 0].cpu().numpy(), minlength=n_known)
    size = size[size > 0].astype(float)
    low, high = (int(size.min()), int(size.max())) if len(size) else (0, 0)
    if len(size) < LEAST_CLASSES or size.mean() < LEAST_LABELS:
        return ClassImbalance(low, high, math.nan, math.nan)
    spread = math.sqrt(max(0.0, float(size.var(ddof=1) / size.mean() ** 2 - 1 / size.mean())))
    if spread < SPREAD:
        return ClassImbalance(low, high, spread, math.nan)
    x, own = subsample(features.float(), label, LOOKED_AT, seed)
    return ClassImbalance(low, high, spread, _bias(x, own.cpu().numpy()))


def _bias(features: Tensor, label: np.ndarray) -> float:
    """b. label: (N,), -1 = unlabelled."""
    classes, size = np.unique(label[label >= 0], return_counts=True)
    order, half = classes[np.argsort(size, kind="stable")], len(classes) // 2
    few, many = order[:half], order[-half:]
    most = min(max(NEAREST), len(label) - 1)
    near = nearest_neighbours(features - features.mean(0), most)[1].cpu().numpy()
    stands_for = len(label) / int(size.sum())
    ratio = [
        math.log(
            _labelled_share(near[:, :m], label, many, stands_for)
            / _labelled_share(near[:, :m], label, few, stands_for)
        )
        for m in NEAREST
        if m <= most
    ]
    mean = {name: float(size[np.isin(classes, part)].mean()) for name, part in (("few", few), ("many", many))}
    # the image itself is neither its own neighbour nor counted
    expected = math.log((mean["many"] - 0.5) / (mean["few"] - 0.5))
    return float(np.mean(ratio)) / max(expected, 1e-9)


def _labelled_share(near: np.ndarray, label: np.ndarray, classes: np.ndarray, stands_for: float) -> float:
    """Of the images near the labelled ones of some classes that are no strangers, the share with their label.

    stands_for: images of other classes that a labelled one among them speaks for.
    """
    rows = np.flatnonzero(np.isin(label, classes))
    theirs, mine = label[near[rows]], label[rows][:, None]
    same = float((theirs == mine).sum()) + 0.5
    other = float(((theirs >= 0) & (theirs != mine)).sum())
    return same / max(theirs.size - stands_for * other, same)
