"""What a method says of features, alone and beside a second opinion."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.data.table import Table
from holotype.methods import Method, Prediction, Task
from holotype.results.discovery import Category, RunFacts
from holotype.results.lda import LinearHead
from holotype.runs import predict as module
from holotype.runs.predict import (
    EnsembleRuns,
    class_probabilities,
    has_logits,
    predict,
    predict_new,
    predict_with_lda,
    seeds_text,
)

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


def opinion() -> LinearHead:
    random = np.random.default_rng(2)
    parts = random.normal(size=DIM), 3 * random.normal(size=(K, DIM)), random.normal(size=K)
    return LinearHead(*(part.astype(np.float32) for part in parts))


@pytest.mark.parametrize("at_once", [5, 4096])
def test_both_have_half_of_the_word(at_once: int, monkeypatch) -> None:
    """Image by image against the formula, in parts and at once."""
    monkeypatch.setattr(module, "PREDICT_BATCH", at_once)
    method, x, frozen, judge = Linear(), features(), features()[::-1].copy(), opinion()
    found = predict_new(method, x, frozen, judge)
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
    np.testing.assert_allclose(found.known_score, alone.known_score, rtol=1e-5)


def test_of_a_method_without_logits_the_category_that_it_names_counts() -> None:
    method, x = Nearest(), features()
    assert not has_logits(method)
    alone, word = predict(method, x), class_probabilities(method, x)
    assert (word[np.arange(N), alone.category] == np.float32(0.7)).all()
    assert (np.count_nonzero(word, axis=1) == 1).all()
    torn = predict_with_lda(method, x, np.full((N, K), 0.25))
    np.testing.assert_array_equal(torn.category, alone.category)
    other = (alone.category + 1) % K
    moved = predict_with_lda(method, x, np.eye(K)[other])
    np.testing.assert_array_equal(moved.category, other)
    assert moved.probability == pytest.approx(0.5)


def test_a_category_that_only_the_method_names_counts_more_than_its_logits() -> None:
    """A method of one's own may place images otherwise than its logits would."""

    class Otherwise(Linear):
        def predict(self, features: Tensor) -> Prediction:
            said = super().predict(features)
            return Prediction((said.category + 1) % K, said.probability, said.known_score)

    x, nothing = features(), np.zeros((N, K))
    alone, found = predict(Otherwise(), x), predict_with_lda(Otherwise(), x, nothing)
    np.testing.assert_array_equal(found.category, alone.category)
    assert (found.category != predict(Linear(), x).category).all()


def test_a_method_that_holds_nothing_speaks_too() -> None:
    class Constant(Nearest):
        def __init__(self) -> None:
            Method.__init__(self, None, Task(2, K, DIM, N, 5))

        def predict(self, features: Tensor) -> Prediction:
            n = len(features)
            return Prediction(torch.zeros(n, dtype=torch.long), torch.ones(n), torch.ones(n))

    assert predict(Constant(), features()).category.tolist() == [0] * N


def test_no_image_is_no_trouble() -> None:
    for found in (
        predict(Linear(), features(0)),
        predict_new(Linear(), features(0), features(0), opinion()),
        predict_with_lda(Nearest(), features(0), np.empty((0, K))),
    ):
        assert [len(column) for column in found] == [0, 0, 0]


@pytest.mark.parametrize("judge", [None, opinion()])
def test_images_that_cannot_be_read_or_are_not_asked_for_are_placed_nowhere(judge) -> None:
    x = features()
    x[3] = np.nan
    found = predict_new(Linear(), x, features(), judge)
    assert (found.category == -1).tolist() == [i == 3 for i in range(N)]
    assert np.isnan(found.probability).tolist() == [i == 3 for i in range(N)]
    some = predict_new(Linear(), x, features(), judge, np.array([2, 3, 5]))
    assert np.flatnonzero(some.category >= 0).tolist() == [2, 5]
    assert some.category[[2, 5]].tolist() == found.category[[2, 5]].tolist()


def test_an_opinion_without_frozen_features_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="frozen"):
        predict_new(Linear(), features(), None, opinion())


# -- several trainings --

TRUE = np.repeat(np.arange(4), 10)
EMBEDDED = np.eye(4, 6)[TRUE] + 0.1 * np.random.default_rng(0).normal(size=(40, 6))


def labelled_table() -> Table:
    label = np.array(["a" if i < 3 else "" for i in range(40)], dtype=object)
    return Table(np.array([f"{i}.png" for i in range(40)], dtype=object), label, ("a", "b"))


def sure_of(category: np.ndarray, known: float) -> Prediction:
    return Prediction(torch.from_numpy(category), torch.full((40,), 0.8), torch.full((40,), known))


def test_the_images_lie_where_most_trainings_have_them() -> None:
    swapped = np.where(TRUE == 2, 3, np.where(TRUE == 3, 2, TRUE))
    strayed = np.where(np.arange(40) == 39, 0, TRUE)
    each = [sure_of(TRUE, 0.2), sure_of(swapped, 0.4), sure_of(strayed, 0.6)]
    found = EnsembleRuns.of((4, 5, 6), each, labelled_table(), 4, ("rpc",), EMBEDDED)
    outcome = found.prediction(each)
    assert found.together.agreed == pytest.approx([1, 1, 0.975])
    assert (outcome.category == each[found.together.carrier].category).all()
    assert outcome.known_score == pytest.approx(0.4)
    assert outcome.probability[0] == pytest.approx(1)
    assert outcome.probability[39] == pytest.approx(2 / 3)


def test_the_second_opinion_has_a_say_where_votes_are_divided() -> None:
    """Three of five trainings put the last image elsewhere; it looks like the others of its category."""
    strayed = np.where(np.arange(40) == 39, 0, TRUE)
    each = [sure_of(strayed if i < 3 else TRUE, 0.5) for i in range(5)]
    found = EnsembleRuns.of(range(5), each, labelled_table(), 4, ("rpc",), EMBEDDED)
    assert found.prediction(each).category.tolist() == TRUE.tolist()
    assert found.prediction(each).probability[39] == pytest.approx(2 / 5)
    misleading = EMBEDDED.copy()
    misleading[39] = EMBEDDED[0]
    kept = EnsembleRuns.of(range(5), each, labelled_table(), 4, ("rpc",), misleading)
    assert kept.prediction(each).category.tolist() == strayed.tolist()


def test_categories_say_how_often_they_come_back_by_their_free_images() -> None:
    each = [sure_of(TRUE, 0.5), sure_of(np.where(TRUE == 3, 2, TRUE), 0.5), sure_of(TRUE, 0.5)]
    found = EnsembleRuns.of((0, 1, 2), each, labelled_table(), 4, ("rpc", "uno"), EMBEDDED)
    ids = ["a", "b", "new-01", "new-02"]
    categories = [Category(id, id, "known" if id in "ab" else "novel", 10) for id in ids]
    found.set_returns(categories, ids)
    assert [c.comes_back for c in categories] == [3, 3, 2, 2]
    assert [c.together for c in categories] == pytest.approx([1, 1, 1, 1])  # together, though not alone
    about = found.tell(RunFacts())
    assert (about.trainings, about.agreement) == ((0, 1, 2), (1.0, 0.75, 1.0))
    assert about.methods == ("rpc", "uno")


def test_seeds_in_words() -> None:
    assert (seeds_text((3, 4, 5)), seeds_text((3,))) == ("3 to 5", "3")
