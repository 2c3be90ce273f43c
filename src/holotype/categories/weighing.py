"""Where images lie when several trainings have voted and the second opinion (opinion.py) has its say.

Trainings share their mistakes: they see the same views through the same block. The second opinion looks at the features
of the frozen backbone, and errs elsewhere. So an image lies in the category c for which

    (v_c + f) (p_c + f)

is largest, v_c being the share of the votes that c has and p_c what the opinion says of it. With f, which is FLOOR,
neither of the two can rule a category out, and what all trainings agree on stays. The opinion then learns anew from
where the images lie, ROUNDS times. docs/confidence.md has the figures.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from holotype.categories.agreement import Agreement, Votes
from holotype.categories.kept_opinion import shares
from holotype.categories.opinion import CHUNK, FLOOR, Opinion

ROUNDS = 3


def weigh(
    together: Agreement, embedded: np.ndarray, target: np.ndarray, k: int, unit: np.ndarray | None = None
) -> Agreement:
    """What trainings come to once the second opinion has spoken. Images with a label, and the carrier, stay.

    embedded: (N, D) features of the frozen backbone. target: (N,) index of the class that an image is labelled with,
    -1 = none. unit: (N,) equal for the frames of one burst.
    """
    placed, votes = together.category >= 0, Votes.of(together, k)
    target = np.where(placed, target, -1)
    outcome, free = np.where(target >= 0, target, together.category), np.flatnonzero(placed & (target < 0))
    for _ in range(ROUNDS):
        opinion, before = Opinion(embedded, outcome, k, unit), outcome
        opinion.form(target)
        outcome = before.copy()
        for part, scores in opinion.scores(free):
            both = (votes.shares(part) + FLOOR) * (shares(scores / opinion.heat) + FLOOR)
            outcome[part] = both.argmax(axis=1)
        if (outcome == before).all():
            break
    category, share = together.category.copy(), together.share.copy()
    category[free] = outcome[free]
    for first in range(0, len(free), CHUNK):
        part = free[first : first + CHUNK]
        share[part] = votes.shares(part)[np.arange(len(part)), category[part]]
    agreed = together.agreed
    if placed.any():
        agreed = (together.trainings == category)[:, placed].mean(axis=1)
    return dataclasses.replace(together, category=category, share=share, agreed=agreed)
