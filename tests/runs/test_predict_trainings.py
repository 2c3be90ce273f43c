"""What several trainings say together, as a run takes it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from holotype.data.table import Table
from holotype.methods import Prediction
from holotype.results.discovery import Category, RunFacts
from holotype.runs.predict import EnsembleRuns, seeds_text

TRUE = np.repeat(np.arange(4), 10)
EMBEDDED = np.eye(4, 6)[TRUE] + 0.1 * np.random.default_rng(0).normal(size=(40, 6))


def table() -> Table:
    label = np.array(["a" if i < 3 else "" for i in range(40)], dtype=object)
    return Table(np.array([f"{i}.png" for i in range(40)], dtype=object), label, ("a", "b"))


def said(category: np.ndarray, known: float) -> Prediction:
    return Prediction(torch.from_numpy(category), torch.full((40,), 0.8), torch.full((40,), known))


def test_the_images_lie_where_most_trainings_have_them() -> None:
    swapped = np.where(TRUE == 2, 3, np.where(TRUE == 3, 2, TRUE))
    strayed = np.where(np.arange(40) == 39, 0, TRUE)
    each = [said(TRUE, 0.2), said(swapped, 0.4), said(strayed, 0.6)]
    found = EnsembleRuns.of((4, 5, 6), each, table(), 4, ("rpc",), EMBEDDED)
    outcome = found.prediction(each)
    assert found.together.agreed == pytest.approx([1, 1, 0.975])
    assert (outcome.category == each[found.together.carrier].category).all()
    assert outcome.known_score == pytest.approx(0.4)
    assert outcome.probability[0] == pytest.approx(1)
    assert outcome.probability[39] == pytest.approx(2 / 3)


def test_the_second_opinion_has_a_say_where_votes_are_divided() -> None:
    """Three of five trainings put the last image elsewhere; it looks like the others of its category."""
    strayed = np.where(np.arange(40) == 39, 0, TRUE)
    each = [said(strayed if i < 3 else TRUE, 0.5) for i in range(5)]
    found = EnsembleRuns.of(range(5), each, table(), 4, ("rpc",), EMBEDDED)
    assert found.prediction(each).category.tolist() == TRUE.tolist()
    assert found.prediction(each).probability[39] == pytest.approx(2 / 5)
    misleading = EMBEDDED.copy()
    misleading[39] = EMBEDDED[0]
    kept = EnsembleRuns.of(range(5), each, table(), 4, ("rpc",), misleading)
    assert kept.prediction(each).category.tolist() == strayed.tolist()


def test_categories_say_how_often_they_come_back_by_their_free_images() -> None:
    each = [said(TRUE, 0.5), said(np.where(TRUE == 3, 2, TRUE), 0.5), said(TRUE, 0.5)]
    found = EnsembleRuns.of((0, 1, 2), each, table(), 4, ("rpc", "uno"), EMBEDDED)
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
