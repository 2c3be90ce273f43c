"""From what a method says of each image to categories: a label has the last word, and names stay with images."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.methods import METHODS, Prediction
from holotype.results.describe import Description
from holotype.results.discovery import Discovery, RunFacts
from holotype.results.ensemble import Training, VoteShares, vote_consensus
from holotype.results.lda import LinearHead, softmax
from holotype.runs.assemble import (
    REMAINDER_FOLDER,
    ModelScores,
    Placement,
    RoundContext,
    build_discovery,
    carry_over_ids,
    fit_lda_of,
    image_frame,
    name_categories,
    place_rest,
    place_with_lda,
    predict_as_new,
    single_category,
    trained_images,
    uses_lda,
)
from holotype.runs.build import RunData
from holotype.runs.predict import Predictions, predict
from holotype.runs.resolve import default_experiment
from holotype.runs.resources import ResourceCache
from holotype.runs.run import Run, begin_run, finish_run
from tests.discovery.made_round import PATHS, made_discovery
from tests.runs.test_predict import Linear


def small_table() -> Table:
    label = np.array(["a", "b", "", "", "", ""], dtype=object)
    problem = ["", "", "", "", "", "broken"]
    return Table(np.array([f"{i}.png" for i in range(6)], dtype=object), label, ("a", "b"), problem=problem)


def describe_placed(given: Placement, ids: list[str], told: RoundContext) -> Discovery:
    """As a run does, which says of later images what it says of these."""
    given = dataclasses.replace(given)
    given.calibrate(told.embedded)
    return build_discovery(given, ids, told, given.said if given.scores and given.scores.labelled else None)


def placed(said: list[int]) -> Placement:
    numbers = np.linspace(0, 1, 6, dtype=np.float32)
    note = np.array(["", "", "first of 3 frames used", "", "", ""], dtype=object)
    return Placement(
        small_table(), 3, np.eye(6, 4), Predictions(np.array(said), numbers.copy(), numbers.copy()), note
    )


def test_new_categories_are_numbered_by_size_and_empty_ones_come_last() -> None:
    category = np.array([0, 1, 4, 4, 2, -1])
    assert name_categories(category, ("a", "b"), 5) == ["a", "b", "new-02", "new-03", "new-01"]
    assert name_categories(np.array([0, 1]), ("a", "b"), 2) == ["a", "b"]


def test_images_that_cannot_be_read_have_no_features_and_the_loop_keeps_its_own() -> None:
    loop = SimpleNamespace(features=torch.zeros(6, 2), table=small_table())
    said = Prediction(*(torch.from_numpy(column) for column in placed([0, 1, 2, 2, 2, -1]).said))
    own = trained_images(loop, said, 3, np.full(6, "", dtype=object))
    assert np.isnan(own.features).all(1).tolist() == [False] * 5 + [True]
    assert own.features.dtype == np.float32
    assert torch.equal(loop.features, torch.zeros(6, 2))


def test_a_run_that_found_nothing_says_so() -> None:
    """Labels do not count: they lie in their classes whatever the method says."""
    assert single_category(placed([0, 1, 2, 2, 1, -1])) == ""
    said = single_category(placed([0, 1, 2, 2, 2, -1]))
    assert said.startswith("All 3 unlabelled images were put into one new category, so nothing was found")
    assert "--train.lr" in said
    assert "All 3 unlabelled images were put into the known class b" in single_category(
        placed([0, 0, 1, 1, 1, -1])
    )
    assert single_category(placed([0, 1, 2, -1, -1, -1])) == ""  # of a single image there is nothing to say


def test_ids_of_earlier_rounds_stay_or_are_left_alone() -> None:
    """new-03 stays with its images; new-01 and new-02 were something else, and a person has called one new-05."""
    category = np.array([0, 1, 4, 4, 2, 3, 3, 3])
    ids = name_categories(category, ("a", "b"), 5, {2: "new-03"}, {"new-01", "new-02", "new-05"})
    assert ids == ["a", "b", "new-03", "new-04", "new-06"]
    # a category that was split off by hand, and whose labels were withdrawn since, is found again
    assert name_categories(category, ("a", "b"), 5, {3: "odd ones"})[3] == "odd ones"


def test_a_label_has_the_last_word_and_a_model_that_contradicts_it_is_told() -> None:
    found = placed([0, 2, 2, 0, 2, -1])
    assert found.category.tolist() == [0, 1, 2, 0, 2, -1]
    assert found.probability[:2].tolist() == [1, 1]
    described = Description([], np.zeros(6), np.zeros(6, bool))
    frame = image_frame(found, ["a", "b", "new-01"], described, {"new-01": "hats"})
    assert frame.category.tolist() == ["a", "b", "new-01", "a", "new-01", ""]
    assert frame.kind.tolist() == ["known", "known", "novel", "known", "novel", ""]
    assert frame.doubtful.tolist() == [False, True, False, False, False, False]
    assert frame.note[1] == "the model would say hats"
    assert frame.note[2] == "first of 3 frames used"
    assert frame[["x", "y"]].isna().all().all()


def test_people_s_names_are_in_the_table_and_in_the_words() -> None:
    told = RoundContext(
        "r-2", RunFacts(round=2), {"best": 3}, names={"a": "aunts", "new-02": "hats", "new-09": "gone"}
    )
    found = describe_placed(placed([0, 1, 2, 0, 2, -1]), ["a", "b", "new-02"], told)
    assert (found.run_id, found.count, found.facts.round) == ("r-2", {"best": 3}, 2)
    assert [(c.id, c.name, c.n) for c in found.categories] == [
        ("a", "aunts", 2),
        ("b", "b", 1),
        ("new-02", "hats", 2),
    ]
    assert list(found.images.category) == ["aunts", "b", "hats", "aunts", "hats", ""]
    assert found.known == ("a", "b")  # ids
    assert "aunts" in found.category("b").words
    assert found.category("new-02").suggested.startswith("near aunts")


def test_rejected_images_are_in_no_category_and_no_problem() -> None:
    found = placed([0, 1, 2, 0, 2, -1])
    loop = SimpleNamespace(method=SimpleNamespace())
    rejected = np.array([False, True, True, False, False, True])
    context = RoundContext(
        "r",
        RunFacts(),
        table=found.table,
        rows=np.arange(6),
        note=np.full(6, "", dtype=object),
        rejected=rejected,
    )
    left = place_rest(found, context, loop, None, None, progress=False)
    assert left.category.tolist() == [0, -1, -1, 0, 2, -1]
    frame = describe_placed(left, ["a", "b", "new-01"], RoundContext("r", RunFacts())).images
    assert list(frame.category_id) == ["a", "", "", "a", "new-01", ""]
    assert list(frame.note) == ["", "rejected", "rejected", "", "", ""]
    assert list(frame.problem) == ["", "", "", "", "", "broken"]
    assert np.isfinite(left.features[:3]).all()  # should they come back, it is known what they look like


def many(labelled: int) -> tuple[Placement, np.ndarray]:
    """Sixty images of three groups far apart; the method is sure of everything, and has put five in the wrong one."""
    random = np.random.default_rng(0)
    group = np.arange(60) % 3
    embedded = (5 * np.eye(3, 8)[group] + random.normal(size=(60, 8))).astype(np.float32)
    label = np.full(60, "", dtype=object)
    rows = np.flatnonzero(group < 2)[:labelled]
    label[rows] = np.array(["a", "b"], dtype=object)[group[rows]]
    said = group.copy()
    said[-5:] = (group[-5:] + 1) % 3
    table = Table(np.array([f"{i}.png" for i in range(60)], dtype=object), label, ("a", "b"))
    sure = np.full(60, 0.99, np.float32)
    note = np.full(60, "", dtype=object)
    return Placement(table, 3, embedded, Predictions(said, sure, sure), note), embedded


def test_a_second_opinion_finds_what_the_method_was_sure_of() -> None:
    given, embedded = many(labelled=24)
    found = describe_placed(given, ["a", "b", "new-01"], RoundContext("r", RunFacts(), embedded=embedded))
    p, labelled = found.images.probability, (found.images.label != "").to_numpy()
    assert (p[labelled] == 1).all()
    assert p[55:].max() < 0.3 < 0.8 < p[:55][~labelled[:55]].mean()
    assert found.images.doubtful[55:].all()
    assert found.images.doubtful[:55].mean() < 0.1
    assert "calibrated on 24 labelled images" in found.facts.calibration
    assert len(found.facts.calibration_curve) == 20
    wrong = found.images.category_id[55:].value_counts()
    for category in found.categories:
        truth = 1 - wrong.get(category.id, 0) / category.n
        assert category.purity_low <= truth <= category.purity_high


@pytest.mark.parametrize("labelled", [24, 6])
def test_an_image_that_trainings_are_divided_about_is_less_likely_right(labelled: int) -> None:
    given, embedded = many(labelled)
    category = given.said.category
    divided = np.array([41, 42, 43])  # none of them has a label
    other = category.copy()
    other[divided] = (category[divided] + 1) % 3
    every, told = np.arange(60), RoundContext("r", RunFacts(), embedded=embedded)

    def likely(*voices: np.ndarray, rows: np.ndarray) -> np.ndarray:
        each = [Training(one[rows], np.full(len(rows), 0.9)) for one in voices]
        votes = VoteShares.of(vote_consensus(each, 2, 3), 3).spread(rows, 60)
        cast = dataclasses.replace(given, votes=votes)
        return describe_placed(cast, ["a", "b", "new-01"], told).images.probability.to_numpy()

    agreed, torn = (
        likely(category, category, category, rows=every),
        likely(category, category, other, rows=every),
    )
    assert (torn[divided] < agreed[divided] - 0.03).all()
    others = np.setdiff1d(every, divided)
    assert torn[others] == pytest.approx(agreed[others])
    # nobody has voted about images that were not trained on
    plain = describe_placed(given, ["a", "b", "new-01"], told).images.probability.to_numpy()
    half = likely(category, category, other, rows=every[::2])
    assert half[1::2] == pytest.approx(plain[1::2])
    assert half[::2] == pytest.approx(torn[::2])


def test_too_few_labels_for_an_opinion_are_told_and_nothing_is_promised() -> None:
    given, embedded = many(labelled=6)
    found = describe_placed(given, ["a", "b", "new-01"], RoundContext("r", RunFacts(), embedded=embedded))
    assert found.facts.calibration.startswith("There are too few labelled images")
    assert found.facts.calibration_curve == ()
    assert np.isnan([category.purity for category in found.categories]).all()
    # without frozen features it is the method's own score, and nobody says otherwise
    plain = describe_placed(given, ["a", "b", "new-01"], RoundContext("r", RunFacts()))
    assert plain.images.probability[59] == pytest.approx(0.99)
    assert plain.facts.calibration == ""


# -- images that were not trained on --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["kmeans", "simgcd"])
def test_a_run_on_a_sample_places_the_whole_collection(
    method, squares_folder, tiny_backbone_file, tmp_path
) -> None:
    """Every second square is trained on; the others are placed as the trained model places them, broken ones not."""
    whole = load_table(squares_folder / "squares.csv")
    problem = np.full(64, "", dtype=object)
    problem[63] = "known to be broken"
    whole = whole.with_problems(problem)
    rows = np.arange(0, 64, 2)
    experiment = default_experiment(method, "images")
    experiment.k, experiment.device, experiment.progress = 4, "cpu", False
    experiment.out, experiment.backbone.name = str(tmp_path), str(tiny_backbone_file)
    experiment.train.epochs, experiment.train.batch_size, experiment.cache_views = 2, 16, "off"
    run = begin_run(experiment, ResourceCache(data=RunData(whole.take(rows), 4)))
    assert isinstance(run, Run)
    prediction = run.loop.fit()
    context = RoundContext("r", RunFacts(), table=whole, rows=rows)
    own = trained_images(run.loop, prediction, 4, run.prepared.images.note)
    found = place_rest(
        own, context, run.loop, run.prepared.backbone, tmp_path / REMAINDER_FOLDER, progress=False
    )
    assert np.array_equal(found.features[rows], own.features)
    assert np.isfinite(found.features[:63]).all()
    assert np.isnan(found.features[63]).all()
    others = np.arange(1, 63, 2)
    said = run.loop.method.predict(torch.from_numpy(found.features[others])).category
    assert found.said.category[others].tolist() == said.tolist()
    assert found.said.category[63] == -1
    assert (tmp_path / REMAINDER_FOLDER).is_dir()
    record = finish_run(run, prediction, 1.0, 1, context)
    assert record.scores.n == 47  # the whole collection is scored: 48 unlabelled images, one of them broken
    assert not (tmp_path / REMAINDER_FOLDER).exists()  # the shards have done their work


# -- as if they were new --


def test_a_method_that_trains_nothing_asks_for_no_second_opinion() -> None:
    task = Linear().task
    assert uses_lda(METHODS["simgcd"](METHODS["simgcd"].Config(), task))
    assert not uses_lda(METHODS["kmeans"](METHODS["kmeans"].Config(), task))


def test_an_image_is_judged_by_those_that_have_not_learned_from_it() -> None:
    given, embedded = many(labelled=24)
    features = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    judged = dataclasses.replace(given, features=features, k=4)
    judged.calibrate(embedded)
    opinion = judged.scores.opinion
    said = predict_as_new(judged, Linear(), opinion)
    p = np.zeros((60, 4))
    for part, scores in opinion.scores(np.arange(60)):
        p[part] = softmax(scores / opinion.heat)
    alone = predict(Linear(), features)
    for row in range(60):
        m = np.exp(features[row] @ Linear().weight.numpy().T)
        q = (m / m.sum() + p[row]) / 2
        assert said.category[row] == q.argmax()
        assert said.probability[row] == pytest.approx(q.max(), abs=1e-5)
    assert (said.category != alone.category).any()


def test_without_an_opinion_it_is_the_word_of_the_model() -> None:
    given, _ = many(labelled=24)
    features = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    placed = dataclasses.replace(given, features=features, k=4)
    placed.said.category[59] = -1
    said, alone = predict_as_new(placed, Linear(), None), predict(Linear(), features)
    np.testing.assert_array_equal(said.category[:59], alone.category[:59])
    assert said.category[59] == -1
    assert np.isnan(said.probability[59])


def test_the_opinion_of_later_images_is_that_of_those_that_are_placed() -> None:
    given, embedded = many(labelled=24)
    kept = fit_lda_of(given, embedded).kept()
    given.calibrate(embedded)
    np.testing.assert_allclose(kept.shares(embedded), given.scores.opinion.kept().shares(embedded))
    right = np.arange(60) < 55  # the last five lie wrong
    said = kept.shares(embedded).argmax(axis=1)
    assert (said == given.category)[right].mean() > 0.9
    assert (said != given.category)[~right].all()


def test_the_images_of_one_training_lie_where_later_ones_would() -> None:
    """Of labelled ones it stays what the model says."""
    given, embedded = many(labelled=24)
    features = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    placed = dataclasses.replace(given, features=features, k=4)
    said = predict_as_new(placed, Linear(), fit_lda_of(placed, embedded))
    place_with_lda(placed, Linear(), embedded)
    fixed = given.fixed
    assert placed.said.category[~fixed].tolist() == said.category[~fixed].tolist()
    assert placed.said.category[fixed].tolist() == given.said.category[fixed].tolist()
    assert placed.category[fixed].tolist() == given.category[fixed].tolist()  # a label has the last word
    assert (placed.category != given.category).any()


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
    each = [dataclasses.replace(given, votes=voice) for voice in (own, torn)]
    for placed in each:
        placed.calibrate(embedded)
    likely, unlikely = (placed.scores.probability[:55] for placed in each)
    assert (likely > unlikely).all()


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
    own = trained_images(run.loop, run.loop.fit(), 4, run.prepared.images.note)
    context = RoundContext("r", RunFacts(), table=whole, rows=rows)
    dim = own.features.shape[1]
    sure = LinearHead(
        np.zeros(dim, np.float32), np.zeros((4, dim), np.float32), np.array([0, 0, 0, 40], np.float32)
    )
    given = (np.ones((64, dim), np.float32), sure) if asked else (None, None)
    found = place_rest(own, context, run.loop, run.prepared.backbone, tmp_path / "rest", False, *given)
    others = np.arange(1, 64, 2)
    assert context.others.tolist() == others.tolist()
    said = run.loop.method.predict(torch.from_numpy(found.features[others]))
    expected = [3] * 32 if asked else said.category.tolist()
    assert found.said.category[others].tolist() == expected
    assert found.said.category[rows].tolist() == own.said.category.tolist()


# -- names ----------------------------------------------------------------------------------------------


def first():
    return made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})


def later(table: Table, category: list[int], k: int) -> Placement:
    said = Predictions(np.array(category), np.zeros(len(table)), np.zeros(len(table)))
    return Placement(table, k, np.zeros((len(table), 2)), said, np.full(len(table), "", dtype=object))


def of_paths(label: list[str], known: tuple[str, ...]) -> Table:
    return Table(np.array(PATHS, dtype=object), np.array(label, dtype=object), known)


def test_ids_stay_with_the_images() -> None:
    table = of_paths([*"aaaa", *[""] * 8], ("a",))
    assert carry_over_ids(later(table, [0, 0, 0, 0, 0, 2, 2, 2, 1, 1, 1, 1], 3), None) == {}
    assert carry_over_ids(later(table, [0, 0, 0, 0, 0, 2, 2, 2, 1, 1, 1, 1], 3), first()) == {
        1: "new-02",
        2: "new-01",
    }
    # torn apart: neither part is the old one
    assert carry_over_ids(later(table, [0, 0, 0, 0, 1, 1, 2, 2, 1, 1, 2, 2], 3), first()) == {}


def test_ids_stay_where_many_images_arrive() -> None:
    """What is new says nothing on whether a category is the one that it was; nor does what is gone."""
    paths = [*PATHS[:4], *PATHS[5:], *(f"new-{i}.png" for i in range(20))]
    table = Table(np.array(paths, dtype=object), np.array([*"aaaa", *[""] * 27], dtype=object), ("a",))
    said = [0] * 4 + [2] * 3 + [1] * 4 + [2] * 10 + [1] * 10
    assert carry_over_ids(later(table, said, 3), first()) == {1: "new-02", 2: "new-01"}


def test_a_class_whose_labels_were_taken_away_hands_its_id_on_to_none() -> None:
    table = of_paths([""] * 12, ())
    said = later(table, [0] * 4 + [1] * 4 + [2] * 4, 3)
    assert carry_over_ids(said, first()) == {0: "a", 1: "new-01", 2: "new-02"}
    assert carry_over_ids(said, first(), frozenset({"a"})) == {1: "new-01", 2: "new-02"}


def test_labels_go_first() -> None:
    """What has become a class is matched no more, and labelled images do not count in what is left."""
    table = of_paths([*"aaaa", *["new-01"] * 3, *[""] * 5], ("a", "new-01"))
    assert carry_over_ids(later(table, [0] * 4 + [1] * 4 + [2] * 4, 3), first()) == {2: "new-02"}
    table = of_paths([*"aaaa", *["hat"] * 2, *[""] * 6], ("a", "hat"))
    assert carry_over_ids(later(table, [0] * 4 + [1] * 2 + [2] * 2 + [3] * 4, 4), first()) == {
        2: "new-01",
        3: "new-02",
    }
