"""Signs that a method learned nothing: a loss that stands still, images that are all in one place."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from holotype.data.table import Table
from holotype.results.edits import REJECTED_NOTE
from holotype.runs.predict import Predictions

FEWEST_EPOCHS = 3
"""Of fewer nobody can say that a term stands still."""
STILL = 1e-4
"""Largest change of a term, as a share of it, that counts as none."""


def collapse_signs(
    table: Table, prediction: Predictions, k: int, metrics: Path, terms: Collection[str]
) -> list[str]:
    """Return a sentence for each sign.

    metrics: the lines of the run. terms: of the loss of its last stage; none where nothing was trained.
    """
    return [*_places(table, prediction, k), *_constant_terms(metrics, terms)]


def _places(table: Table, prediction: Predictions, k: int) -> Iterator[str]:
    category = prediction.category[~table.labelled & (table.problem != REJECTED_NOTE)]
    category, known = category[category >= 0], len(table.known)
    if not len(category):
        return
    n = f"{len(category):,} unlabelled images"
    if len(np.unique(category)) == 1:
        yield f"All {n} are in one category."
    elif (category < known).all() and k > known:
        yield f"All {n} are in known classes, none in a new category."
    elif (category >= known).all():
        yield f"All {n} are in new categories, none in a known class."


def _constant_terms(metrics: Path, terms: Collection[str]) -> Iterator[str]:
    """A term that is 0 was switched off, and is none of them."""
    if not metrics.is_file():
        return
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    epochs = [line for line in lines if line.get("kind") == "epoch"]
    epochs = [line for line in epochs if line["stage"] == epochs[-1]["stage"]]
    for name in ("loss", *sorted(terms)):
        values = [line[name] for line in epochs if name in line]
        if len(values) < FEWEST_EPOCHS or not values[0] or (name != "loss" and len(terms) == 1):
            continue
        if max(values) - min(values) <= STILL * abs(values[0]):
            what = "The loss" if name == "loss" else f"The loss term {name}"
            yield (
                f"{what} stayed at {values[-1]:.4g} in all {len(values)} epochs, so nothing was learned from it; "
                "look for a rate that is too high, or a head without gradient."
            )
