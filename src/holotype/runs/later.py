"""Where the images of a run lie after training, and what is kept for those that come later.

Of images that the trainings of a discovery have seen, their votes decide (trainings.py). Of all others, and where there
was one training, the model has its word, and the second opinion its own (results/lda.py).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from holotype.data.bursts import burst_units
from holotype.methods import Method, Prediction
from holotype.models.backbone import Backbone
from holotype.results.ensemble import VoteShares
from holotype.results.lda import CrossFitLDA, softmax
from holotype.runs.outcome import Placed, Rest, Told, place_rest
from holotype.runs.said import Said, predict_beside, predict_later, word_of
from holotype.training.loop import Loop


@dataclass(frozen=True)
class OwnWord:
    """What one training says of its images, in the place of the votes of several."""

    method: Method
    features: np.ndarray
    """(N, D)."""

    def shares(self, images: np.ndarray) -> np.ndarray:
        """(n, K)."""
        return word_of(self.method, self.features[images])


def asks_opinion(method: Method) -> bool:
    """A method that trains nothing places images by the frozen features already."""
    return bool(method.stages())


def place_all(
    own: Placed,
    loop: Loop,
    backbone: Backbone,
    rest: Rest | None,
    told: Told | None,
    shards: Path,
    progress: bool,
) -> Placed:
    """Every image, by all that have a say. own: those that the run was trained on, as its training or trainings place
    them. rest: the collection that they were drawn from. told: of a discovery. shards: as in place_rest."""
    method, frozen = loop.method, told.embedded if told is not None and asks_opinion(loop.method) else None
    own_frozen = frozen[rest.rows] if frozen is not None and rest is not None else frozen
    several = told.trainings if told is not None else None
    if several is not None:
        own = dataclasses.replace(own, votes=VoteShares.of(several.together, own.k))
    elif own_frozen is not None:
        own = weighed(own, method, own_frozen)
    placed = own
    if rest is not None:
        opinion = None
        if own_frozen is not None and len(rest.others):
            opinion = opinion_of(own, own_frozen).kept()
        placed = place_rest(own, rest, loop, backbone, shards, progress, frozen, opinion)
    if several is None and frozen is not None:
        placed = dataclasses.replace(placed, votes=OwnWord(method, placed.features))
    return placed


def opinion_of(placed: Placed, embedded: np.ndarray) -> CrossFitLDA:
    """The second opinion of images as they are placed. embedded: (N, D) their features of the frozen backbone."""
    opinion = CrossFitLDA(embedded, placed.category, placed.k, burst_units(placed.table))
    opinion.form(np.where(placed.fixed, placed.table.target, -1))
    return opinion


def as_if_later(placed: Placed, method: Method, opinion: CrossFitLDA | None) -> Said:
    """What would be said of each image if it came now: by the model, and by the judge that has not learned from it."""
    there = np.flatnonzero(placed.category >= 0)
    if opinion is None:
        return predict_later(method, placed.features, None, None, there)
    parts = (
        (part, predict_beside(method, placed.features[part], softmax(scores / opinion.heat)))
        for part, scores in opinion.scores(there)
    )
    return Said.spread(parts, len(placed.category))


def weighed(placed: Placed, method: Method, embedded: np.ndarray) -> Placed:
    """The images of one training, placed as later ones are; several trainings have votes (results/ensemble.py). Of
    labelled images it stays what the model says: they are told where it contradicts the label."""
    said = as_if_later(placed, method, opinion_of(placed, embedded)).as_prediction()
    fixed = torch.from_numpy(placed.fixed)
    columns = ((said.category, placed.said.category), (said.probability, placed.said.probability))
    category, probability = (torch.where(fixed, before.to(now.dtype), now) for now, before in columns)
    return dataclasses.replace(placed, said=Prediction(category, probability, said.known_score))
