"""What a trained method says of images by their features: alone, or beside the second opinion (kept_opinion.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from holotype.methods import Method, Prediction
from holotype.results.lda import LinearHead
from holotype.training.encoder import PREDICT_BATCH


class Said(NamedTuple):
    """Of n images."""

    category: np.ndarray
    """(n,) int64; -1 = it is placed nowhere."""
    probability: np.ndarray
    """(n,) float32 of the category, as the method or both think."""
    known_score: np.ndarray
    """(n,) float32; the method's alone."""

    @classmethod
    def spread(cls, parts: Iterable[tuple[np.ndarray, Said]], n: int) -> Said:
        """What is said of some of n images, given with their rows; of the others nothing."""
        found = cls(np.full(n, -1), np.full(n, np.nan, np.float32), np.full(n, np.nan, np.float32))
        for rows, said in parts:
            for column, values in zip(found, said, strict=True):
                column[rows] = values
        return found

    def as_prediction(self) -> Prediction:
        return Prediction(*(torch.from_numpy(column) for column in self))


def predict(method: Method, features: np.ndarray) -> Said:
    """What the method says of features (n, D), where it is."""

    def say(part: Tensor) -> tuple[Tensor, ...]:
        said = method.predict(part)
        return said.category, said.probability.float(), said.known_score.float()

    category, probability, known_score = _in_parts(method, features, say)
    return Said(category.astype(np.int64), probability, known_score)


def predict_beside(method: Method, features: np.ndarray, opinion: np.ndarray) -> Said:
    """What both say: q_c = (v_c + p_c) / 2. opinion: (n, K) p."""
    alone = predict(method, features)
    both = (word_of(method, features, alone) + opinion) / 2
    category = both.argmax(axis=1)
    return Said(category, both[np.arange(len(both)), category].astype(np.float32), alone.known_score)


def predict_later(
    method: Method,
    features: np.ndarray,
    frozen: np.ndarray | None,
    opinion: LinearHead | None,
    of: np.ndarray | None = None,
) -> Said:
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
            parts.append((rows, predict_beside(method, features[rows], opinion.shares(frozen[rows]))))
    return Said.spread(parts, len(features))


def word_of(method: Method, features: np.ndarray, alone: Said | None = None) -> np.ndarray:
    """(n, K) what the method thinks of each category: the softmax of its logits. Where it has none, or names another
    category than they do, what it thinks of the one that it names. alone: what `predict` says, if somebody has it."""
    alone = alone or predict(method, features)
    named = np.zeros((len(features), method.task.k), dtype=np.float32)
    named[np.arange(len(features)), alone.category] = alone.probability
    if not has_logits(method):
        return named
    word = _in_parts(method, features, lambda part: (method.logits(part).softmax(dim=-1).float(),))[0]
    same = word.argmax(axis=1) == alone.category
    return word if same.all() else np.where(same[:, None], word, named)


def has_logits(method: Method) -> bool:
    return type(method).logits is not Method.logits


@torch.no_grad()
def _in_parts(
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
