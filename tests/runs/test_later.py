"""What a run keeps for images that come later, and what it would say of its own if they came now."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from holotype.categories.kept_opinion import shares
from holotype.methods import METHODS
from holotype.runs.discovered import with_opinion
from holotype.runs.later import as_if_later, asks_opinion, opinion_of, weighed
from holotype.runs.said import predict
from tests.runs.test_outcome import many
from tests.runs.test_said import Linear


def method() -> Linear:
    return Linear()


def test_a_method_that_trains_nothing_asks_for_no_second_opinion() -> None:
    task = method().task
    assert asks_opinion(METHODS["simgcd"](METHODS["simgcd"].Config(), task))
    assert not asks_opinion(METHODS["kmeans"](METHODS["kmeans"].Config(), task))


def test_an_image_is_judged_by_those_that_have_not_learned_from_it() -> None:
    given, embedded = many(labelled=24)
    features = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    judged = with_opinion(dataclasses.replace(given, features=features, k=4), embedded)
    opinion = judged.opinion.opinion
    said = as_if_later(judged, method(), opinion)
    p = np.zeros((60, 4))
    for part, scores in opinion.scores(np.arange(60)):
        p[part] = shares(scores / opinion.heat)
    alone = predict(method(), features)
    for row in range(60):
        m = np.exp(features[row] @ method().weight.numpy().T)
        q = (m / m.sum() + p[row]) / 2
        assert said.category[row] == q.argmax()
        assert said.probability[row] == pytest.approx(q.max(), abs=1e-5)
    assert (said.category != alone.category).any()


def test_without_an_opinion_it_is_the_word_of_the_model() -> None:
    given, _ = many(labelled=24)
    features = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    category = given.said.category.clone()
    category[59] = -1
    placed = dataclasses.replace(
        given, features=features, k=4, said=dataclasses.replace(given.said, category=category)
    )
    said, alone = as_if_later(placed, method(), None), predict(method(), features)
    np.testing.assert_array_equal(said.category[:59], alone.category[:59])
    assert said.category[59] == -1
    assert np.isnan(said.probability[59])


def test_the_opinion_of_later_images_is_that_of_those_that_are_placed() -> None:
    given, embedded = many(labelled=24)
    kept = opinion_of(given, embedded).kept()
    judged = with_opinion(given, embedded).opinion
    np.testing.assert_allclose(kept.shares(embedded), judged.opinion.kept().shares(embedded))
    right = np.arange(60) < 55  # the last five lie wrong
    said = kept.shares(embedded).argmax(axis=1)
    assert (said == given.category)[right].mean() > 0.9
    assert (said != given.category)[~right].all()


def test_the_images_of_one_training_lie_where_later_ones_would() -> None:
    given, embedded = many(labelled=24)
    features = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    placed = dataclasses.replace(given, features=features, k=4)
    found = weighed(placed, method(), embedded)
    said = as_if_later(placed, method(), opinion_of(placed, embedded))
    assert found.said.category.tolist() == said.category.tolist()
    assert (
        found.category[given.fixed].tolist() == given.category[given.fixed].tolist()
    )  # a label has the last word
    assert (found.category != given.category).any()
