"""What a run keeps for images that come later, and what it would say of its own if they came now."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from holotype.data.load import load_table
from holotype.methods import METHODS
from holotype.results.lda import LinearHead, softmax
from holotype.runs.assemble import add_lda_scores
from holotype.runs.build import RunData
from holotype.runs.predict import (
    ModelScores,
    Remainder,
    assign_rest,
    assign_train,
    lda_of,
    predict,
    predict_as_new,
    reassign,
    uses_lda,
)
from holotype.runs.resolve import default_experiment
from holotype.runs.resources import ResourceCache
from holotype.runs.run import begin_run
from tests.runs.test_predict import many
from tests.runs.test_predict_said import Linear


def method() -> Linear:
    return Linear()


def test_a_method_that_trains_nothing_asks_for_no_second_opinion() -> None:
    task = method().task
    assert uses_lda(METHODS["simgcd"](METHODS["simgcd"].Config(), task))
    assert not uses_lda(METHODS["kmeans"](METHODS["kmeans"].Config(), task))


def test_an_image_is_judged_by_those_that_have_not_learned_from_it() -> None:
    given, embedded = many(labelled=24)
    features = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    judged = add_lda_scores(dataclasses.replace(given, features=features, k=4), embedded)
    opinion = judged.opinion.opinion
    said = predict_as_new(judged, method(), opinion)
    p = np.zeros((60, 4))
    for part, scores in opinion.scores(np.arange(60)):
        p[part] = softmax(scores / opinion.heat)
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
    said, alone = predict_as_new(placed, method(), None), predict(method(), features)
    np.testing.assert_array_equal(said.category[:59], alone.category[:59])
    assert said.category[59] == -1
    assert np.isnan(said.probability[59])


def test_the_opinion_of_later_images_is_that_of_those_that_are_placed() -> None:
    given, embedded = many(labelled=24)
    kept = lda_of(given, embedded).kept()
    judged = add_lda_scores(given, embedded).opinion
    np.testing.assert_allclose(kept.shares(embedded), judged.opinion.kept().shares(embedded))
    right = np.arange(60) < 55  # the last five lie wrong
    said = kept.shares(embedded).argmax(axis=1)
    assert (said == given.category)[right].mean() > 0.9
    assert (said != given.category)[~right].all()


def test_the_images_of_one_training_lie_where_later_ones_would() -> None:
    """Of labelled ones it stays what the model says."""
    given, embedded = many(labelled=24)
    features = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    placed = dataclasses.replace(given, features=features, k=4)
    found = reassign(placed, method(), embedded)
    said = predict_as_new(placed, method(), lda_of(placed, embedded))
    fixed = given.fixed
    assert found.said.category.numpy()[~fixed].tolist() == said.category[~fixed].tolist()
    assert found.said.category.numpy()[fixed].tolist() == given.said.category.numpy()[fixed].tolist()
    assert found.category[fixed].tolist() == given.category[fixed].tolist()  # a label has the last word
    assert (found.category != given.category).any()


def test_what_one_training_says_counts_beside_the_opinion() -> None:
    """An image of which the model is unsure is less likely right."""
    given, embedded = many(labelled=24)
    sure = np.eye(3)[given.category] * 50

    class Sure(Linear):
        def logits(self, features):
            return features

    own = ModelScores(Sure(), sure.astype(np.float32))
    torn = ModelScores(Sure(), np.zeros((60, 3), np.float32))
    assert own.shares(np.array([3, 4])) == pytest.approx(np.eye(3)[given.category[[3, 4]]])
    likely, unlikely = (
        add_lda_scores(dataclasses.replace(given, votes=voice), embedded).opinion.probability
        for voice in (own, torn)
    )
    assert (likely[:55] > unlikely[:55]).all()


@pytest.mark.parametrize("asked", [True, False])
def test_images_beyond_the_sample_are_placed_by_both(
    asked, squares_folder, tiny_backbone_file, tmp_path
) -> None:
    """An opinion that is sure of one category moves them all there; without one the model places them."""
    whole, rows = load_table(squares_folder / "squares.csv"), np.arange(0, 64, 2)
    experiment = default_experiment("simgcd", "images")
    experiment.k, experiment.device, experiment.progress = 4, "cpu", False
    experiment.out, experiment.backbone.name = str(tmp_path), str(tiny_backbone_file)
    experiment.train.epochs, experiment.train.batch_size, experiment.cache_views = 2, 16, "off"
    run = begin_run(experiment, ResourceCache(data=RunData(whole.take(rows), 4)))
    own = assign_train(run.loop, run.loop.fit(), 4, run.prepared.images.note)
    rest = Remainder(whole, rows, np.full(64, "", dtype=object))
    dim = own.features.shape[1]
    sure = LinearHead(
        np.zeros(dim, np.float32), np.zeros((4, dim), np.float32), np.array([0, 0, 0, 40], np.float32)
    )
    given = (np.ones((64, dim), np.float32), sure) if asked else (None, None)
    found = assign_rest(own, rest, run.loop, run.prepared.backbone, tmp_path / "rest", False, *given)
    others = np.arange(1, 64, 2)
    assert rest.others.tolist() == others.tolist()
    said = run.loop.method.predict(torch.from_numpy(found.features[others]))
    expected = [3] * 32 if asked else said.category.tolist()
    assert found.said.category[others].tolist() == expected
    assert found.said.category[rows].tolist() == own.said.category.tolist()
