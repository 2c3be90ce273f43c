"""Sizes of the known classes, their unlabelled images included: from these follows how many categories there are.

Near a labelled image lie images of its own class and of others. Let a of its m nearest images carry its label and b
another one. Every labelled image of another class stands for about N / L images of other classes, labelled or not, if
new classes come as near to the known ones as those come to each other (N images, L of them labelled). What is left
are images of its own class, and of these the share r is labelled:

    own = m - b N / L,    r = sum a / sum own.

A class with l labelled images then has n = 1 + (l - 1) / r images (the image itself is neither a neighbour nor counted
in r), and if new classes are as large as known ones in the mean, there are K = N / n categories. No hidden label is
read, nothing is trained, and no clustering has to succeed: what the features cannot tell apart is counted out by b.

How sure that is, a bootstrap over the known classes says. Several neighbourhoods are counted, and joined by how much
each of them moves: the 3 to 30 nearest; those among the nearest of each other; and the 3 to 30 nearest where a pair
counts by how many near images it shares. The last looks where classes lie apart, and so has less to count out. Who is
labelled plays no part in that, so it favours no answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from holotype.clustering.knn import nearest_neighbours

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NEAREST = (3, 5, 8, 12, 20, 30)
MUTUAL = (8, 15, 30)
"""How many nearest images are looked at; the second only those that have the image among theirs too."""
SHARED, STRESS = 10, 2
"""Among how many nearest of each two images are looked for that they share; and the power of that share."""
ROWS_AT_ONCE = 1000
"""Images whose shared neighbours are looked for at a time."""
REDRAWN = 200
"""Drawings of the known classes, with replacement."""
LOST_FRACTION = 0.1
"""A neighbourhood is not used where in more than this share of the drawings nothing is left of the own classes."""
BOTH_SIDES = 0.1
"""Share of the variance from drawings in which the classes that come near are drawn anew too, not only those looked
at: alone it is too wide, since two drawings of a class are no two classes. Chosen so that the range holds the
truth in 8 of 10 problems (docs/how-many.md)."""
UNEQUAL_SPREAD = 1.3
"""The spread is so much larger than drawings say: new classes may be larger or smaller in the mean than known ones."""
FAR_RATIO = math.log(4)
"""A drawing in which nothing is left of the own classes counts as this far off, in log K."""
ROUNDS = 4
"""In which K is found; it moves by less than a hundredth after the second."""
COVERAGE, WITHIN_RANGE = 0.8, 1.2816
"""Of the range, and how many standard deviations it reaches to either side for that."""
LEAST_CLASSES = 2
"""Known classes with labelled images: of one, nobody knows what other classes add."""
FEW_CLASSES, FEW_SPREAD = 4, 0.3
"""Below so many, drawing them anew hardly moves K by luck; then log K is known to this at best (docs/how-many.md)."""
LEAST_PAIRS = 10
"""Neighbours of the same label: of fewer, chance decides."""
NEIGHBOURS = 20_000
"""Images beyond these are left out, at random, where neighbours are looked for."""


@dataclass(frozen=True)
class ClassSize:
    """What the neighbours of labelled images say."""

    k: float
    """Categories: the most likely number."""
    spread: float
    """Standard deviation of log K."""

    @property
    def low(self) -> float:
        return self.k * math.exp(-WITHIN_RANGE * self.spread)

    @property
    def high(self) -> float:
        return self.k * math.exp(WITHIN_RANGE * self.spread)

    def joined(self, k: float, spread: float) -> ClassSize:
        """With another opinion, each weighed by how sure it is."""
        mine, other = self.spread**-2, spread**-2
        centre = (mine * math.log(self.k) + other * math.log(k)) / (mine + other)
        return ClassSize(math.exp(centre), (mine + other) ** -0.5)


def subsample_rows(n: int, most: int, seed: int) -> Tensor:
    """Draw at most so many of n rows at random, in their order, on the CPU."""
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:most].sort().values


def measure_classes(
    features: Tensor, label: Tensor, seed: int = 0, weight: np.ndarray | None = None
) -> ClassSize | None:
    """features: (N, D), of all images or a random part of them. label: (N,) long, -1 = unlabelled. weight: (N,) how
    many images each stands for, where they are a sample; a neighbour then counts as so many. Labelled ones stand for
    themselves.

    None where they cannot tell: too few classes or labels, or neighbours that are mostly of other classes.
    """
    label = label.cpu()
    classes, index = torch.unique(label[label >= 0], return_inverse=True)
    own = torch.full_like(label, -1)
    own[label >= 0] = index
    if len(classes) < LEAST_CLASSES or len(label) <= min(NEAREST):
        return None
    counted = list(_count(features, own.numpy(), len(classes), weight))
    size = np.bincount(own[own >= 0].numpy(), minlength=len(classes)).astype(float)
    world = SimulatedClasses(len(label) if weight is None else float(weight.sum()), size)
    return _combine(world, [c for c in counted if c.same.sum() >= LEAST_PAIRS], seed)


@dataclass(frozen=True)
class NeighbourCounts:
    """Of the labelled images of C classes, class by class."""

    all: np.ndarray
    """(C,) how many."""
    same: np.ndarray
    """(C,) those that carry the same label."""
    other: csr_array
    """(C, C) those that carry another one, by class; none on the diagonal. Of thousands of classes few come near each
    other."""


def _count(
    features: Tensor, label: np.ndarray, n_classes: int, weight: np.ndarray | None = None
) -> Iterator[NeighbourCounts]:
    """One for each neighbourhood that the images are enough for. label: (N,) below n_classes, -1 = unlabelled."""
    most = min(max(NEAREST), len(label) - 1)
    centred = features.float() - features.float().mean(0)
    near = nearest_neighbours(centred, most)[1].cpu().numpy()
    labelled = np.flatnonzero(label >= 0)
    as_many = np.ones(len(label)) if weight is None else weight
    for m in (m for m in NEAREST if m <= most):
        there = near[labelled, :m].ravel()
        yield _tally(label, np.repeat(labelled, m), there, n_classes, as_many[there])
    for m in (m for m in MUTUAL if m <= most):
        source, there = _mutual(near[:, :m], labelled)
        yield _tally(label, source, there, n_classes, as_many[there])
    stress = _shared(near, labelled) ** STRESS
    for m in (m for m in NEAREST if m <= most and stress[:, :m].any()):
        there, some = near[labelled, :m].ravel(), stress[:, :m].ravel()
        counts = some / some.mean() * as_many[there]
        yield _tally(label, np.repeat(labelled, m), there, n_classes, counts)


def _mutual(near: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (i, j), i in `rows`, each among the nearest of the other. near: (N, m)."""
    n, m = near.shape
    source = np.repeat(rows, m)
    there = near[rows].ravel()
    given = np.sort(np.repeat(np.arange(n), m) * n + near.ravel())
    back = there * n + source
    found = np.searchsorted(given, back).clip(max=len(given) - 1)
    both = given[found] == back
    return source[both], there[both]


def _shared(near: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(len(rows), m) the share of their nearest that two images have in common, times the mean of it over the nearest
    of the first: high where the first lies in a group that is apart. near: (N, m)."""
    found = np.empty((len(rows), near.shape[1]))
    few = near[:, :SHARED]
    for part in np.array_split(np.arange(len(rows)), max(1, len(rows) // ROWS_AT_ONCE)):
        mine, theirs = few[rows[part]][:, None, :, None], few[near[rows[part]]][:, :, None, :]
        found[part] = (mine == theirs).any(3).mean(2)
    return np.asarray(found * found[:, :SHARED].mean(1, keepdims=True))


def _tally(
    label: np.ndarray, source: np.ndarray, there: np.ndarray, n_classes: int, counts: np.ndarray
) -> NeighbourCounts:
    """Of pairs (source, there). counts: (pairs,) as how many each counts."""
    from scipy.sparse import csr_array

    mine, theirs = label[source], label[there]
    same, foreign = mine == theirs, (theirs >= 0) & (mine != theirs)
    return NeighbourCounts(
        np.bincount(mine, counts, minlength=n_classes),
        np.bincount(mine[same], counts[same], minlength=n_classes),
        csr_array((counts[foreign], (mine[foreign], theirs[foreign])), shape=(n_classes, n_classes)),
    )


@dataclass(frozen=True)
class SimulatedClasses:
    """N images and the labelled ones of each class."""

    n: float
    size: np.ndarray
    """(C,) labelled images."""

    def log_k(self, all_: np.ndarray, same: np.ndarray, other: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Logarithm of K from sums over the classes; NaN where others leave nothing of the own classes.

        size: labelled images of a class in the mean. A class is no other to itself, which takes 1 in C of the labelled
        images and 1 in K of all: K is found in a few rounds.
        """
        classes, k = len(self.size), np.full(np.shape(all_), np.inf)
        stands_for = self.n / self.size.sum() * classes / (classes - 1)
        for _ in range(ROUNDS):
            own = all_ - stands_for * (1 - 1 / k) * other
            share = np.clip(same / np.where(own > 0, own, np.nan), 1e-6, 1.0)
            k = self.n / (1 + (size - 1) / share)
        return np.log(k)


def _combine(world: SimulatedClasses, counted: list[NeighbourCounts], seed: int) -> ClassSize | None:
    """All neighbourhoods that hold, weighed by how little they move when the classes are drawn anew."""
    from scipy.special import stdtrit  # scipy.stats takes half a second to import

    if not counted or world.size.sum() <= len(world.size):
        return None
    classes = len(world.size)
    generator, equal = np.random.default_rng(seed), np.full(classes, 1 / classes)
    drawn = generator.multinomial(classes, equal, REDRAWN).astype(float)
    each = [_redraw(world, one, drawn) for one in counted]
    lost = np.array([1.0 if math.isnan(e) else float(np.isnan(both).mean()) for e, _, both in each])
    held = [one for one, share in zip(each, lost, strict=True) if share <= LOST_FRACTION]
    if not held:
        return None
    estimate = np.array([e for e, _, _ in held])
    rows, both = (np.stack([np.nan_to_num(one[i] - one[0], nan=FAR_RATIO) for one in held]) for i in (1, 2))
    weight = 1 / np.maximum(both.var(1), 1e-8)
    weight /= weight.sum()
    centre = float(weight @ estimate)
    variance = (1 - BOTH_SIDES) * np.mean((weight @ rows) ** 2) + BOTH_SIDES * np.mean((weight @ both) ** 2)
    # new classes may be larger or smaller than known ones by chance
    k = math.exp(centre)
    by_chance = world.size.std(ddof=1) / world.size.mean() * math.sqrt(max(k - classes, 0.0)) / k
    spread = math.sqrt(float(variance) + float(by_chance) ** 2)
    # Student's t: the width itself is known from few classes only
    spread *= UNEQUAL_SPREAD * float(stdtrit(classes - 1, (1 + COVERAGE) / 2)) / WITHIN_RANGE
    return ClassSize(k, max(spread, FEW_SPREAD) if classes < FEW_CLASSES else spread)


def _redraw(
    world: SimulatedClasses, counted: NeighbourCounts, drawn: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """log K, and (REDRAWN,) log K with the classes looked at drawn anew, and with those that come near them too."""
    classes = len(world.size)
    sums = (drawn @ counted.all, drawn @ counted.same)
    size = drawn @ world.size / classes
    from_all = drawn @ np.asarray(counted.other.sum(1)).ravel()
    pairs = classes * classes - (drawn**2).sum(1)  # of two classes; a class drawn twice is no other to itself
    from_drawn = ((drawn @ counted.other) * drawn).sum(1) * classes * (classes - 1) / np.maximum(pairs, 1)
    every = (counted.all.sum(), counted.same.sum(), counted.other.sum())
    whole = world.log_k(*every, np.asarray(world.size.mean()))
    return float(whole), world.log_k(*sums, from_all, size), world.log_k(*sums, from_drawn, size)
