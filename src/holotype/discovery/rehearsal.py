"""Judge training against what the frozen backbone says for free, by labels that are hidden from both.

A rehearsal is one more training, to which a quarter of the known classes are new and a fifth of the other labels are
hidden. There is none with fewer than four classes, or too few labels of either kind: judged by hidden classes alone,
the way that places most images in new categories would win, and by known ones alone the way that places fewest.
Semi-supervised k-means on frozen features is given the same labels. Three ways to place the images are scored on the
hidden labels:

- together: trainings and partitions by frozen features vote alike;
- trainings: they decide, partitions only break ties;
- frozen: the other way round.

A hidden label is right in its own class; those of hidden classes are right in the new category that is matched with
the class. The two kinds count alike. The share of labels names one way (training_plan.py), which is taken unless
another is better by more than the standard error of the difference.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from holotype.data.table import Table, burst_units
from holotype.results.calibration import HiddenLabels
from holotype.results.ensemble import Training, best_pairs, pool_with_lda, vote_consensus
from holotype.results.frozen import BLENDS, Blend, frozen_votes, weigh_votes

HIDDEN_CLASSES, HIDDEN_LABELS = 0.25, 0.2
MIN_CLASSES = 4
"""Known classes from which some are hidden as a whole."""
MIN_JUDGED, MIN_KIND = 40, 10
"""Hidden labels, and those of known and of hidden classes each, below which nothing is judged."""


def hide_labels(table: Table, seed: int) -> Table | None:
    """Return the table with some classes and labels hidden; None where too few labels can be judged by.

    Of a burst, all frames keep or lose their label together.
    """
    if len(table.known) < MIN_CLASSES:
        return None
    rng, unit = np.random.default_rng(seed), burst_units(table)
    classes = rng.permutation(np.array(table.known, dtype=object))
    n_hidden = round(HIDDEN_CLASSES * len(classes))
    label = table.label.copy()
    for place, name in enumerate(classes):
        rows = np.flatnonzero(table.label == name)
        units = rng.permutation(np.unique(rows if unit is None else unit[rows]))
        some = units if place < n_hidden else units[: math.ceil(HIDDEN_LABELS * (len(units) - 1))]
        label[rows[np.isin(rows if unit is None else unit[rows], some)]] = ""
    known = tuple(name for name in table.known if name not in classes[:n_hidden])
    hidden = dataclasses.replace(table, label=label, known=known)
    judged = judged_labels(table, hidden)
    of_known = int(np.isin(judged, known).sum())
    enough = len(judged) >= MIN_JUDGED and min(of_known, len(judged) - of_known) >= MIN_KIND
    return hidden if enough else None


def choose_blend(
    table: Table,
    hidden: Table,
    trainings: Sequence[Training],
    embedded: np.ndarray,
    k: int,
    device: str,
    default: str,
) -> Blend:
    """Score every blend on the hidden labels, and take the best.

    Args:
        table: The images with all labels.
        hidden: The same as `hide_labels` returned it.
        trainings: What the rehearsal says of the images.
        embedded: (N, D) features of the frozen backbone.
        default: The blend that is taken where no other is better.
    """
    target, unit = hidden.target, burst_units(hidden)
    frozen = frozen_votes(embedded, target, k, len(trainings), unit=unit, device=device)
    right = []
    for weights in BLENDS.values():
        votes = weigh_votes(trainings, frozen, weights)
        together = vote_consensus(votes, len(hidden.known), k, carriers=len(trainings))
        category = pool_with_lda(together, embedded, target, k, unit).category
        right.append(hidden_right(table, hidden, category))
    kind = np.isin(judged_labels(table, hidden), hidden.known)
    parts = (kind, ~kind)
    shares = [float(np.mean([one[part].mean() for part in parts])) for one in right]
    name, gain, at = default, 0.0, list(BLENDS).index(default)
    for other, one, share in zip(BLENDS, right, shares, strict=True):
        away = one.astype(float) - right[at]
        error = math.sqrt(sum(away[part].var() / part.sum() for part in parts)) / len(parts)
        if share - shares[at] > max(error, gain):
            name, gain = other, share - shares[at]
    best = right[list(BLENDS).index(name)]
    tests = tuple(HiddenLabels(float(best[part].mean()), int(part.sum())) for part in parts)
    return Blend(name, (shares[0], shares[1], shares[2]), tests)


def judged_labels(table: Table, hidden: Table) -> np.ndarray:
    """(J,) labels that are hidden, of images that can be read."""
    return np.asarray(table.label[_judged(table, hidden)])


def _judged(table: Table, hidden: Table) -> np.ndarray:
    return np.flatnonzero((table.label != hidden.label) & table.usable)


def hidden_right(table: Table, hidden: Table, category: np.ndarray) -> np.ndarray:
    """(J,) bool: is the image of each hidden label in its class, or in the category matched with its hidden class?

    category: (N,) by the counting of `hidden`.
    """
    rows = _judged(table, hidden)
    label, placed, n_known = table.label[rows], category[rows], len(hidden.known)
    index = {name: i for i, name in enumerate(hidden.known)}
    own = np.array([index.get(name, -1) for name in label])
    new, which = np.unique(label[own < 0], return_inverse=True)
    free = own < 0
    if len(new):
        common = np.zeros((len(new), int(max(category.max(), n_known)) + 1 - n_known))
        inside = placed[free] >= n_known
        np.add.at(common, (which[inside], placed[free][inside] - n_known), 1)
        matched = np.full(len(new), -2)
        row, column = best_pairs(common)
        matched[row] = column + n_known
        own[free] = matched[which]
    return np.asarray(placed == own)
