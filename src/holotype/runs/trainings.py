"""Several trainings of one round that differ in their seed: what they agree on, and which categories come back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from holotype.data.bursts import burst_units
from holotype.data.table import Table
from holotype.methods import Prediction
from holotype.results.discovery import Category, RunFacts
from holotype.results.ensemble import Consensus, Training, category_stability, pool_with_lda, vote_consensus


@dataclass(frozen=True)
class Trainings:
    """What several trainings say of the n images that they were trained on."""

    seeds: tuple[int, ...]
    together: Consensus
    free: np.ndarray
    """(n,) bool: images without a label."""
    methods: tuple[str, ...]
    """That they took in turn."""

    @classmethod
    def of(
        cls,
        seeds: Sequence[int],
        said: Sequence[Prediction],
        table: Table,
        k: int,
        methods: tuple[str, ...],
        embedded: np.ndarray,
    ) -> Trainings:
        """said: of each training, on the images of the table. embedded: (n, D) features of the frozen backbone, for a
        second opinion."""
        voices = [Training(one.category.numpy(), one.probability.numpy()) for one in said]
        together = vote_consensus(voices, len(table.known), k)
        together = pool_with_lda(together, embedded, table.target, k, burst_units(table))
        return cls(tuple(seeds), together, ~table.labelled, methods)

    def prediction(self, said: Sequence[Prediction]) -> Prediction:
        """Where they place the images together. How known an image is, is the mean of what they say."""
        known = torch.stack([one.known_score for one in said]).mean(dim=0)
        share = torch.from_numpy(self.together.share).to(said[0].probability.dtype)
        return Prediction(torch.from_numpy(self.together.category), share, known)

    def tell(self, about: RunFacts) -> RunFacts:
        shares = tuple(round(float(share), 4) for share in self.together.agreed)
        return dataclasses.replace(about, trainings=self.seeds, agreement=shares, methods=self.methods)

    def set_returns(self, categories: Iterable[Category], ids: Sequence[str]) -> None:
        """Write into categories how often they come back. ids: by index."""
        outcome = np.where(self.free, self.together.category, -1)
        found = dict(zip(ids, category_stability(outcome, self.together.trainings, len(ids)), strict=True))
        for category in categories:
            one = found[category.id]
            category.comes_back, category.together = one.times, one.together


def seeds_in_words(seeds: Sequence[int]) -> str:
    """0 to 4; 3."""
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
