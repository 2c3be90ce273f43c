"""Problems with a known answer for the question of how many categories there are.

Each is a subset of a data set's images: some classes, half of them known, half of a known class's images labelled;
some with sizes that fall to a tenth. The whole data sets under their own splits are problems too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from holotype.data.table import Table

TAIL = 10
"""Largest class to smallest, where a problem has a tail."""
FEWEST, MOST = 20, 150
"""Classes of a random problem."""
PER_CLASS = 60
"""Most images of a class in a random problem."""


@dataclass(frozen=True)
class Problem:
    """Images of a table (rows), of which some carry a label, and the number of classes among them."""

    name: str
    rows: np.ndarray
    """(n,) of the table."""
    label: np.ndarray
    """(n,) class names; "" = unlabelled."""
    k: int
    tail: bool = False

    @property
    def known(self) -> list[str]:
        return sorted(set(self.label) - {""})


def whole(table: Table) -> Problem:
    """The data set as its split has it."""
    assert table.truth is not None
    return Problem(table.name, np.arange(len(table)), np.asarray(table.label), len(set(table.truth)))


def random_problems(table: Table, numbers: range, *, tag: str = "") -> Iterator[Problem]:
    """One for each number, which is its seed; every third has a tail."""
    assert table.truth is not None
    truth = np.asarray(table.truth)
    classes = np.unique(truth)
    for number in numbers:
        rng = np.random.default_rng([number, len(classes)])
        n = int(rng.integers(FEWEST, min(MOST, len(classes)) + 1))
        chosen = rng.choice(classes, n, replace=False)
        tail = number % 3 == 2
        share = TAIL ** -(np.arange(n) / (n - 1)) if tail else np.ones(n)
        rows, label = [], []
        for i, name in enumerate(chosen):
            own = rng.permutation(np.flatnonzero(truth == name))[:PER_CLASS]
            own = own[: max(2, round(share[i] * len(own)))]
            rows.append(own)
            known = i % 2 == 0
            half = rng.permutation(len(own)) < (len(own) + 1) // 2
            label.append(np.where(half & known, name, ""))
        order = np.argsort(np.concatenate(rows))
        yield Problem(
            f"{table.name}-{tag}{number}", np.concatenate(rows)[order], np.concatenate(label)[order], n, tail
        )


def hide_half(problem: Problem, half: int) -> tuple[np.ndarray, list[str]]:
    """Labels (n,) without those of every other known class, drawn at random, and the names that are left.

    half: which drawing; 2 i and 2 i + 1 are complements of each other.
    """
    known = np.array(problem.known)
    order = np.random.default_rng([half // 2, len(known)]).permutation(len(known))
    kept = known[order[half % 2 :: 2]]
    return np.where(np.isin(problem.label, kept), problem.label, ""), sorted(kept.tolist())
