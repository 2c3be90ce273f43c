"""Ensemble several trainings: match their partitions, vote, pool with the LDA, measure stability.

Trainings differ in their seed alone. Known classes are the same in all of them; new categories have no names, so that
they are matched first: of all pairings, the one in which most images lie together (Hungarian method). Then every image
has a vote from each training, which weighs as much as that training is sure of it, and lies where most votes are. The
matching and the votes take turns: each training is matched to what all of them say, until nothing changes.

Where that ends depends on the training that the first matching is to. So each of them is tried, and the outcome is kept
whose winning votes sum to most.

One training carries the model, for images that come later: the one that agrees with the outcome on most images. The
indices of the outcome are its own. The LDA may move images afterwards (`pool_with_lda`).

Trainings share their mistakes: they see the same views through the same block. The second opinion looks at the features
of the frozen backbone, and errs elsewhere. So an image lies in the category c for which

    (v_c + f) (p_c + f)

is largest, v_c being the share of the votes that c has and p_c what the opinion says of it. With f, which is FLOOR,
neither of the two can rule a category out, and what all trainings agree on stays. The opinion then learns anew from
where the images lie, ROUNDS times. docs/confidence.md has the figures.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from holotype.results.discovery import Category, Discovery
from holotype.results.lda import CHUNK, FLOOR, CrossFitLDA, softmax

if TYPE_CHECKING:
    from holotype.methods import Prediction

Earlier = TypeVar("Earlier", bound=Hashable)
Later = TypeVar("Later", bound=Hashable)

SAME_SHARE = 0.5
"""Images that two categories must share (of those in either) to be called the same."""
CONSENSUS_ROUNDS = 10
"""Of matching and voting from one start, at most; two or three are mostly enough."""
MATCH_CHUNK = 1024
"""Images whose votes are weighed together: all votes are never copied at once."""
MIN_MATCH = 1e-6
"""Weight of a vote without any certainty: it still decides between nothing and something."""


@dataclass(frozen=True)
class Training:
    """Where one training places the images."""

    category: np.ndarray
    """(N,) index below k, those below n_known being known classes; -1 = placed nowhere."""
    probability: np.ndarray
    """(N,) how sure it is of that, 0 to 1; NaN where it is placed nowhere."""

    @classmethod
    def of(cls, said: Prediction) -> Training:
        return cls(said.category.numpy(), said.probability.numpy())


@dataclass(frozen=True)
class Consensus:
    """What trainings come to together."""

    carrier: int
    """The training that carries the model."""
    category: np.ndarray
    """(N,) index by the carrier's counting; -1 = placed nowhere."""
    share: np.ndarray
    """(N,) of the votes that the category has; NaN where an image is placed nowhere."""
    trainings: np.ndarray
    """(S, N) the category of each image in each training, by the carrier's counting."""
    weight: np.ndarray
    """(S, N) of each training's vote for an image."""
    agreed: np.ndarray
    """(S,) share of the images that each training places where the outcome does."""


@dataclass(frozen=True)
class VoteShares:
    """For the images of a collection, of which trainings may have seen some only."""

    together: Consensus
    k: int
    at: np.ndarray
    """(N,) row of each image among those that were trained on, -1 = nobody has voted."""

    @classmethod
    def of(cls, together: Consensus, k: int) -> VoteShares:
        """Of a collection that was trained on as a whole."""
        return cls(together, k, np.arange(len(together.category)))

    def spread(self, rows: np.ndarray, n: int) -> VoteShares:
        """The same among n images, where `rows` are those that were trained on."""
        at = np.full(n, -1)
        at[rows] = self.at
        return replace(self, at=at)

    def shares(self, images: np.ndarray) -> np.ndarray:
        """(n, k) share of the votes for some images that each category has; NaN where nobody has voted."""
        rows, trainings, weight = self.at[images], self.together.trainings, self.together.weight
        cast = _votes(list(trainings[:, rows]), list(weight[:, rows]), self.k)
        total = np.where(rows >= 0, cast.sum(axis=1), np.nan)
        return np.asarray(cast / np.maximum(total, MIN_MATCH)[:, None])

    def placements(self) -> np.ndarray:
        """(S, N) where each training, or partition, places the images; -1 = nowhere."""
        return np.where(self.at >= 0, self.together.trainings[:, self.at], -1)


def vote_consensus(
    trainings: Sequence[Training], n_known: int, k: int, carriers: int | None = None
) -> Consensus:
    """The outcome of several trainings.

    k: categories of each, known ones included. carriers: so many of the first have a model; by default all.
    """
    given = [np.asarray(one.category, dtype=np.int64) for one in trainings]
    weight = [np.maximum(np.nan_to_num(one.probability), MIN_MATCH) for one in trainings]
    starts = (given[start] for start in _initial_partitions(given, n_known, k))
    names, _ = max((_align(start, given, weight, n_known, k) for start in starts), key=lambda end: end[1])
    named = [rename_to_match(one, name, k) for one, name in zip(given, names, strict=True)]
    votes = _votes(named, weight, k)
    placed = votes.sum(axis=1) > 0
    outcome = np.where(placed, votes.argmax(axis=1), -1)
    agreed = np.array([(one == outcome)[placed].mean() if placed.any() else 1.0 for one in named])
    carrier = int(agreed[:carriers].argmax())
    # index of the outcome -> index of the carrier
    back = np.empty(k, dtype=np.int64)
    back[match_partitions(votes, given[carrier], weight[carrier], n_known)] = np.arange(k)
    return Consensus(
        carrier,
        rename_to_match(outcome, back, k),
        np.where(placed, votes.max(axis=1) / np.maximum(votes.sum(axis=1), MIN_MATCH), np.nan),
        np.stack([rename_to_match(one, back, k) for one in named]),
        np.stack(weight),
        agreed,
    )


def _initial_partitions(given: Sequence[np.ndarray], n_known: int, k: int) -> list[int]:
    """Every training; first the one that is nearest to all others, which equal sums leave as the start."""
    common = np.zeros((len(given), len(given)), dtype=np.int64)
    for a, one in enumerate(given):
        for b, other in enumerate(given[: a + 1]):
            common[a, b] = common[b, a] = _matched_share(one, other, n_known, k)
    nearest = int(common.sum(axis=1).argmax())
    return [nearest, *(each for each in range(len(given)) if each != nearest)]


def _align(
    start: np.ndarray, given: Sequence[np.ndarray], weight: Sequence[np.ndarray], n_known: int, k: int
) -> tuple[list[np.ndarray], float]:
    """Names of each training's categories where it ends that begins with the (N,) categories `start`, and the sum of
    the winning votes."""
    votes, outcome = _votes([start], [np.ones(len(start))], k), None
    for _ in range(CONSENSUS_ROUNDS):
        names = [match_partitions(votes, one, w, n_known) for one, w in zip(given, weight, strict=True)]
        del votes  # before there are new ones: they are as many as images times k
        votes = _votes(
            [rename_to_match(one, name, k) for one, name in zip(given, names, strict=True)], weight, k
        )
        before, outcome = outcome, votes.argmax(axis=1)
        if before is not None and (outcome == before).all():
            break
    return names, float(votes.max(axis=1).sum(dtype=np.float64))


def match_partitions(votes: np.ndarray, category: np.ndarray, weight: np.ndarray, n_known: int) -> np.ndarray:
    """(k,) for each category of a training the column of `votes` (N, k) that it is; known classes are themselves.

    category: (N,), -1 = placed nowhere. weight: (N,) how much each image counts.
    """
    together, rows = np.zeros((votes.shape[1],) * 2), np.flatnonzero(category >= 0)
    for first in range(0, len(rows), MATCH_CHUNK):
        part = rows[first : first + MATCH_CHUNK]
        np.add.at(together, category[part], votes[part] * weight[part, None])
    return _pair(together, n_known)


def rename_to_match(category: np.ndarray, named: np.ndarray, k: int) -> np.ndarray:
    """(N,) categories under other indices; -1 stays. named: (k,) of `match`."""
    assert len(named) == k
    return np.append(named, -1)[category]


def _pair(together: np.ndarray, n_known: int) -> np.ndarray:
    """(k,) the column of each row, for most to lie together; known classes are themselves. together: (k, k)."""
    named = np.arange(len(together))
    row, column = best_pairs(together[n_known:, n_known:])
    named[n_known + row] = n_known + column
    return named


def best_pairs(common: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the pairing with the largest sum (Hungarian method)."""
    from scipy.optimize import linear_sum_assignment  # takes a third of a second to import

    row, column = linear_sum_assignment(common, maximize=True)
    return row, column


def match_categories(
    earlier: Mapping[Earlier, set[str]], later: Mapping[Later, set[str]]
) -> dict[Later, Earlier]:
    """The categories of one round that are those of another, by their later key: in the pairing with the largest
    overlap in sum, those that share more than SAME_SHARE of their images. Both: key to the paths of its images."""
    old, new = list(earlier), list(later)
    if not old or not new:
        return {}
    overlap = np.array(
        [[len(earlier[a] & later[b]) / max(len(earlier[a] | later[b]), 1) for b in new] for a in old]
    )
    return {new[j]: old[i] for i, j in zip(*best_pairs(overlap), strict=True) if overlap[i, j] > SAME_SHARE}


def _votes(named: Sequence[np.ndarray], weight: Sequence[np.ndarray], k: int) -> np.ndarray:
    """(N, k) sum of the votes that each training has for each image it places."""
    votes = np.zeros((len(named[0]), k), dtype=np.float32)
    for category, w in zip(named, weight, strict=True):
        rows = np.flatnonzero(category >= 0)
        votes[rows, category[rows]] += w[rows]
    return votes


def _matched_share(one: np.ndarray, other: np.ndarray, n_known: int, k: int) -> int:
    """Images that two trainings place in the same category once the categories are matched."""
    both = (one >= 0) & (other >= 0)
    together = np.bincount(one[both] * k + other[both], minlength=k * k).reshape(k, k)
    return int(together[np.arange(k), _pair(together, n_known)].sum())


@dataclass(frozen=True)
class Stability:
    """How a category fares in the trainings."""

    times: int
    """Trainings that have a category with more than half of the images of both in common."""
    together: float
    """Share of its images that stay in one category of a training, in the mean over the trainings."""


def category_stability(category: np.ndarray, trainings: np.ndarray, k: int) -> list[Stability]:
    """For each of the k categories. category: (N,), trainings: (S, N); -1 = placed nowhere, or left out, since a label
    holds the image whatever the seed."""
    times, together = np.zeros(k, dtype=int), np.zeros(k)
    size = np.bincount(category[category >= 0], minlength=k)
    for one in trainings:
        both = (category >= 0) & (one >= 0)
        common = np.zeros((k, k))
        np.add.at(common, (category[both], one[both]), 1)
        either = size[:, None] + np.bincount(one[both], minlength=k)[None, :] - common
        times += (common / np.maximum(either, 1)).max(axis=1) > SAME_SHARE
        together += common.max(axis=1) / np.maximum(size, 1)
    return [
        Stability(int(times[c]), float(together[c] / len(trainings)) if size[c] else float("nan"))
        for c in range(k)
    ]


STABLE_SHARE = 0.5
"""Share of the trainings in which a category must be found to be one that comes back."""
MAX_CATEGORIES_NAMED = 6
"""Categories that a sentence names."""
ONE = "One training."


def stability_text(category: Category, trainings: int) -> str:
    """Of one category; "" where there was one training, or edits have changed it since."""
    if trainings < 2 or not math.isfinite(category.together):
        return ""
    return (
        f"Comes back in {category.comes_back} of {trainings} trainings; {round(100 * category.together)} % of its "
        "unlabelled images stay together."
    )


def is_stable(category: Category, trainings: int) -> bool:
    """Is it found in more than half of the trainings?"""
    return category.comes_back > STABLE_SHARE * trainings


def methods_phrase(methods: Sequence[str]) -> str:
    """rpc and uno in turn; rpc."""
    return f"{', '.join(methods[:-1])} and {methods[-1]} in turn" if len(methods) > 1 else methods[0]


def votes_in_words(trainings: int) -> str:
    """How many trainings vote on where the images lie, and what changes that."""
    return f"{trainings} trainings vote; --effort changes it." if trainings > 1 else ONE


def stability_summary(found: Discovery) -> list[str]:
    """Sentences on the trainings of a discovery and on the categories that do not come back."""
    facts = found.facts
    n = len(facts.trainings)
    if n < 2:
        return [ONE, *([facts.blend] if facts.blend else [])] if facts.round and facts.steps else []
    novel = [c for c in found.categories if c.kind == "novel" and math.isfinite(c.together)]
    faint = sorted((c for c in novel if not is_stable(c, n)), key=lambda c: (c.comes_back, c.id))
    best = facts.agreement[facts.trainings.index(facts.seed)] if facts.seed in facts.trainings else math.nan
    turns = f"; {methods_phrase(facts.methods)}" if len(facts.methods) > 1 else ""
    which = f"{facts.method} with seed {facts.seed}" if turns else f"the one with seed {facts.seed}"
    lines = [
        votes_in_words(n),
        f"Images are placed where they agree (seeds {facts.trainings[0]} to {facts.trainings[-1]}{turns}). The model "
        f"of {which}, which agrees on {round(100 * best)} % of these, is kept for new images.",
        *([facts.blend] if facts.blend else []),
    ]
    if not novel:
        return lines
    every = sum(c.comes_back == n for c in novel)
    lines.append(f"New categories that come back in every training: {every} of {len(novel)}.")
    if faint:
        named = ", ".join(f"{c.name} ({c.comes_back} of {n})" for c in faint[:MAX_CATEGORIES_NAMED])
        more = f" and {len(faint) - MAX_CATEGORIES_NAMED} more" if len(faint) > MAX_CATEGORIES_NAMED else ""
        lines.append(f"Not in more than half of them, so look twice: {named}{more}.")
    return lines


POOL_ROUNDS = 3


def pool_with_lda(
    together: Consensus, embedded: np.ndarray, target: np.ndarray, k: int, unit: np.ndarray | None = None
) -> Consensus:
    """What trainings come to once the second opinion has spoken. Images with a label, and the carrier, stay.

    embedded: (N, D) features of the frozen backbone. target: (N,) index of the class that an image is labelled with,
    -1 = none. unit: (N,) equal for the frames of one burst.
    """
    placed, votes = together.category >= 0, VoteShares.of(together, k)
    target = np.where(placed, target, -1)
    outcome, free = np.where(target >= 0, target, together.category), np.flatnonzero(placed & (target < 0))
    for _ in range(POOL_ROUNDS):
        opinion, before = CrossFitLDA(embedded, outcome, k, unit), outcome
        opinion.form(target)
        outcome = before.copy()
        for part, scores in opinion.scores(free):
            both = (votes.shares(part) + FLOOR) * (softmax(scores / opinion.heat) + FLOOR)
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
