"""Metrics: clustering accuracy on all, old and new classes. The only code that reads `Table.truth`.

Categories are matched to classes by ONE assignment over all scored images (the metric "v2" of the
literature), so that All = r * Old + (1 - r) * New holds exactly, r being the share of known-class images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holotype.errors import InputError

if TYPE_CHECKING:
    from holotype.data.table import Table

Ints = NDArray[np.int64]
AllOldNew = tuple[float, float | None, float | None]


@dataclass(frozen=True)
class Accuracy:
    """Clustering accuracy as fractions; None where there is no image of that kind."""

    all: float
    old: float | None
    """On images of known classes."""
    new: float | None
    """On images of novel classes."""
    share_old: float
    """r: the share of known-class images."""
    assignment: dict[int, int]
    """Category -> class."""

    def __post_init__(self) -> None:
        mixed = self.share_old * (self.old or 0.0) + (1 - self.share_old) * (self.new or 0.0)
        assert abs(self.all - mixed) < 1e-12, "All must be the weighted mean of Old and New"


def clustering_accuracy(true: ArrayLike, predicted: ArrayLike, n_known: int) -> Accuracy:
    """Share of images whose category is the one assigned to their class, over all, known and novel classes.

    true, predicted: (N,) non-negative integers; any number of categories. Known: true < n_known.
    """
    y, p = _checked(true, predicted)
    category = _matched(_counts(y, p))
    hit, known = category[y] == p, y < n_known
    present = np.isin(category, p)
    return Accuracy(
        all=float(hit.mean()),
        old=_mean(hit[known]),
        new=_mean(hit[~known]),
        share_old=float(known.mean()),
        assignment={int(category[c]): int(c) for c in np.flatnonzero(present)},
    )


def separate_accuracy(true: ArrayLike, predicted: ArrayLike, n_known: int) -> AllOldNew:
    """The legacy metric "v1": known and novel classes each get an assignment of their own, which inflates it.

    Returns (All, Old, New), All being their mean weighted by the number of images.
    """
    y, p = _checked(true, predicted)
    hit = np.zeros(len(y), dtype=bool)
    known = y < n_known
    for part in (known, ~known):
        if part.any():
            hit[part] = _matched(_counts(y[part], p[part]))[y[part]] == p[part]
    return float(hit.mean()), _mean(hit[known]), _mean(hit[~known])


def balanced_accuracy(true: ArrayLike, predicted: ArrayLike, n_known: int) -> AllOldNew:
    """The metric "v2b": mean over classes of each class's accuracy, under the one global assignment.

    Returns (All, Old, New) over the classes that occur.
    """
    y, p = _checked(true, predicted)
    hit = _matched(_counts(y, p))[y] == p
    n = np.bincount(y)
    occurs = np.flatnonzero(n)
    per_class = np.bincount(y, weights=hit)[occurs] / n[occurs]
    known = occurs < n_known
    return float(per_class.mean()), _mean(per_class[known]), _mean(per_class[~known])


SCORES = ("all", "old", "new", "share_old", "nmi", "ari", "auroc", "known_accuracy")
"""The scores of a run, all fractions; None where there is nothing to score."""


def has_truth(table: Table) -> bool:
    """Can predictions for this table be scored?"""
    return table.truth is not None


def score(table: Table, category: ArrayLike, known_score: ArrayLike | None = None) -> dict[str, Any]:
    """Score the unlabelled, usable rows of a table that have a truth. Fractions; None where undefined.

    category: (N,) one per row of the table: below len(table.known) a known class, else a discovered one.
    known_score: (N,) how far a row belongs to a known class, or None; NaN means that there is no such score.
    """
    if table.truth is None:
        raise InputError(f"The table {table.name!r} holds no truth: scores need the column `truth`.")
    category = np.asarray(category)
    if len(category) != len(table):
        raise InputError(f"The table has {len(table)} rows, but {len(category)} categories were given.")
    rows = scored_rows(table)
    n_known, names, y = class_index(table.known, np.asarray(table.truth)[rows].astype(str))
    if len(rows) == 0:
        return dict.fromkeys(SCORES) | {"n": 0, "per_class": []}
    p = category[rows].astype(np.int64)
    accuracy = clustering_accuracy(y, p, n_known)
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    known = y < n_known
    return {
        **{name: getattr(accuracy, name) for name in ("all", "old", "new", "share_old")},
        "n": len(rows),
        "nmi": float(normalized_mutual_info_score(y, p)),
        "ari": float(adjusted_rand_score(y, p)),
        "auroc": None if known_score is None else _auroc(known, np.asarray(known_score, dtype=float)[rows]),
        "known_accuracy": _mean(p[known] == y[known]),
        "per_class": _per_class(y, p, accuracy.assignment, names, n_known),
    }


def _per_class(
    y: Ints, p: Ints, assignment: dict[int, int], names: list[str], n_known: int
) -> list[dict[str, Any]]:
    """A record for each class that occurs. category: the one assigned to the class, None if it got none;
    counts: images by category."""
    category_of = {c: category for category, c in assignment.items()}
    records = []
    for c in np.unique(y).tolist():
        category = category_of.get(c)
        n = int((y == c).sum())
        correct = 0 if category is None else int(((y == c) & (p == category)).sum())
        kind = "known" if c < n_known else "novel"
        record = {"class": names[c], "kind": kind, "n": n, "correct": correct, "accuracy": correct / n}
        counts = dict(zip(*(v.tolist() for v in np.unique(p[y == c], return_counts=True)), strict=True))
        records.append(record | {"category": category, "counts": counts})
    return records


def scored_rows(table: Table) -> Ints:
    """Rows that have a score: unlabelled, readable, of a class that the truth names."""
    return np.flatnonzero(~table.labelled & table.usable & (np.asarray(table.truth).astype(str) != ""))


def class_index(known: tuple[str, ...], truth: NDArray[Any]) -> tuple[int, list[str], Ints]:
    """Known classes in the table's order, then the others sorted: (n_known, names, index of each row)."""
    names = [*known, *sorted(set(truth.tolist()) - set(known))]
    index = {name: i for i, name in enumerate(names)}
    return len(known), names, np.array([index[name] for name in truth.tolist()], dtype=np.int64)


def _auroc(known: NDArray[np.bool_], known_score: NDArray[np.float64]) -> float | None:
    """Area under the ROC curve of known against novel images; None with one kind only or without scores."""
    if known.all() or not known.any() or np.isnan(known_score).any():
        return None
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(known, known_score))


def _checked(true: ArrayLike, predicted: ArrayLike) -> tuple[Ints, Ints]:
    y, p = np.asarray(true).astype(np.int64), np.asarray(predicted).astype(np.int64)
    if y.shape != p.shape or y.ndim != 1 or len(y) == 0:
        raise InputError(f"Accuracy needs two equally long, non-empty lists, not {y.shape} and {p.shape}.")
    if min(y.min(), p.min()) < 0:
        raise InputError("Accuracy was given a negative class or category: leave such rows out.")
    return y, p


def _counts(y: Ints, p: Ints) -> Ints:
    """(D, D) number of images by [category, class], D = largest index + 1."""
    size = int(max(y.max(), p.max())) + 1
    return np.bincount(p * size + y, minlength=size * size).reshape(size, size)


def _matched(counts: Ints) -> Ints:
    """The category of each class under the assignment with the most matches. (D, D) -> (D,)."""
    # The cost form, not maximize=True: among equal optima SciPy's choice is then the reference's.
    from scipy.optimize import linear_sum_assignment  # takes a third of a second to import

    category, true = linear_sum_assignment(counts.max() - counts)
    return category[np.argsort(true)].astype(np.int64)


def _mean(x: NDArray[Any]) -> float | None:
    return float(x.mean()) if len(x) else None
