"""From the predictions of a run to its discovery: predict -> ensemble -> calibrate -> assemble.

`Placement` holds the images on their way, and each step fills in its part:

1. `place_images` takes what the model says of the images it was trained on. Of these, the votes of several trainings
   decide where there were several (results/ensemble.py); else the model and the LDA of the frozen features together.
   Images of the collection that were not trained on follow: they come as new ones do.
2. `Placement.calibrate` asks how likely each image is right (results/calibration.py).
3. `build_discovery` describes the categories and makes the table of images.

A label has the last word: a labelled image lies in its class, and where the model would say otherwise it is doubtful.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holotype.data.bursts import burst_units
from holotype.data.table import Table
from holotype.embeddings.store import embed_table
from holotype.methods import Method, Prediction
from holotype.models.backbone import Backbone, state_digest
from holotype.results.calibration import CalibratedScores, calibrate, calibration_curve
from holotype.results.describe import MODEL_NOTE, Description, describe_categories, note_bursts
from holotype.results.discovery import Discovery, RunFacts, category_name
from holotype.results.edits import REJECTED_NOTE
from holotype.results.ensemble import VoteShares, match_categories
from holotype.results.lda import CrossFitLDA, LinearHead, Scorer, softmax
from holotype.results.purity import set_purity
from holotype.runs.predict import (
    EnsembleRuns,
    Predictions,
    class_probabilities,
    predict_new,
    predict_with_lda,
)
from holotype.runs.resources import RunResources
from holotype.training.loop import Loop

if TYPE_CHECKING:
    import pandas as pd

REMAINDER_FOLDER = "rest"
"""Of shards: features of the images that a run was not trained on, while they are computed."""


@dataclass(frozen=True)
class RoundContext:
    """What a discovery knows of a run that is one of its rounds."""

    run_id: str
    about: RunFacts
    """As far as they are known before training."""
    count: dict[str, Any] | None = None
    """The estimate of the number of categories."""
    before: Discovery | None = None
    """The round before as corrected: ids stay with their images."""
    withdrawn: frozenset[str] = frozenset()
    """Classes of the round before that people say are none: no category inherits their ids."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Id of a category to the name that people gave it."""
    taken: frozenset[str] = frozenset()
    """Ids and names of all rounds before, which mean something else than a category that nobody has seen yet."""
    embedded: np.ndarray | None = None
    """(N, D) features of the frozen backbone, for the LDA."""
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Of the table of images: (N,) what else is known of each (results/discovery.py, OPTIONAL)."""
    trainings: EnsembleRuns | None = None
    """Where several trainings have placed the images together."""
    table: Table | None = None
    """All N images, where the run was trained on a sample of them."""
    rows: np.ndarray | None = None
    """(n,) those that the run was trained on, in the order of its own table."""
    note: np.ndarray | None = None
    """(N,) object str: what was done to unusual images."""
    rejected: np.ndarray | None = None
    """(N,) bool: images that people have rejected; they are in no category."""

    @cached_property
    def others(self) -> np.ndarray:
        """Rows of the images that the run was not trained on, and that can be read."""
        if self.table is None or self.rows is None:
            return np.empty(0, dtype=np.int64)
        return np.setdiff1d(np.flatnonzero(self.table.usable), self.rows)


@dataclass
class Placement:
    """Every image of a table after training, on its way to a discovery."""

    table: Table
    k: int
    features: np.ndarray
    """(N, D) float32; NaN for images that cannot be read."""
    said: Predictions
    """Of each image, labelled or not."""
    note: np.ndarray
    """(N,) object str."""
    votes: Scorer | None = None
    """Of the trainings, where they count beside the LDA."""
    scores: CalibratedScores | None = None
    """How likely each image is right; None without features of the frozen backbone."""

    @cached_property
    def fixed(self) -> np.ndarray:
        """(N,) bool: images whose label places them."""
        return np.asarray(self.table.labelled & self.table.usable)

    @property
    def target(self) -> np.ndarray:
        """(N,) index of the class that the label of an image names, -1 where no label places it."""
        return np.where(self.fixed, self.table.target, -1)

    @property
    def category(self) -> np.ndarray:
        """(N,) index of the category, -1 for images that cannot be read; labelled ones lie in their class."""
        return np.where(self.fixed, self.table.target, self.said.category)

    @property
    def probability(self) -> np.ndarray:
        """(N,) of the category: 1 for a label. Before `calibrate` it is the method's own score."""
        said = self.said.probability if self.scores is None else self.scores.probability
        return np.where(self.fixed, 1.0, said)

    @property
    def disagrees(self) -> np.ndarray:
        """(N,) bool: labelled images of which the method says something else."""
        return self.fixed & (self.said.category != self.table.target)

    def calibrate(self, embedded: np.ndarray | None) -> None:
        """Ask how likely each image is right. embedded: (N, D) of the frozen backbone; None leaves it open."""
        if embedded is not None:
            unit = burst_units(self.table)
            self.scores = calibrate(embedded, self.category, self.target, self.k, unit, self.votes)


@dataclass(frozen=True)
class ModelScores:
    """What one training says of its images, in the place of the votes of several."""

    method: Method
    features: np.ndarray
    """(N, D)."""

    def shares(self, images: np.ndarray) -> np.ndarray:
        """(n, K)."""
        return class_probabilities(self.method, self.features[images])


# -- predict and ensemble -------------------------------------------------------------------------------


def place_images(
    loop: Loop,
    prediction: Prediction,
    prepared: RunResources,
    context: RoundContext,
    shards: Path,
    progress: bool,
) -> Placement:
    """Place every image of a run, by all that have a say.

    prediction: of the images that the run was trained on. shards: keeps features of the others for a while.
    """
    placed = trained_images(loop, prediction, prepared.data.k, prepared.images.note)
    frozen = context.embedded if uses_lda(loop.method) else None
    own_frozen = frozen if frozen is None or context.rows is None else frozen[context.rows]
    if context.trainings is not None:
        placed.votes = VoteShares.of(context.trainings.together, placed.k)
    elif own_frozen is not None:
        place_with_lda(placed, loop.method, own_frozen)
    if context.table is not None:
        head = None
        if own_frozen is not None and len(context.others):
            head = fit_lda_of(placed, own_frozen).kept()
        placed = place_rest(placed, context, loop, prepared.backbone, shards, progress, frozen, head)
    if context.trainings is None and frozen is not None:
        placed.votes = ModelScores(loop.method, placed.features)
    return placed


def uses_lda(method: Method) -> bool:
    """A method that trains nothing places images by the frozen features already."""
    return bool(method.stages())


def trained_images(loop: Loop, prediction: Prediction, k: int, note: np.ndarray) -> Placement:
    """The images that a run was trained on, with the features of its last step."""
    assert loop.features is not None  # `prediction` comes from a loop that ended
    features = np.where(loop.table.usable[:, None], loop.features.float().cpu().numpy(), np.nan)
    return Placement(loop.table, k, features, Predictions.of(prediction), note)


def fit_lda_of(placed: Placement, embedded: np.ndarray) -> CrossFitLDA:
    """Learn images as they are placed. embedded: (N, D) their features of the frozen backbone."""
    lda = CrossFitLDA(embedded, placed.category, placed.k, burst_units(placed.table))
    lda.form(placed.target)
    return lda


def predict_as_new(placed: Placement, method: Method, lda: CrossFitLDA | None) -> Predictions:
    """Predict each image as if it came now: by the model, and by the fold of the LDA that has not seen it."""
    rows = np.flatnonzero(placed.category >= 0)
    if lda is None:
        return predict_new(method, placed.features, None, None, rows)
    parts = (
        (part, predict_with_lda(method, placed.features[part], softmax(scores / lda.heat)))
        for part, scores in lda.scores(rows)
    )
    return Predictions.spread(parts, len(placed.table))


def place_with_lda(placed: Placement, method: Method, embedded: np.ndarray) -> None:
    """Place the images of one training as new ones are. Of labelled images it stays what the model says: users are told
    where it contradicts the label."""
    before, now = placed.said, predict_as_new(placed, method, fit_lda_of(placed, embedded))
    fixed = placed.fixed
    now.category[fixed], now.probability[fixed] = before.category[fixed], before.probability[fixed]
    placed.said = now


def place_rest(
    own: Placement,
    context: RoundContext,
    loop: Loop,
    backbone: Backbone,
    shards: Path,
    progress: bool,
    frozen: np.ndarray | None = None,
    head: LinearHead | None = None,
) -> Placement:
    """The whole collection; images that were not trained on come in a stream, whose shards are kept.

    frozen: (N, D) of the frozen backbone, for the head; the model places the others alone where there is none.
    """
    table, rows, others = context.table, context.rows, context.others
    assert table is not None
    assert rows is not None
    features = np.full((len(table), own.features.shape[1]), np.nan, dtype=np.float32)
    problem = table.problem.copy()
    note = np.full(len(table), "", dtype=object) if context.note is None else context.note.copy()
    features[rows], problem[rows] = own.features, own.table.problem
    if len(others):
        # features are those of the trained encoder, and of the method's way to embed with it
        trained = dataclasses.replace(backbone, digest=state_digest(loop.model_tensors()))
        images = embed_table(
            table.take(others), trained, loop.compute, shards, encoder=loop.encoder, progress=progress
        )
        problem[others], note[others] = images.problem, images.note
        features[others] = np.where((images.problem == "")[:, None], images.features, np.nan)
    said = predict_new(loop.method, features, frozen, head, others)
    said.fill(rows, own.said)
    if context.rejected is not None:  # to whoever counts, they are no usable images
        said.drop(context.rejected)
        problem[context.rejected & (problem == "")] = REJECTED_NOTE
    votes = own.votes.spread(rows, len(table)) if isinstance(own.votes, VoteShares) else None
    return Placement(table.with_problems(problem), own.k, features, said, note, votes)


def single_category(placed: Placement) -> str:
    """The sentence about a run that has put all that it was free to place into one category; "" for any other."""
    free = placed.category[~placed.fixed]
    free = free[free >= 0]
    if len(free) < 2 or (free != free[0]).any():
        return ""
    known = placed.table.known
    where = f"the known class {known[free[0]]}" if free[0] < len(known) else "one new category"
    return (
        f"All {len(free):,} unlabelled images were put into {where}, so nothing was found in them; look whether "
        "they differ in truth, then try a lower --train.lr, another --k or another --backbone."
    )


# -- name the categories --------------------------------------------------------------------------------


def carry_over_ids(
    placed: Placement, before: Discovery | None, withdrawn: frozenset[str] = frozenset()
) -> dict[int, str]:
    """Index of a new category to the id that it had in the round before, by the images that are free in this one and
    were there in both. withdrawn: ids that are not handed on."""
    if before is None:
        return {}
    table, category = placed.table, placed.category
    index = dict(zip(table.path, np.where(table.usable & ~table.labelled, category, -1), strict=True))
    earlier: dict[str, set[str]] = {}
    later: dict[int, set[str]] = {}
    for path, id in zip(before.images["path"], before.images["category_id"], strict=True):
        if id and id not in withdrawn and id not in table.known and index.get(path, -1) >= 0:
            earlier.setdefault(id, set()).add(path)
    there = set(before.images["path"])
    for path, at in index.items():
        if at >= len(table.known) and path in there:
            later.setdefault(int(at), set()).add(path)
    return match_categories(earlier, later)


def name_categories(
    category: np.ndarray,
    known: tuple[str, ...],
    k: int,
    carried: Mapping[int, str] | None = None,
    taken: Iterable[str] = (),
) -> list[str]:
    """Ids of the k categories by index; novel ones are numbered by size, and those without an image come last.

    carried: of `carry_over_ids`. taken: ids that no other category may get.
    """
    carried = carried or {}
    size = np.bincount(category[category >= 0], minlength=k)
    fresh = [index for index in range(len(known), k) if index not in carried]
    fresh.sort(key=lambda index: -size[index])
    used = (*taken, *carried.values())
    ids = {index: category_name(len(known) + rank, known, k, used) for rank, index in enumerate(fresh)}
    return [*known, *(carried.get(index) or ids[index] for index in range(len(known), k))]


# -- assemble -------------------------------------------------------------------------------------------


def build_discovery(
    placed: Placement, ids: list[str], context: RoundContext, as_new: Predictions | None = None
) -> Discovery:
    """Describe the categories and make the table of images. There is no map yet: only a report shows it.

    as_new: of `predict_as_new`, where scores can be calibrated.
    """
    table, about = placed.table, context.about
    described = describe_categories(
        placed.features,
        placed.category,
        ids,
        table.known,
        list(table.label),
        placed.probability,
        list(table.path),
        called=[context.names.get(id, id) for id in table.known],
        burst=burst_units(table),
    )
    # known classes in their order, then new-01, new-02, ...: the largest first
    order = sorted(described.categories, key=lambda c: (c.kind == "novel", c.id if c.kind == "novel" else ""))
    images = image_frame(placed, ids, described, context.names).assign(**context.columns)
    if placed.scores is not None:
        curve = new_image_curve(placed, as_new, context.embedded) if as_new is not None else ()
        about = dataclasses.replace(about, calibration=placed.scores.words, calibration_curve=curve)
        if placed.scores.labelled:
            set_purity(order, list(images["category_id"]), placed.probability, placed.fixed)
    if context.trainings is not None:
        about = context.trainings.tell(about)
        context.trainings.set_returns(order, ids)
    return Discovery(context.run_id, table.known, images, order, context.count, about).called(context.names)


def new_image_curve(
    placed: Placement, as_new: Predictions, embedded: np.ndarray | None
) -> tuple[tuple[float, float], ...]:
    """What scores of new images are worth."""
    as_then = dataclasses.replace(placed, said=as_new, votes=None)
    as_then.calibrate(embedded)
    assert as_then.scores is not None
    return calibration_curve(np.where(placed.fixed, np.nan, as_new.probability), as_then.scores.probability)


def image_frame(
    placed: Placement, ids: list[str], described: Description, names: Mapping[str, str]
) -> pd.DataFrame:
    """One row per image with the columns of a Discovery. names: of ids that people call otherwise."""
    table, category, disagrees = placed.table, placed.category, placed.disagrees
    name = np.array([*ids, ""], dtype=object)  # -1 is the last one
    said, called = placed.said.category, [*(names.get(id, id) for id in ids), ""]
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
            "known_score": placed.said.known_score,
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
