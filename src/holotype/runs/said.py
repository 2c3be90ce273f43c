"""What a trained method says of images by their features: alone, or beside the second opinion (kept_opinion.py)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from holotype.categories.kept_opinion import KeptOpinion
from holotype.methods import Method, Prediction
from holotype.training.encode import PREDICTED_AT_ONCE


class Said(NamedTuple):
    """Of n images."""

    category: np.ndarray
    """(n,) int64."""
    probability: np.ndarray
    """(n,) float32 of the category, as the method or both think."""
    known_score: np.ndarray
    """(n,) float32; the method's alone."""


def predict(method: Method, features: np.ndarray) -> Said:
    """What the method says of features (n, D), where it is."""

    def say(part: Tensor) -> tuple[Tensor, ...]:
        said = method.predict(part)
        return said.category, said.probability.float(), said.known_score.float()

    category, probability, known_score = _in_parts(method, features, say)
    return Said(category.astype(np.int64), probability, known_score)


def predict_beside(method: Method, features: np.ndarray, opinion: np.ndarray) -> Said:
    """What both say: q_c = (m_c + p_c) / 2. opinion: (n, K) p."""
    alone = predict(method, features)
    both = (word_of(method, features, alone) + opinion) / 2
    category = both.argmax(axis=1) if len(both) else alone.category
    return Said(category, both.max(axis=1, initial=0).astype(np.float32), alone.known_score)


def predict_later(method: Method, features: np.ndarray, frozen: np.ndarray, opinion: KeptOpinion) -> Said:
    """The same of images that come later, by their features (n, D) and those of the frozen backbone."""
    parts = [
        predict_beside(method, features[first:end], opinion.shares(frozen[first:end]))
        for first, end in pairwise((*range(0, len(features), PREDICTED_AT_ONCE), len(features)))
    ]
    return (
        Said(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        if parts
        else predict(method, features)
    )


def place_others(
    method: Method, features: np.ndarray, frozen: np.ndarray | None, opinion: KeptOpinion | None
) -> Prediction:
    """The same of images that a run was not trained on, beside an opinion where there is one; those without a feature
    are placed nowhere (-1)."""
    read = np.isfinite(features).all(axis=1)
    if opinion is None or frozen is None:
        said = predict(method, features[read])
    else:
        said = predict_later(method, features[read], frozen[read], opinion)
    n = len(read)
    found = Prediction(torch.full((n,), -1), torch.full((n,), torch.nan), torch.full((n,), torch.nan))
    for column, values in zip((found.category, found.probability, found.known_score), said, strict=True):
        column[torch.from_numpy(read)] = torch.from_numpy(values)
    return found


def word_of(method: Method, features: np.ndarray, alone: Said | None = None) -> np.ndarray:
    """(n, K) what the method thinks of each category; of a method without logits, what it thinks of the one that it
    names. alone: what `predict` says, where somebody has it."""
    if has_logits(method):
        return _in_parts(method, features, lambda part: (method.logits(part).softmax(dim=-1).float(),))[0]
    alone = alone or predict(method, features)
    word = np.zeros((len(features), method.task.k), dtype=np.float32)
    word[np.arange(len(features)), alone.category] = alone.probability
    return word


def has_logits(method: Method) -> bool:
    return type(method).logits is not Method.logits


@torch.no_grad()
def _in_parts(
    method: Method, features: np.ndarray, ask: Callable[[Tensor], tuple[Tensor, ...]]
) -> list[np.ndarray]:
    """What is asked of features (n, D), joined; on the device and in the type of the method."""
    like = next(t for t in (*method.parameters(), *method.buffers()) if t.is_floating_point())
    every = torch.from_numpy(np.ascontiguousarray(features)).split(
        PREDICTED_AT_ONCE
    )  # one part where there is nothing
    parts = [ask(part.to(like.device, like.dtype)) for part in every]
    return [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]
