"""Problems with a known answer for the question of how many categories there are.

Each is a subset of a data set's images: some classes, half of them known, half of a known class's images labelled;
every third with sizes that fall to a tenth, in an order that knows nothing of known and new. The whole data set under
its own split is a problem too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

TAIL = 10
"""Largest class to smallest, where a problem has a tail."""
FEWEST, MOST = 20, 150
"""Classes of a random problem."""
PER_CLASS = 60
"""Most images of a class in a random problem."""


@dataclass(frozen=True)
class Problem:
    """Images, some of them labelled, and the number of classes among them."""

    name: str
    rows: np.ndarray
    """(n,) of the data set."""
    label: np.ndarray
    """(n,) of the known classes from 0; -1 = unlabelled."""
    k: int
    tail: bool = False

    @property
    def known(self) -> int:
        return int(self.label.max()) + 1


def whole(name: str, truth: np.ndarray, label: np.ndarray) -> Problem:
    """The data set as its split has it. truth, label: (N,) class names, "" = unlabelled."""
    index = {known: i for i, known in enumerate(sorted(set(label) - {""}))}
    return Problem(
        name, np.arange(len(truth)), np.array([index.get(one, -1) for one in label]), len(set(truth))
    )


def random_problems(name: str, truth: np.ndarray, numbers: Iterable[int]) -> Iterator[Problem]:
    """One for each number, which is its seed. truth: (N,) class names."""
    classes = np.unique(truth)
    for number in numbers:
        rng = np.random.default_rng([number, len(classes)])
        n = int(rng.integers(min(FEWEST, len(classes)), min(MOST, len(classes)) + 1))
        chosen = rng.choice(classes, n, replace=False)
        tail = number % 3 == 2
        share = float(TAIL) ** -(rng.permutation(n) / (n - 1)) if tail else np.ones(n)
        rows, label = [], []
        for i, (one, part) in enumerate(zip(chosen, share, strict=True)):
            own = rng.permutation(np.flatnonzero(truth == one))[:PER_CLASS]
            own = own[: max(2, round(part * len(own)))]
            mine = np.full(len(own), -1)
            if i % 2 == 0:
                mine[rng.permutation(len(own))[: (len(own) + 1) // 2]] = i // 2
            rows.append(own)
            label.append(mine)
        yield Problem(f"{name} {number}", np.concatenate(rows), np.concatenate(label), n, tail)


def few_known(name: str, truth: np.ndarray, known: int, numbers: Iterable[int]) -> Iterator[Problem]:
    """Small collections of a few known classes, as people begin: one for each number. Up to twice as many new classes
    and two more, 15 to 55 images of each class, and 4 to half of them labelled."""
    classes = np.unique(truth)
    for number in numbers:
        rng = np.random.default_rng([number, known, len(classes)])
        chosen = rng.choice(classes, known + int(rng.integers(1, 2 * known + 3)), replace=False)
        own = [rng.permutation(np.flatnonzero(truth == one)) for one in chosen]
        size = int(rng.integers(15, min(55, min(map(len, own))) + 1))
        labelled = int(rng.integers(4, size // 2 + 1))
        label = np.full((len(chosen), size), -1)
        label[:known, :labelled] = np.arange(known)[:, None]
        rows = np.concatenate([one[:size] for one in own])
        yield Problem(f"{name} {known} {number}", rows, label.ravel(), len(chosen))
