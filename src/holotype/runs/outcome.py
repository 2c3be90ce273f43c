"""What a trained run says of every image, and the ids of its categories; discovered.py makes a Discovery of both.

A label has the last word: a labelled image lies in its class, and where the model would say otherwise it is doubtful.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holotype.data.table import Table
from holotype.embeddings.extract import embed_table
from holotype.methods import Prediction
from holotype.models.backbone import Backbone, state_digest
from holotype.results.apply_edits import REJECTED_NOTE
from holotype.results.calibration import CalibratedScores
from holotype.results.discovery import Discovery, RunFacts, category_name
from holotype.results.ensemble import VoteShares
from holotype.results.lda import LinearHead, Scorer
from holotype.results.match_rounds import match_categories
from holotype.runs.said import predict_later
from holotype.runs.trainings import Trainings
from holotype.training.loop import Loop

REST = "rest"
"""Folder of shards: features of the images that a run was not trained on, while they are computed."""


@dataclass(frozen=True)
class Rest:
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
class Told:
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
    trainings: Trainings | None = None
    """Where several trainings have placed the images together."""


@dataclass(frozen=True)
class Placed:
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


def place_own(loop: Loop, prediction: Prediction, k: int, note: np.ndarray) -> Placed:
    """The images that a run was trained on, with the features of its last step."""
    assert loop.features is not None  # `prediction` comes from a loop that ended
    features = np.where(loop.table.usable[:, None], loop.features.float().cpu().numpy(), np.nan)
    return Placed(loop.table, k, features, prediction, note)


def place_rest(
    own: Placed,
    rest: Rest,
    loop: Loop,
    backbone: Backbone,
    folder: Path,
    progress: bool,
    frozen: np.ndarray | None = None,
    opinion: LinearHead | None = None,
) -> Placed:
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
            learned(backbone, loop),
            loop.compute,
            folder,
            encoder=loop.encoder,
            progress=progress,
        )
        problem[others], note[others] = images.problem, images.note
        features[others] = np.where((images.problem == "")[:, None], images.features, np.nan)
    said = predict_later(loop.method, features, frozen, opinion, others).as_prediction()
    _fill(said, rows, own.said)
    if rest.out is not None:
        leave_out(said, problem, rest.out)
    votes = own.votes.spread(rows, n) if isinstance(own.votes, VoteShares) else None
    return Placed(rest.table.with_problems(problem), own.k, features, said, note, votes=votes)


def one_category(placed: Placed) -> str:
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


def leave_out(said: Prediction, problem: np.ndarray, out: np.ndarray) -> None:
    """Forget what the method says of the images `out` (N,) bool; to whoever counts, they are no usable images."""
    where = torch.from_numpy(out)
    said.category[where] = -1
    said.probability[where] = said.known_score[where] = torch.nan
    problem[out & (problem == "")] = REJECTED_NOTE


def learned(backbone: Backbone, loop: Loop) -> Backbone:
    """The backbone under a digest of its own: features are those of the trained encoder, and of the method's way to
    embed with it."""
    return dataclasses.replace(backbone, digest=state_digest(loop.model_tensors()))


def _fill(said: Prediction, rows: np.ndarray, part: Prediction) -> None:
    where = torch.from_numpy(rows)
    said.category[where] = part.category
    said.probability[where], said.known_score[where] = part.probability, part.known_score


# -- naming ---------------------------------------------------------------------------------------------


def carry_ids(
    placed: Placed, before: Discovery | None, withdrawn: frozenset[str] = frozenset()
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
