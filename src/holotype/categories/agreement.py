"""What several trainings of the same collection agree on, and which categories come back in each of them.

Trainings differ in their seed alone. Known classes are the same in all of them; new categories have no names, so that
they are matched first: of all pairings, the one in which most images lie together (Hungarian method). Then every image
has a vote from each training, which weighs as much as that training is sure of it, and lies where most votes are. The
matching and the votes take turns: each training is matched to what all of them say, until nothing changes.

One training carries the model, for images that come later: the one that agrees with the outcome on most images. The
indices of the outcome are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holotype.categories.matching import SAME

ROUNDS = 10
"""Of matching and voting, at most; two or three are enough."""
LEAST = 1e-6
"""Weight of a vote without any certainty: it still decides between nothing and something."""


@dataclass(frozen=True)
class Training:
    """Where one training places the images."""

    category: np.ndarray
    """(N,) index below k, those below n_known being known classes; -1 = placed nowhere."""
    probability: np.ndarray
    """(N,) how sure it is of that, 0 to 1; NaN where it is placed nowhere."""


@dataclass(frozen=True)
class Agreement:
    """What trainings come to together."""

    carrier: int
    """The training that carries the model."""
    category: np.ndarray
    """(N,) index by the carrier's counting; -1 = placed nowhere."""
    share: np.ndarray
    """(N,) of the votes that the category has; NaN where an image is placed nowhere."""
    trainings: np.ndarray
    """(S, N) the category of each image in each training, by the carrier's counting."""
    agreed: np.ndarray
    """(S,) share of the images that each training places where the outcome does."""


def agree(trainings: Sequence[Training], n_known: int, k: int) -> Agreement:
    """The outcome of several trainings. k: categories of each, known ones included."""
    given = [np.asarray(one.category, dtype=np.int64) for one in trainings]
    weight = [np.maximum(np.nan_to_num(one.probability), LEAST) for one in trainings]
    apart = np.array([[_matched_share(a, b, n_known, k) for b in given] for a in given])
    votes = _votes(given[int(apart.sum(axis=1).argmax())], 1.0, k)
    outcome = None
    for _ in range(ROUNDS):
        named = [rename(one, match(votes, one, w, n_known), k) for one, w in zip(given, weight, strict=True)]
        votes = np.zeros_like(votes)
        for one, w in zip(
            named, weight, strict=True
        ):  # never all at once: they are as many as images times k
            votes += _votes(one, w, k)
        if outcome is not None and (votes.argmax(axis=1) == outcome).all():
            break
        outcome = votes.argmax(axis=1)
    placed = votes.sum(axis=1) > 0
    outcome = np.where(placed, votes.argmax(axis=1), -1)
    agreed = np.array([(one == outcome)[placed].mean() if placed.any() else 1.0 for one in named])
    carrier = int(agreed.argmax())
    # index of the outcome -> index of the carrier
    back = np.empty(k, dtype=np.int64)
    back[match(votes, given[carrier], weight[carrier], n_known)] = np.arange(k)
    return Agreement(
        carrier,
        rename(outcome, back, k),
        np.where(placed, votes.max(axis=1) / np.maximum(votes.sum(axis=1), LEAST), np.nan),
        np.stack([rename(one, back, k) for one in named]),
        agreed,
    )


# -- matching ---------------------------------------------------------------------------------------------


def match(votes: np.ndarray, category: np.ndarray, weight: np.ndarray | float, n_known: int) -> np.ndarray:
    """(k,) for each category of a training the column of `votes` (N, k) that it is; known classes are themselves.

    category: (N,), -1 = placed nowhere. weight: (N,) how much each image counts.
    """
    from scipy.optimize import linear_sum_assignment  # takes a third of a second to import

    k = votes.shape[1]
    together, there = np.zeros((k, k)), category >= 0
    np.add.at(together, category[there], votes[there] * np.broadcast_to(weight, category.shape)[there, None])
    named = np.arange(k)
    own, column = linear_sum_assignment(together[n_known:, n_known:], maximize=True)
    named[n_known + own] = n_known + column
    return named


def rename(category: np.ndarray, named: np.ndarray, k: int) -> np.ndarray:
    """(N,) categories under other indices; -1 stays. named: (k,) of `match`."""
    assert len(named) == k
    return np.append(named, -1)[category]


def _votes(category: np.ndarray, weight: np.ndarray | float, k: int) -> np.ndarray:
    """(N, k) a vote of each image that is placed."""
    votes, rows = np.zeros((len(category), k), dtype=np.float32), np.flatnonzero(category >= 0)
    votes[rows, category[rows]] = np.broadcast_to(weight, category.shape)[rows]
    return votes


def _matched_share(one: np.ndarray, other: np.ndarray, n_known: int, k: int) -> float:
    """Of the images, how many two trainings place in the same category once the categories are matched."""
    renamed = rename(other, match(_votes(one, 1.0, k), other, 1.0, n_known), k)
    return float(((one == renamed) & (one >= 0)).mean()) if len(one) else 1.0


# -- which categories come back -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Return:
    """How a category fares in the trainings."""

    times: int
    """Trainings that have a category with more than half of the images of both in common."""
    together: float
    """Share of its images that stay in one category of a training, in the mean over the trainings."""


def returns(category: np.ndarray, trainings: np.ndarray, k: int) -> list[Return]:
    """For each of the k categories. category: (N,), trainings: (S, N); -1 = placed nowhere, or left out, since a label
    holds the image whatever the seed."""
    times, together = np.zeros(k, dtype=int), np.zeros(k)
    size = np.bincount(category[category >= 0], minlength=k)
    for one in trainings:
        both = (category >= 0) & (one >= 0)
        common = np.zeros((k, k))
        np.add.at(common, (category[both], one[both]), 1)
        either = size[:, None] + np.bincount(one[both], minlength=k)[None, :] - common
        times += (common / np.maximum(either, 1)).max(axis=1) > SAME
        together += common.max(axis=1) / np.maximum(size, 1)
    return [
        Return(int(times[c]), float(together[c] / len(trainings)) if size[c] else float("nan"))
        for c in range(k)
    ]
