"""What a run keeps for images that come later, on which no training has voted: the model has its word, and the second
opinion of the discovery its own (categories/kept_opinion.py)."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from holotype.categories.kept_opinion import shares
from holotype.categories.opinion import Opinion
from holotype.data.bursts import units
from holotype.methods import Method, Prediction
from holotype.runs.outcome import Placed
from holotype.runs.said import Said, predict, predict_beside


def asks_opinion(method: Method) -> bool:
    """A method that trains nothing places images by the frozen features already."""
    return bool(method.stages())


def opinion_of(placed: Placed, embedded: np.ndarray) -> Opinion:
    """The second opinion of images as they are placed. embedded: (N, D) their features of the frozen backbone."""
    opinion = Opinion(embedded, placed.category, placed.k, units(placed.table))
    opinion.form(np.where(placed.fixed, placed.table.target, -1))
    return opinion


def as_if_later(placed: Placed, method: Method, opinion: Opinion | None) -> Said:
    """What would be said of each image if it came now: by the model, and by the judge that has not learned from it."""
    there, n = np.flatnonzero(placed.category >= 0), len(placed.category)
    if opinion is None:
        return _spread([(there, predict(method, placed.features[there]))], n)
    parts = [
        (part, predict_beside(method, placed.features[part], shares(scores / opinion.heat)))
        for part, scores in opinion.scores(there)
    ]
    return _spread(parts, n)


def weighed(placed: Placed, method: Method, embedded: np.ndarray) -> Placed:
    """The images of one training, placed as later ones are; several trainings have votes (categories/weighing.py)."""
    said = as_if_later(placed, method, opinion_of(placed, embedded))
    return dataclasses.replace(placed, said=Prediction(*(torch.from_numpy(column) for column in said)))


def _spread(parts: list[tuple[np.ndarray, Said]], n: int) -> Said:
    """What is said of some of n images; -1 and NaN of the others."""
    found = Said(np.full(n, -1), np.full(n, np.nan, np.float32), np.full(n, np.nan, np.float32))
    for rows, said in parts:
        for column, values in zip(found, said, strict=True):
            column[rows] = values
    return found
