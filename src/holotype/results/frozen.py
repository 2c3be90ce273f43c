"""Partitions by the frozen backbone alone: semi-supervised k-means, which vote beside the trainings.

They cost seconds. Where labels are few, training pulls images of known classes into new categories, and these votes
hold them; where labels are many, training is better, and `discovery/rehearsal.py` says so from the labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from holotype.clustering.kmeans import semi_supervised_centres
from holotype.data.table import first_frames
from holotype.methods.base import SOFTNESS
from holotype.results.calibration import HiddenLabels
from holotype.results.ensemble import Training
from holotype.results.lda import finite_rows

STARTS = 3
"""Of each partition; the one with the lowest inertia is taken."""
FIT_ROWS = 20_000
"""Images that centres are found from, at most; the others go to the nearest."""


MINOR = 0.05
"""Weight of a vote that only breaks ties."""
BLENDS: dict[str, tuple[float, float]] = {
    "together": (1.0, 1.0),
    "trainings": (1.0, MINOR),
    "frozen": (MINOR, 1.0),
}
"""Weight of the votes of trainings, and of partitions by frozen features."""
WORDS = {
    "together": "Trainings and k-means on the frozen features place the images together",
    "trainings": "Trainings place the images",
    "frozen": "K-means on the frozen features places the images; training gained nothing over it",
}


@dataclass(frozen=True)
class Blend:
    """How votes of trainings and of partitions by frozen features count, and why."""

    name: str = "together"
    right: tuple[float, float, float] | None = None
    """Share of hidden labels that each of BLENDS places right; None where nothing was judged."""
    rehearsed: tuple[HiddenLabels, ...] = ()
    """How it fared on those of known classes, and of hidden classes."""

    @property
    def judged(self) -> int:
        """Hidden labels."""
        return sum(test.n for test in self.rehearsed)

    @property
    def weights(self) -> tuple[float, float]:
        return BLENDS[self.name]

    @property
    def words(self) -> str:
        if self.right is None:
            return f"{WORDS[self.name]}; no labels were hidden to test that."
        parts = ", ".join(f"{name} {share:.0%}" for name, share in zip(BLENDS, self.right, strict=True))
        return f"{WORDS[self.name]}: of {self.judged} labels hidden for a test, right were {parts}."


def frozen_votes(
    embedded: np.ndarray,
    target: np.ndarray,
    k: int,
    n: int,
    *,
    unit: np.ndarray | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> list[Training]:
    """Partition the images n times with different starts, known classes first.

    Args:
        embedded: (N, D) features of the frozen backbone; NaN for images that cannot be read.
        target: (N,) index of the class that an image is labelled with, -1 = none.
        k: Categories, known ones included.
        unit: (N,) equal for the frames of one burst, of which the first counts.
        device: Where distances are taken.

    Returns:
        n votes; images that cannot be read are placed nowhere.
    """
    rows = np.flatnonzero(finite_rows(embedded))
    fit = first_frames(unit, rows)
    if len(fit) > FIT_ROWS:
        free = np.random.default_rng(seed).permutation(fit[target[fit] < 0])
        fit = np.sort(np.concatenate([fit[target[fit] >= 0], free[:FIT_ROWS]]))
    x = F.normalize(torch.from_numpy(np.asarray(embedded[rows], np.float32)).to(device), dim=-1)
    label, some = (
        torch.from_numpy(target[fit]).to(device),
        torch.from_numpy(np.searchsorted(rows, fit)).to(device),
    )
    votes = []
    for start in range(n):
        generator = torch.Generator().manual_seed(seed + start)
        centres = semi_supervised_centres(x[some], label, k, n_init=STARTS, generator=generator)
        category = np.full(len(embedded), -1)
        probability = np.full(len(embedded), np.nan, np.float32)
        parts = [
            (-(torch.cdist(part, centres) ** 2) / SOFTNESS).softmax(1).max(1) for part in x.split(FIT_ROWS)
        ]
        category[rows] = torch.cat([part.indices for part in parts]).cpu().numpy()
        probability[rows] = torch.cat([part.values for part in parts]).cpu().numpy()
        votes.append(Training(category, probability))
    return votes


def weigh_votes(
    trainings: Sequence[Training], frozen: Sequence[Training], weights: tuple[float, float]
) -> list[Training]:
    """Return all votes with the weights of a blend."""
    groups = zip((trainings, frozen), weights, strict=True)
    return [Training(one.category, one.probability * weight) for votes, weight in groups for one in votes]
