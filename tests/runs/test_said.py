"""What a method says of features, alone and beside a second opinion."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.categories.kept_opinion import KeptOpinion
from holotype.methods import Method, Prediction, Task
from holotype.runs import said as module
from holotype.runs.said import has_logits, place_others, predict, predict_beside, predict_later, word_of

K, DIM, N = 4, 6, 23


class Linear(Method):
    """By logits."""

    def __init__(self) -> None:
        super().__init__(None, Task(2, K, DIM, N, 5))
        self.register_buffer("weight", torch.randn(K, DIM, generator=torch.Generator().manual_seed(0)))

    def logits(self, features: Tensor) -> Tensor:
        return features @ self.weight.T


class Nearest(Method):
    """Without logits: it names one category."""

    def __init__(self) -> None:
        super().__init__(None, Task(2, K, DIM, N, 5))
        self.register_buffer("centres", torch.eye(K, DIM))

    def predict(self, features: Tensor) -> Prediction:
        category = (features @ self.centres.T).argmax(-1)
        return Prediction(category, torch.full(category.shape, 0.7), torch.full(category.shape, float("nan")))


def features(n: int = N) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, DIM)).astype(np.float32)


def opinion() -> KeptOpinion:
    random = np.random.default_rng(2)
    parts = random.normal(size=DIM), 3 * random.normal(size=(K, DIM)), random.normal(size=K)
    return KeptOpinion(*(part.astype(np.float32) for part in parts))


@pytest.mark.parametrize("at_once", [5, 4096])
def test_both_have_half_of_the_word(at_once: int, monkeypatch) -> None:
    """Image by image against the formula, in parts and at once."""
    monkeypatch.setattr(module, "PREDICTED_AT_ONCE", at_once)
    method, x, frozen, judge = Linear(), features(), features()[::-1].copy(), opinion()
    found = predict_later(method, x, frozen, judge)
    alone = predict(method, x)
    for i in range(N):
        m = torch.from_numpy(x[i]) @ method.weight.T
        u = (frozen[i] - judge.middle) / np.linalg.norm(frozen[i] - judge.middle)
        p = torch.from_numpy(judge.slope @ u + judge.offset)
        q = (m.softmax(-1) + p.softmax(-1)) / 2
        assert found.category[i] == int(q.argmax())
        assert found.probability[i] == pytest.approx(float(q.max()), abs=1e-5)
        assert alone.category[i] == int(m.argmax())
    assert (found.category != alone.category).any()
    np.testing.assert_array_equal(found.known_score, alone.known_score)


def test_of_a_method_without_logits_the_category_that_it_names_counts() -> None:
    method, x = Nearest(), features()
    assert not has_logits(method)
    alone, word = predict(method, x), word_of(method, x)
    assert (word[np.arange(N), alone.category] == np.float32(0.7)).all()
    assert (np.count_nonzero(word, axis=1) == 1).all()
    torn = predict_beside(method, x, np.full((N, K), 0.25))
    np.testing.assert_array_equal(torn.category, alone.category)
    other = (alone.category + 1) % K
    moved = predict_beside(method, x, np.eye(K)[other])
    np.testing.assert_array_equal(moved.category, other)
    assert moved.probability == pytest.approx(0.5)


def test_no_image_is_no_trouble() -> None:
    for found in (
        predict(Linear(), features(0)),
        predict_later(Linear(), features(0), features(0), opinion()),
        predict_beside(Nearest(), features(0), np.empty((0, K))),
    ):
        assert [len(column) for column in found] == [0, 0, 0]


def test_images_that_cannot_be_read_are_placed_nowhere() -> None:
    x = features()
    x[3] = np.nan
    for judge in (None, opinion()):
        found = place_others(Linear(), x, features(), judge)
        assert (found.category == -1).tolist() == [i == 3 for i in range(N)]
        assert torch.isnan(found.probability).tolist() == [i == 3 for i in range(N)]
    alone = predict(Linear(), x[:3])
    assert place_others(Linear(), x, None, None).category[:3].tolist() == alone.category.tolist()
