"""From features to a discovery: predict -> ensemble -> calibrate -> assemble.

New images are predicted by `predict_new`: by the method, beside the LDA of the frozen backbone where a run has one. The
images of a run become a discovery on this way, on which `Placement` holds them and each step fills in its part:

1. `place_images` takes what the model says of the images it was trained on. Of these, the votes of several trainings
   decide where there were several (results/ensemble.py); else the model and the LDA of the frozen features together.
   Images of the collection that were not trained on follow: they come as new ones do.
2. `Placement.calibrate` asks how likely each image is right (results/calibration.py).
3. `build_discovery` describes the categories and makes the table of images.

A label has the last word: a labelled image lies in its class, and where the model would say otherwise it is doubtful.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from holotype.data.table import Table, burst_units
from holotype.embeddings.store import embed_table
from holotype.methods import Method, Prediction
from holotype.models.backbone import Backbone, state_digest
from holotype.results.calibration import CalibratedScores, HiddenLabels, calibrate, calibration_curve
from holotype.results.describe import MODEL_NOTE, Description, describe_categories, note_bursts
from holotype.results.discovery import Category, Discovery, RunFacts, category_name
from holotype.results.edits import REJECTED_NOTE
from holotype.results.ensemble import (
    Consensus,
    Training,
    VoteShares,
    category_stability,
    match_categories,
    pool_with_lda,
    vote_consensus,
)
from holotype.results.frozen import Blend, weigh_votes
from holotype.results.lda import CrossFitLDA, LinearHead, Scorer, softmax
from holotype.results.purity import set_purity
from holotype.training.encoder import PREDICT_BATCH
from holotype.training.loop import Loop
from holotype.utils.distributed import rank

if TYPE_CHECKING:
    import pandas as pd

    from holotype.runs.resources import RunResources

log = logging.getLogger(__name__)
REMAINDER_FOLDER = "rest"
"""Of shards: features of the images that a run was not trained on, while they are computed."""


class Predictions(NamedTuple):
    """Of n images, as arrays."""

    category: np.ndarray
    """(n,) int64; -1 = it is placed nowhere."""
    probability: np.ndarray
    """(n,) float32 of the category, as the method or both think."""
    known_score: np.ndarray
    """(n,) float32; the method's alone."""

    @classmethod
    def spread(cls, parts: Iterable[tuple[np.ndarray, Predictions]], n: int) -> Predictions:
        """Place predictions for some of n images at their rows; -1 and NaN for the others."""
        whole = cls(np.full(n, -1), np.full(n, np.nan, np.float32), np.full(n, np.nan, np.float32))
        for rows, part in parts:
            whole.fill(rows, part)
        return whole

    def fill(self, rows: np.ndarray, part: Predictions) -> None:
        """Overwrite the rows with those of another."""
        for column, values in zip(self, part, strict=True):
            column[rows] = values


def predict(method: Method, features: np.ndarray) -> Predictions:
    """Predict features (n, D) by the method, on the device where it is."""
    return Predictions(*_batched(method, features, lambda part: vars(method.predict(part)).values()))


def predict_with_lda(method: Method, features: np.ndarray, shares: np.ndarray) -> Predictions:
    """Predict by both: q_c = (v_c + p_c) / 2. shares: (n, K) p, of the LDA."""
    alone = predict(method, features)
    both = (class_probabilities(method, features, alone) + shares) / 2
    category = both.argmax(axis=1)
    return Predictions(category, both[np.arange(len(both)), category].astype(np.float32), alone.known_score)


def predict_new(
    method: Method,
    features: np.ndarray,
    frozen: np.ndarray | None,
    head: LinearHead | None,
    rows: np.ndarray | None = None,
) -> Predictions:
    """Predict new images by their features (n, D) and those of the frozen backbone; by the method alone without head.

    Images whose feature is NaN are placed nowhere. Features are never copied at once: there may be millions.

    Args:
        head: The LDA of the run, if it has one; it needs `frozen`.
        rows: Those that are asked for; by default all.
    """
    every, parts = np.arange(len(features)) if rows is None else rows, []
    for first in range(0, len(every), PREDICT_BATCH):
        part = every[first : first + PREDICT_BATCH]
        part = part[np.isfinite(features[part]).all(axis=1)]
        if head is None:
            parts.append((part, predict(method, features[part])))
        elif frozen is None:
            raise ValueError("the LDA needs the features of the frozen backbone")
        else:
            parts.append((part, predict_with_lda(method, features[part], head.shares(frozen[part]))))
    return Predictions.spread(parts, len(features))


def class_probabilities(method: Method, features: np.ndarray, alone: Predictions | None = None) -> np.ndarray:
    """Return (n, K) what the method thinks of each category: the softmax of its logits. Where it has none, or names
    another category than they do, what it thinks of the one that it names. alone: what `predict` says, if it is known.
    """
    alone = alone or predict(method, features)
    named = np.zeros((len(features), method.task.k), dtype=np.float32)
    named[np.arange(len(features)), alone.category] = alone.probability
    if not has_logits(method):
        return named
    every = _batched(method, features, lambda part: [method.logits(part).softmax(dim=-1).float()])[0]
    same = every.argmax(axis=1) == alone.category
    return np.where(same[:, None], every, named)


def has_logits(method: Method) -> bool:
    return type(method).logits is not Method.logits


Ask = Callable[[Tensor], Iterable[Tensor]]


@torch.no_grad()
def _batched(method: Method, features: np.ndarray, ask: Ask) -> list[np.ndarray]:
    """Return what is asked of features (n, D), joined; on the device and in the type of the method."""
    held = (t for t in (*method.parameters(), *method.buffers()) if t.is_floating_point())
    like, rows = next(held, torch.empty(0)), torch.from_numpy(np.ascontiguousarray(features))
    parts = [ask(part.to(like.device, like.dtype)) for part in rows.split(PREDICT_BATCH)]
    return [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]


@dataclass(frozen=True)
class EnsembleRuns:
    """What several trainings say of the n images that they were trained on."""

    seeds: tuple[int, ...]
    together: Consensus
    """Of the trainings, and after them of partitions by frozen features."""
    free: np.ndarray
    """(n,) bool: images without a label."""
    methods: tuple[str, ...]
    """That they took in turn."""
    blend: Blend
    """How the votes count, and why."""

    @classmethod
    def of(
        cls,
        seeds: Sequence[int],
        said: Sequence[Prediction],
        table: Table,
        k: int,
        methods: tuple[str, ...],
        embedded: np.ndarray,
        frozen: Sequence[Training],
        blend: Blend,
    ) -> EnsembleRuns:
        """Join the predictions of each training on the images of the table.

        Args:
            embedded: (n, D) features of the frozen backbone, for the LDA.
            frozen: Partitions by these features, which vote too.
            blend: How trainings and partitions count.
        """
        votes = weigh_votes([Training.of(one) for one in said], frozen, blend.weights)
        together = vote_consensus(votes, len(table.known), k, carriers=len(said))
        together = pool_with_lda(together, embedded, table.target, k, burst_units(table))
        return cls(tuple(seeds), together, ~table.labelled, methods, blend)

    def prediction(self, said: Sequence[Prediction]) -> Prediction:
        """Return where they place the images together. How known an image is, is the mean of what they say."""
        known = torch.stack([one.known_score for one in said]).mean(dim=0)
        share = torch.from_numpy(self.together.share).to(said[0].probability.dtype)
        return Prediction(torch.from_numpy(self.together.category), share, known)

    def tell(self, about: RunFacts) -> RunFacts:
        shares = tuple(round(float(share), 4) for share in self.together.agreed[: len(self.seeds)])
        return dataclasses.replace(
            about, trainings=self.seeds, agreement=shares, methods=self.methods, blend=self.blend.words
        )

    def set_returns(self, categories: Iterable[Category], ids: Sequence[str]) -> None:
        """Write into categories how often they come back. ids: by index."""
        outcome = np.where(self.free, self.together.category, -1)
        trainings = self.together.trainings[: len(self.seeds)]
        found = dict(zip(ids, category_stability(outcome, trainings, len(ids)), strict=True))
        for category in categories:
            one = found[category.id]
            category.comes_back, category.together = one.times, one.together


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
    rehearsed: Sequence[HiddenLabels] = ()
    """How they fared on hidden labels."""
    scores: CalibratedScores | None = None
    """How likely each image is right; None without features of the frozen backbone."""
    curve: tuple[tuple[float, float], ...] = ()
    """What scores of new images are worth, where labels can tell it."""
    head: LinearHead | None = None
    """The LDA for new images, where there is one."""
    ids: list[str] = field(default_factory=list)
    """Of the k categories by index."""

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

    def calibrate(self, embedded: np.ndarray | None, method: Method) -> None:
        """Ask how likely each image is right, and would be if it were new.

        embedded: (N, D) of the frozen backbone; None leaves it open.
        """
        if embedded is None:
            return
        unit = burst_units(self.table)
        self.scores = calibrate(
            embedded, self.category, self.target, self.k, unit, self.votes, self.rehearsed
        )
        lda = self.scores.opinion if uses_lda(method) else None
        self.head = lda.kept() if lda else None
        if self.scores.labelled:
            said = predict_as_new(self, method, lda)
            new = np.where(self.fixed, self.table.target, said.category)
            judged = calibrate(embedded, new, self.target, self.k, unit)
            self.curve = calibration_curve(np.where(self.fixed, np.nan, said.probability), judged.probability)


@dataclass(frozen=True)
class ModelScores:
    """What one training says of its images, in the place of the votes of several."""

    method: Method
    features: np.ndarray
    """(N, D)."""

    def shares(self, images: np.ndarray) -> np.ndarray:
        """(n, K)."""
        return class_probabilities(self.method, self.features[images])

    def placements(self) -> np.ndarray:
        """(0, N): there is one only."""
        return np.empty((0, len(self.features)), dtype=np.int64)


def place_images(
    loop: Loop, prediction: Prediction, prepared: RunResources, context: RoundContext, folder: Path
) -> Placement:
    """Place every image of a run, by all that have a say.

    prediction: of the images that the run was trained on. folder: keeps features of the others for a while.
    """
    features = np.where(loop.table.usable[:, None], loop.features.float().cpu().numpy(), np.nan)
    said = Predictions(*(column.numpy() for column in vars(prediction).values()))
    placed = Placement(loop.table, prepared.data.k, features, said, prepared.images.note)
    frozen = context.embedded if uses_lda(loop.method) else None
    own = frozen if frozen is None or context.rows is None else frozen[context.rows]
    if context.trainings is not None:
        placed.votes = VoteShares.of(context.trainings.together, placed.k)
    elif own is not None:
        place_with_lda(placed, loop.method, own)
    if context.table is not None:
        placed = place_rest(placed, context, loop, prepared.backbone, folder, own)
    if context.trainings is not None:
        placed.rehearsed = context.trainings.blend.rehearsed
    if context.trainings is None and frozen is not None:
        placed.votes = ModelScores(loop.method, placed.features)
    if (alike := single_category(placed)) and rank() == 0:
        log.warning(alike)
    return placed


def uses_lda(method: Method) -> bool:
    """Return whether a method trains; one that does not places images by the frozen features already."""
    return bool(method.stages())


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
    folder: Path,
    frozen: np.ndarray | None,
) -> Placement:
    """Place the whole collection; images that were not trained on come in a stream, whose shards are kept.

    frozen: (n, D) of those that were, by the frozen backbone; the model places the others alone where it is None.
    """
    table, rows = context.table, context.rows
    assert table is not None
    assert rows is not None
    others = np.setdiff1d(np.flatnonzero(table.usable), rows)
    features = np.full((len(table), own.features.shape[1]), np.nan, dtype=np.float32)
    problem = table.problem.copy()
    note = np.full(len(table), "", dtype=object) if context.note is None else context.note.copy()
    features[rows], problem[rows] = own.features, own.table.problem
    if len(others):
        # features are those of the trained encoder, and of the method's way to embed with it
        trained = dataclasses.replace(backbone, digest=state_digest(loop.model_tensors()))
        rest, shards = table.take(others), folder / REMAINDER_FOLDER
        new = embed_table(rest, trained, loop.compute, shards, encoder=loop.encoder, progress=loop.progress)
        problem[others], note[others] = new.problem, new.note
        features[others] = np.where((new.problem == "")[:, None], new.features, np.nan)
    head = fit_lda_of(own, frozen).kept() if frozen is not None and len(others) else None
    said = predict_new(loop.method, features, context.embedded, head, others)
    said.fill(rows, own.said)
    if context.rejected is not None:  # to whoever counts, they are no usable images
        said.fill(context.rejected, Predictions.spread([], int(context.rejected.sum())))
        problem[context.rejected & (problem == "")] = REJECTED_NOTE
    votes = own.votes.spread(rows, len(table)) if isinstance(own.votes, VoteShares) else None
    return Placement(table.with_problems(problem), own.k, features, said, note, votes)


def single_category(placed: Placement) -> str:
    """Return the sentence about a run that has put all that it was free to place into one category; "" for others."""
    free = placed.category[~placed.fixed & (placed.said.category >= 0)]
    if len(free) < 2 or (free != free[0]).any():
        return ""
    known = placed.table.known
    where = f"the known class {known[free[0]]}" if free[0] < len(known) else "one new category"
    what = f"All {len(free):,} unlabelled images were put into {where}, so nothing was found in them"
    return f"{what}; if they do differ, try a lower --train.lr, another --k or another --backbone."


def carry_over_ids(
    placed: Placement, before: Discovery | None, withdrawn: frozenset[str] = frozenset()
) -> dict[int, str]:
    """Return index of a new category -> the id that it had in the round before, by the images that are free in this one
    and were there in both. withdrawn: ids that are not handed on."""
    if before is None:
        return {}
    table, n_known = placed.table, len(placed.table.known)
    index = dict(zip(table.path, np.where(table.usable & ~table.labelled, placed.category, -1), strict=True))
    earlier: dict[str, set[str]] = defaultdict(set)
    later: dict[int, set[str]] = defaultdict(set)
    for path, id in zip(before.images["path"], before.images["category_id"], strict=True):
        now = int(index.get(path, -1))
        if id and now >= 0 and id not in withdrawn and id not in table.known:
            earlier[id].add(path)
        if now >= n_known:
            later[now].add(path)
    return match_categories(earlier, later)


def name_categories(
    category: np.ndarray,
    known: tuple[str, ...],
    k: int,
    carried: Mapping[int, str] | None = None,
    taken: Iterable[str] = (),
) -> list[str]:
    """Return the ids of the k categories by index; novel ones are numbered by size, those without an image come last.

    carried: of `carry_over_ids`. taken: ids that no other category may get.
    """
    carried = carried or {}
    size = np.bincount(category[category >= 0], minlength=k)
    fresh = [index for index in range(len(known), k) if index not in carried]
    fresh.sort(key=lambda index: -size[index])
    used = (*taken, *carried.values())
    ids = {index: category_name(len(known) + rank, known, k, used) for rank, index in enumerate(fresh)}
    return [*known, *(carried.get(index) or ids[index] for index in range(len(known), k))]


def build_discovery(placed: Placement, context: RoundContext) -> Discovery:
    """Name and describe the categories and make the table of images. There is no map yet: only a report shows it."""
    table, about = placed.table, context.about
    carried = carry_over_ids(placed, context.before, context.withdrawn)
    ids = placed.ids = name_categories(placed.category, table.known, placed.k, carried, context.taken)
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
    images = image_frame(placed, described, context.names).assign(**context.columns)
    if placed.scores is not None:
        about = dataclasses.replace(about, calibration=placed.scores.words, calibration_curve=placed.curve)
        if placed.scores.labelled or placed.scores.partitions:
            set_purity(order, list(images["category_id"]), placed.probability, placed.fixed)
    if context.trainings is not None:
        about = context.trainings.tell(about)
        context.trainings.set_returns(order, ids)
    return Discovery(context.run_id, table.known, images, order, context.count, about).called(context.names)


def image_frame(placed: Placement, described: Description, names: Mapping[str, str]) -> pd.DataFrame:
    """Return one row per image with the columns of a Discovery. names: of ids that people call otherwise."""
    table, category = placed.table, placed.category
    disagrees = placed.fixed & (placed.said.category != table.target)  # the method says something else
    name = np.array([*placed.ids, ""], dtype=object)  # -1 is the last one
    said, called = placed.said.category, [*(names.get(id, id) for id in placed.ids), ""]
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
