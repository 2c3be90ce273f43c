"""What a model says of features: alone, beside the LDA of the frozen backbone, and several trainings together.

runs/assemble.py makes a discovery of it, and runs/model_io.py places new images by it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from holotype.data.bursts import burst_units
from holotype.data.table import Table
from holotype.methods import Method, Prediction
from holotype.results.discovery import Category, RunFacts
from holotype.results.ensemble import Consensus, Training, category_stability, pool_with_lda, vote_consensus
from holotype.results.lda import LinearHead
from holotype.training.encoder import PREDICT_BATCH


class Predictions(NamedTuple):
    """Of n images, as arrays."""

    category: np.ndarray
    """(n,) int64; -1 = it is placed nowhere."""
    probability: np.ndarray
    """(n,) float32 of the category, as the method or both think."""
    known_score: np.ndarray
    """(n,) float32; the method's alone."""

    @classmethod
    def of(cls, prediction: Prediction) -> Predictions:
        """Take over tensors on the CPU."""
        return cls(
            *(
                column.numpy()
                for column in (prediction.category, prediction.probability, prediction.known_score)
            )
        )

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

    def drop(self, rows: np.ndarray) -> None:
        """Forget what is said of some rows, given as a mask or as indices."""
        self.category[rows] = -1
        self.probability[rows] = self.known_score[rows] = np.nan


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
