"""Predict categories from features: model, ensemble and LDA; carry ids over from the round before.

A label has the last word: a labelled image lies in its class, and where the model would say otherwise it is doubtful.

Of images that the trainings of a discovery have seen, their votes decide (trainings.py). Of all others, and where there
was one training, the model has its word, and the second opinion its own (results/lda.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from holotype.data.bursts import burst_units
from holotype.data.table import Table
from holotype.embeddings.store import embed_table
from holotype.methods import Method, Prediction
from holotype.models.backbone import Backbone, state_digest
from holotype.results.apply_edits import REJECTED_NOTE
from holotype.results.calibration import CalibratedScores
from holotype.results.discovery import Category, Discovery, RunFacts, category_name
from holotype.results.ensemble import (
    Consensus,
    Training,
    VoteShares,
    category_stability,
    pool_with_lda,
    vote_consensus,
)
from holotype.results.lda import CrossFitLDA, LinearHead, Scorer, softmax
from holotype.results.match_rounds import match_categories
from holotype.training.encoder import PREDICT_BATCH
from holotype.training.loop import Loop


class Predictions(NamedTuple):
    """Of n images."""

    category: np.ndarray
    """(n,) int64; -1 = it is placed nowhere."""
    probability: np.ndarray
    """(n,) float32 of the category, as the method or both think."""
    known_score: np.ndarray
    """(n,) float32; the method's alone."""

    @classmethod
    def spread(cls, parts: Iterable[tuple[np.ndarray, Predictions]], n: int) -> Predictions:
        """What is said of some of n images, given with their rows; of the others nothing."""
        found = cls(np.full(n, -1), np.full(n, np.nan, np.float32), np.full(n, np.nan, np.float32))
        for rows, said in parts:
            for column, values in zip(found, said, strict=True):
                column[rows] = values
        return found

    def as_prediction(self) -> Prediction:
        return Prediction(*(torch.from_numpy(column) for column in self))


def predict(method: Method, features: np.ndarray) -> Predictions:
    """What the method says of features (n, D), where it is."""

    def say(part: Tensor) -> tuple[Tensor, ...]:
        said = method.predict(part)
        return said.category, said.probability.float(), said.known_score.float()

    category, probability, known_score = _batched(method, features, say)
    return Predictions(category.astype(np.int64), probability, known_score)


def predict_with_lda(method: Method, features: np.ndarray, opinion: np.ndarray) -> Predictions:
    """What both say: q_c = (v_c + p_c) / 2. opinion: (n, K) p."""
    alone = predict(method, features)
    both = (class_probabilities(method, features, alone) + opinion) / 2
    category = both.argmax(axis=1)
    return Predictions(category, both[np.arange(len(both)), category].astype(np.float32), alone.known_score)


def predict_new(
    method: Method,
    features: np.ndarray,
    frozen: np.ndarray | None,
    opinion: LinearHead | None,
    of: np.ndarray | None = None,
) -> Predictions:
    """The same of images that come later, by their features (n, D) and those of the frozen backbone; the method alone
    where there is no opinion. Images whose feature is NaN are placed nowhere. of: rows of those that are asked for.

    Features are never copied at once: there may be millions.
    """
    every, parts = np.arange(len(features)) if of is None else of, []
    for first in range(0, len(every), PREDICT_BATCH):
        rows = every[first : first + PREDICT_BATCH]
        rows = rows[np.isfinite(features[rows]).all(axis=1)]
        if opinion is None:
            parts.append((rows, predict(method, features[rows])))
        elif frozen is None:
            raise ValueError("the second opinion needs the features of the frozen backbone")
        else:
            parts.append((rows, predict_with_lda(method, features[rows], opinion.shares(frozen[rows]))))
    return Predictions.spread(parts, len(features))


def class_probabilities(method: Method, features: np.ndarray, alone: Predictions | None = None) -> np.ndarray:
    """(n, K) what the method thinks of each category: the softmax of its logits. Where it has none, or names another
    category than they do, what it thinks of the one that it names. alone: what `predict` says, if somebody has it."""
    alone = alone or predict(method, features)
    named = np.zeros((len(features), method.task.k), dtype=np.float32)
    named[np.arange(len(features)), alone.category] = alone.probability
    if not has_logits(method):
        return named
    word = _batched(method, features, lambda part: (method.logits(part).softmax(dim=-1).float(),))[0]
    same = word.argmax(axis=1) == alone.category
    return word if same.all() else np.where(same[:, None], word, named)


def has_logits(method: Method) -> bool:
    return type(method).logits is not Method.logits


@torch.no_grad()
def _batched(
    method: Method, features: np.ndarray, ask: Callable[[Tensor], tuple[Tensor, ...]]
) -> list[np.ndarray]:
    """What is asked of features (n, D), joined; on the device and in the type of the method, if it holds anything."""
    like = next(
        (t for t in (*method.parameters(), *method.buffers()) if t.is_floating_point()), torch.empty(0)
    )
    every = torch.from_numpy(np.ascontiguousarray(features)).split(
        PREDICT_BATCH
    )  # one where there is nothing
    parts = [ask(part.to(like.device, like.dtype)) for part in every]
    return [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]


@dataclass(frozen=True)
class EnsembleRuns:
    """What several trainings say of the n images that they were trained on."""

    seeds: tuple[int, ...]
    together: Consensus
    free: np.ndarray
    """(n,) bool: images without a label."""
    methods: tuple[str, ...]
    """That they took in turn."""

    @classmethod
    def of(
        cls,
        seeds: Sequence[int],
        said: Sequence[Prediction],
        table: Table,
        k: int,
        methods: tuple[str, ...],
        embedded: np.ndarray,
    ) -> EnsembleRuns:
        """said: of each training, on the images of the table. embedded: (n, D) features of the frozen backbone, for a
        second opinion."""
        voices = [Training(one.category.numpy(), one.probability.numpy()) for one in said]
        together = vote_consensus(voices, len(table.known), k)
        together = pool_with_lda(together, embedded, table.target, k, burst_units(table))
        return cls(tuple(seeds), together, ~table.labelled, methods)

    def prediction(self, said: Sequence[Prediction]) -> Prediction:
        """Where they place the images together. How known an image is, is the mean of what they say."""
        known = torch.stack([one.known_score for one in said]).mean(dim=0)
        share = torch.from_numpy(self.together.share).to(said[0].probability.dtype)
        return Prediction(torch.from_numpy(self.together.category), share, known)

    def tell(self, about: RunFacts) -> RunFacts:
        shares = tuple(round(float(share), 4) for share in self.together.agreed)
        return dataclasses.replace(about, trainings=self.seeds, agreement=shares, methods=self.methods)

    def set_returns(self, categories: Iterable[Category], ids: Sequence[str]) -> None:
        """Write into categories how often they come back. ids: by index."""
        outcome = np.where(self.free, self.together.category, -1)
        found = dict(zip(ids, category_stability(outcome, self.together.trainings, len(ids)), strict=True))
        for category in categories:
            one = found[category.id]
            category.comes_back, category.together = one.times, one.together


def seeds_text(seeds: Sequence[int]) -> str:
    """0 to 4; 3."""
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"


REMAINDER_FILE = "rest"
"""Folder of shards: features of the images that a run was not trained on, while they are computed."""


@dataclass(frozen=True)
class Remainder:
    """A collection of which a run was trained on some images only."""

    table: Table
    """All N images."""
    rows: np.ndarray
    """(n,) those that the run was trained on, in the order of its own table."""
    note: np.ndarray
    """(N,) object str: what was done to unusual images."""
    out: np.ndarray | None = None
    """(N,) bool: images that people have rejected; they are in no category."""

    @cached_property
    def others(self) -> np.ndarray:
        """Rows of the images that it was not trained on, and that can be read."""
        return np.setdiff1d(np.flatnonzero(self.table.usable), self.rows)


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
    """(N, D) features of the frozen backbone, for a second opinion of where images were placed."""
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Of the table of images: (N,) what else is known of each (results/discovery.py, OPTIONAL)."""
    trainings: EnsembleRuns | None = None
    """Where several trainings have placed the images together."""


@dataclass(frozen=True)
class Assignments:
    """Every image of a table after training."""

    table: Table
    k: int
    features: np.ndarray
    """(N, D) float32; NaN for images that cannot be read."""
    said: Prediction
    """What is said of each by those who place images, labelled or not."""
    note: np.ndarray
    """(N,) object str."""
    opinion: CalibratedScores | None = None
    """How likely each is right, where that could be asked."""
    votes: Scorer | None = None
    """What trainings say of each, where that counts beside the opinion."""

    @cached_property
    def category(self) -> np.ndarray:
        """(N,) index of the category, -1 for images that cannot be read; labelled ones lie in their class."""
        return np.where(self.fixed, self.table.target, self.said.category.numpy())

    @property
    def probability(self) -> np.ndarray:
        """(N,) of the category: 1 for a label. Without a second opinion it is the method's own score."""
        said = self.said.probability.numpy() if self.opinion is None else self.opinion.probability
        return np.where(self.fixed, 1.0, said)

    @property
    def disagrees(self) -> np.ndarray:
        """(N,) bool: labelled images of which the method says something else."""
        return self.fixed & (self.said.category.numpy() != self.table.target)

    @cached_property
    def fixed(self) -> np.ndarray:
        """(N,) bool: images whose label places them."""
        return np.asarray(self.table.labelled & self.table.usable)


# -- placing --------------------------------------------------------------------------------------------


def assign_train(loop: Loop, prediction: Prediction, k: int, note: np.ndarray) -> Assignments:
    """The images that a run was trained on, with the features of its last step."""
    assert loop.features is not None  # `prediction` comes from a loop that ended
    features = np.where(loop.table.usable[:, None], loop.features.float().cpu().numpy(), np.nan)
    return Assignments(loop.table, k, features, prediction, note)


def assign_rest(
    own: Assignments,
    rest: Remainder,
    loop: Loop,
    backbone: Backbone,
    folder: Path,
    progress: bool,
    frozen: np.ndarray | None = None,
    opinion: LinearHead | None = None,
) -> Assignments:
    """The whole collection; images that were not trained on come in a stream, whose shards `folder` keeps.

    opinion: what those that were trained on have taught, for which `frozen` (N, D) has the features of the frozen
    backbone of all images; None where the model places the others alone.
    """
    n, rows, others = len(rest.table), rest.rows, rest.others
    features = np.full((n, own.features.shape[1]), np.nan, dtype=np.float32)
    problem, note = rest.table.problem.copy(), rest.note.copy()
    features[rows], problem[rows] = own.features, own.table.problem
    if len(others):
        images = embed_table(
            rest.table.take(others),
            learned_ids(backbone, loop),
            loop.compute,
            folder,
            encoder=loop.encoder,
            progress=progress,
        )
        problem[others], note[others] = images.problem, images.note
        features[others] = np.where((images.problem == "")[:, None], images.features, np.nan)
    said = predict_new(loop.method, features, frozen, opinion, others).as_prediction()
    _fill(said, rows, own.said)
    if rest.out is not None:
        drop_rejected(said, problem, rest.out)
    votes = own.votes.spread(rows, n) if isinstance(own.votes, VoteShares) else None
    return Assignments(rest.table.with_problems(problem), own.k, features, said, note, votes=votes)


def single_category(placed: Assignments) -> str:
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


def drop_rejected(said: Prediction, problem: np.ndarray, out: np.ndarray) -> None:
    """Forget what the method says of the images `out` (N,) bool; to whoever counts, they are no usable images."""
    where = torch.from_numpy(out)
    said.category[where] = -1
    said.probability[where] = said.known_score[where] = torch.nan
    problem[out & (problem == "")] = REJECTED_NOTE


def learned_ids(backbone: Backbone, loop: Loop) -> Backbone:
    """The backbone under a digest of its own: features are those of the trained encoder, and of the method's way to
    embed with it."""
    return dataclasses.replace(backbone, digest=state_digest(loop.model_tensors()))


def _fill(said: Prediction, rows: np.ndarray, part: Prediction) -> None:
    where = torch.from_numpy(rows)
    said.category[where] = part.category
    said.probability[where], said.known_score[where] = part.probability, part.known_score


# -- naming ---------------------------------------------------------------------------------------------


def carry_over_ids(
    placed: Assignments, before: Discovery | None, withdrawn: frozenset[str] = frozenset()
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

    carried: of `carry_ids`. taken: ids that no other category may get.
    """
    carried = carried or {}
    size = np.bincount(category[category >= 0], minlength=k)
    fresh = [index for index in range(len(known), k) if index not in carried]
    fresh.sort(key=lambda index: -size[index])
    used = (*taken, *carried.values())
    ids = {index: category_name(len(known) + rank, known, k, used) for rank, index in enumerate(fresh)}
    return [*known, *(carried.get(index) or ids[index] for index in range(len(known), k))]


@dataclass(frozen=True)
class ModelScores:
    """What one training says of its images, in the place of the votes of several."""

    method: Method
    features: np.ndarray
    """(N, D)."""

    def shares(self, images: np.ndarray) -> np.ndarray:
        """(n, K)."""
        return class_probabilities(self.method, self.features[images])


def uses_lda(method: Method) -> bool:
    """A method that trains nothing places images by the frozen features already."""
    return bool(method.stages())


def assign_all(
    own: Assignments,
    loop: Loop,
    backbone: Backbone,
    rest: Remainder | None,
    told: RoundContext | None,
    shards: Path,
    progress: bool,
) -> Assignments:
    """Every image, by all that have a say. own: those that the run was trained on, as its training or trainings place
    them. rest: the collection that they were drawn from. told: of a discovery. shards: as in place_rest."""
    method, frozen = loop.method, told.embedded if told is not None and uses_lda(loop.method) else None
    own_frozen = frozen[rest.rows] if frozen is not None and rest is not None else frozen
    several = told.trainings if told is not None else None
    if several is not None:
        own = dataclasses.replace(own, votes=VoteShares.of(several.together, own.k))
    elif own_frozen is not None:
        own = reassign(own, method, own_frozen)
    placed = own
    if rest is not None:
        opinion = None
        if own_frozen is not None and len(rest.others):
            opinion = lda_of(own, own_frozen).kept()
        placed = assign_rest(own, rest, loop, backbone, shards, progress, frozen, opinion)
    if several is None and frozen is not None:
        placed = dataclasses.replace(placed, votes=ModelScores(method, placed.features))
    return placed


def lda_of(placed: Assignments, embedded: np.ndarray) -> CrossFitLDA:
    """The second opinion of images as they are placed. embedded: (N, D) their features of the frozen backbone."""
    opinion = CrossFitLDA(embedded, placed.category, placed.k, burst_units(placed.table))
    opinion.form(np.where(placed.fixed, placed.table.target, -1))
    return opinion


def predict_as_new(placed: Assignments, method: Method, opinion: CrossFitLDA | None) -> Predictions:
    """What would be said of each image if it came now: by the model, and by the judge that has not learned from it."""
    there = np.flatnonzero(placed.category >= 0)
    if opinion is None:
        return predict_new(method, placed.features, None, None, there)
    parts = (
        (part, predict_with_lda(method, placed.features[part], softmax(scores / opinion.heat)))
        for part, scores in opinion.scores(there)
    )
    return Predictions.spread(parts, len(placed.category))


def reassign(placed: Assignments, method: Method, embedded: np.ndarray) -> Assignments:
    """The images of one training, placed as later ones are; several trainings have votes (results/ensemble.py). Of
    labelled images it stays what the model says: they are told where it contradicts the label."""
    said = predict_as_new(placed, method, lda_of(placed, embedded)).as_prediction()
    fixed = torch.from_numpy(placed.fixed)
    columns = ((said.category, placed.said.category), (said.probability, placed.said.probability))
    category, probability = (torch.where(fixed, before.to(now.dtype), now) for now, before in columns)
    return dataclasses.replace(placed, said=Prediction(category, probability, said.known_score))
