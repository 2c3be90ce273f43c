"""Assemble a Discovery from predictions: categories, relations, calibration, table of images."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from holotype.data.bursts import burst_units
from holotype.results.apply_edits import REJECTED_NOTE
from holotype.results.calibration import calibrate, calibration_curve
from holotype.results.describe import MODEL_NOTE, Description, describe_categories, note_bursts
from holotype.results.discovery import Discovery
from holotype.results.purity import set_purity
from holotype.runs.predict import Assignments, Predictions, RoundContext

if TYPE_CHECKING:
    import pandas as pd


def build_discovery(
    placed: Assignments, ids: list[str], told: RoundContext, later: Predictions | None = None
) -> Discovery:
    """Relations and the table of images. There is no map yet: it takes long, and only a report shows it.

    later: what would be said of each image if it came now, where that can be calibrated.
    """
    table, about = placed.table, told.about
    described = describe_categories(
        placed.features,
        placed.category,
        ids,
        table.known,
        list(table.label),
        placed.probability,
        list(table.path),
        called=[told.names.get(id, id) for id in table.known],
        burst=burst_units(table),
    )
    # known classes in their order, then new-01, new-02, ...: the largest first
    order = sorted(described.categories, key=lambda c: (c.kind == "novel", c.id if c.kind == "novel" else ""))
    images = image_frame(placed, ids, described, told.names).assign(**told.columns)
    if placed.opinion is not None:
        points = fit_calibration(placed, later, told.embedded) if later is not None else ()
        about = dataclasses.replace(about, calibration=placed.opinion.words, calibration_curve=points)
        if placed.opinion.labelled:
            set_purity(order, list(images["category_id"]), placed.probability, placed.fixed)
    if told.trainings is not None:
        about = told.trainings.tell(about)
        told.trainings.set_returns(order, ids)
    return Discovery(told.run_id, table.known, images, order, told.count, about).called(told.names)


def add_lda_scores(placed: Assignments, embedded: np.ndarray | None) -> Assignments:
    """With what the frozen features, and the votes of several trainings, say of every place. embedded: (N, D), None
    where nobody has them."""
    if embedded is None:
        return placed
    target = np.where(placed.fixed, placed.table.target, -1)
    unit = burst_units(placed.table)
    opinion = calibrate(embedded, placed.category, target, placed.k, unit, placed.votes)
    return dataclasses.replace(placed, opinion=opinion)


def fit_calibration(
    placed: Assignments, later: Predictions, embedded: np.ndarray | None
) -> tuple[tuple[float, float], ...]:
    """What scores are worth that images get which come later."""
    as_then = dataclasses.replace(placed, said=later.as_prediction(), votes=None)
    opinion = add_lda_scores(as_then, embedded).opinion
    assert opinion is not None  # the one who calls has it
    return calibration_curve(np.where(placed.fixed, np.nan, later.probability), opinion.probability)


def image_frame(
    placed: Assignments, ids: list[str], described: Description, names: Mapping[str, str]
) -> pd.DataFrame:
    """One row per image with the columns of a Discovery. names: of ids that people call otherwise."""
    table, category, disagrees = placed.table, placed.category, placed.disagrees
    name = np.array([*ids, ""], dtype=object)  # -1 is the last one
    said, called = placed.said.category.numpy(), [*(names.get(id, id) for id in ids), ""]
    note = [
        "; ".join(x for x in (own, f"{MODEL_NOTE}{called[index]}" if other else "") if x)
        for own, index, other in zip(placed.note, said, disagrees, strict=True)
    ]
    doubtful = described.doubtful | disagrees
    if table.group is not None:
        note, odd = note_bursts(note, table.group, category, table.labelled, called)
        doubtful |= odd
    rejected = table.problem == REJECTED_NOTE
    kind = np.where(category < 0, "", np.where(category < len(table.known), "known", "novel"))
    import pandas as pd

    return pd.DataFrame(
        {
            "path": table.path,
            "label": table.label,
            "category": name[category],
            "kind": kind.astype(object),
            "probability": placed.probability,
            "known_score": placed.said.known_score.numpy(),
            "typicality": described.typicality,
            "doubtful": doubtful,
            "x": np.nan,
            "y": np.nan,
            "category_id": name[category],
            "problem": np.where(rejected, "", table.problem),
            "note": np.where(rejected, REJECTED_NOTE, np.array(note, dtype=object)),
            **({} if table.group is None else {"group": table.group}),
        }
    )
