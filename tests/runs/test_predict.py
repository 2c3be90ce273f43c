"""From features to a discovery: the method beside the LDA, votes, labels that have the last word, ids that stay."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.methods import METHODS, Method, Prediction, Task
from holotype.results.discovery import Category, Discovery, RunFacts
from holotype.results.ensemble import Training, VoteShares, vote_consensus
from holotype.results.frozen import Blend
from holotype.results.lda import FEW_ROWS, softmax
from holotype.runs import predict as module
from holotype.runs.predict import EnsembleRuns, Placement, Predictions, RoundContext, predict
from holotype.runs.resources import ResourceCache, RunData
from holotype.runs.run import begin_run, finish_run
from tests.discovery.made_round import PATHS, made_discovery

K, DIM, N = 4, 6, 23
TASK = Task(2, K, DIM, N, 5)
ABOUT = RunFacts()


class Linear(Method):
    """By logits."""

    def __init__(self) -> None:
        super().__init__(None, TASK)
        self.register_buffer("weight", torch.randn(K, DIM, generator=torch.Generator().manual_seed(0)))

    def logits(self, features: Tensor) -> Tensor:
        return features @ self.weight.T


class Nearest(Method):
    """Without logits and without anything to hold: it names one category."""

    def __init__(self) -> None:
        super().__init__(None, TASK)

    def predict(self, features: Tensor) -> Prediction:
        category = features[:, :K].argmax(-1)
        return Prediction(category, torch.full(category.shape, 0.7), torch.full(category.shape, float("nan")))


class Otherwise(Linear):
    """A method of one's own may place images otherwise than its logits would."""

    def predict(self, features: Tensor) -> Prediction:
        said = super().predict(features)
        return Prediction((said.category + 1) % K, said.probability, said.known_score)


def features(n: int = N, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def texts(*words: str) -> np.ndarray:
    return np.array(words, dtype=object)


def test_the_category_that_a_method_names_counts_more_than_its_logits() -> None:
    x = features()
    assert (module.has_logits(Nearest()), module.has_logits(Linear())) == (False, True)
    alone, word = predict(Nearest(), x), module.class_probabilities(Nearest(), x)
    assert (word[np.arange(N), alone.category] == np.float32(0.7)).all()
    assert (np.count_nonzero(word, axis=1) == 1).all()
    torn = module.predict_with_lda(Nearest(), x, np.full((N, K), 0.25))
    np.testing.assert_array_equal(torn.category, alone.category)
    other = (alone.category + 1) % K
    moved = module.predict_with_lda(Nearest(), x, np.eye(K)[other])
    np.testing.assert_array_equal(moved.category, other)
    assert moved.probability == pytest.approx(0.5)
    found = module.predict_with_lda(Otherwise(), x, np.zeros((N, K)))
    np.testing.assert_array_equal(found.category, predict(Otherwise(), x).category)
    assert (found.category != predict(Linear(), x).category).all()


TRUE = np.repeat(np.arange(4), 10)
EMBEDDED = np.eye(4, 6)[TRUE] + 0.1 * np.random.default_rng(0).normal(size=(40, 6))


def joined(*said: tuple[np.ndarray, float], embedded: np.ndarray = EMBEDDED, methods=("rpc",)) -> Any:
    """The trainings and where they place the images together, three of which are labelled."""
    table = Table(texts(*(f"{i}.png" for i in range(40))), texts(*(["a"] * 3 + [""] * 37)), ("a", "b"))
    share = torch.full((40,), 0.8)
    each = [Prediction(torch.from_numpy(c), share, torch.full((40,), known)) for c, known in said]
    found = EnsembleRuns.of(range(len(each)), each, table, 4, methods, embedded, [], Blend())
    return found, found.prediction(each)


def test_the_images_lie_where_most_trainings_and_the_lda_have_them() -> None:
    swapped = np.where(TRUE == 2, 3, np.where(TRUE == 3, 2, TRUE))
    strayed = np.where(np.arange(40) == 39, 0, TRUE)
    found, outcome = joined((TRUE, 0.2), (swapped, 0.4), (strayed, 0.6))
    assert found.together.agreed == pytest.approx([1, 1, 0.975])
    assert outcome.known_score == pytest.approx(0.4)
    assert outcome.probability[[0, 39]] == pytest.approx([1, 2 / 3])
    # three of five trainings put the last image elsewhere; it looks like the others of its category
    votes = [(strayed, 0.5)] * 3 + [(TRUE, 0.5)] * 2
    outcome = joined(*votes)[1]
    assert outcome.category.tolist() == TRUE.tolist()
    assert outcome.probability[39] == pytest.approx(2 / 5)
    misleading = np.concatenate([EMBEDDED[:39], EMBEDDED[:1]])
    assert joined(*votes, embedded=misleading)[1].category.tolist() == strayed.tolist()


def test_categories_say_how_often_they_come_back_by_their_free_images() -> None:
    merged = np.where(TRUE == 3, 2, TRUE)
    found, _ = joined((TRUE, 0.5), (merged, 0.5), (TRUE, 0.5), methods=("rpc", "uno"))
    ids = ["a", "b", "new-01", "new-02"]
    categories = [Category(id, id, "known" if id in "ab" else "novel", 10) for id in ids]
    found.set_returns(categories, ids)
    assert [c.comes_back for c in categories] == [3, 3, 2, 2]
    assert [c.together for c in categories] == pytest.approx([1, 1, 1, 1])  # together, though not alone
    about = found.tell(ABOUT)
    assert (about.trainings, about.agreement, about.methods) == ((0, 1, 2), (1.0, 0.75, 1.0), ("rpc", "uno"))


def placed(*said: int) -> Placement:
    """Six images: the first two are labelled a and b, the last is broken."""
    numbers = np.linspace(0, 1, 6, dtype=np.float32)
    note = texts("", "", "first of 3 frames used", "", "", "")
    path, problem = texts(*(f"{i}.png" for i in range(6))), texts("", "", "", "", "", "broken")
    table = Table(path, texts("a", "b", "", "", "", ""), ("a", "b"), problem=problem)
    own = Predictions(np.array(said), numbers.copy(), numbers.copy())
    return Placement(table, 3, np.eye(6, 4), own, note)


def many(labelled: int) -> tuple[Placement, np.ndarray]:
    """Sixty images of three groups far apart; the method is sure of everything, and has put five in the wrong one."""
    group = np.arange(60) % 3
    embedded = (5 * np.eye(3, 8)[group] + np.random.default_rng(0).normal(size=(60, 8))).astype(np.float32)
    label, rows = np.full(60, "", dtype=object), np.flatnonzero(group < 2)[:labelled]
    label[rows] = texts("a", "b")[group[rows]]
    said = np.where(np.arange(60) >= 55, (group + 1) % 3, group)
    table = Table(texts(*(f"{i}.png" for i in range(60))), label, ("a", "b"))
    sure = np.full(60, 0.99, np.float32)
    note = np.full(60, "", dtype=object)
    return Placement(table, 3, embedded, Predictions(said, sure, sure), note), embedded


class Told(Method):
    """Says of each image what a placement says of it, as surely as one likes."""

    def __init__(self, given: Placement, heat: float = 50.0) -> None:
        super().__init__(None, Task(2, 3, 3, 60, 5))
        self.x = (heat * np.eye(3)[given.said.category]).astype(np.float32)

    def stages(self) -> list:
        return [1]

    def logits(self, features: Tensor) -> Tensor:
        return features[:, :3]


def describe(given: Placement, context: RoundContext | None = None, embedded: Any = None) -> Discovery:
    given, method = dataclasses.replace(given), Told(given) if embedded is not None else Linear()
    if embedded is not None:
        given.features = np.concatenate([method.x, given.features], axis=1)
    given.calibrate(embedded, method)
    return module.build_discovery(given, context or RoundContext("r", ABOUT))


def test_a_label_has_the_last_word_and_a_model_that_contradicts_it_is_told() -> None:
    found = placed(0, 2, 2, 0, 2, -1)
    assert found.category.tolist() == [0, 1, 2, 0, 2, -1]
    assert found.probability[:2].tolist() == [1, 1]
    frame = describe(found, RoundContext("r", ABOUT, names={"new-01": "hats"})).images
    assert frame.category_id.tolist() == ["a", "b", "new-01", "a", "new-01", ""]
    assert frame.kind.tolist() == ["known", "known", "novel", "known", "novel", ""]
    assert (frame.doubtful[1], frame.note[1]) == (True, "the model would say hats")
    assert frame.note[2] == "first of 3 frames used"
    assert frame[["x", "y"]].isna().all().all()
    names = {"a": "aunts", "new-01": "hats", "new-09": "gone"}
    context = RoundContext("r-2", RunFacts(round=2), {"best": 3}, names=names)
    found = describe(placed(0, 1, 2, 0, 2, -1), context)
    assert (found.run_id, found.count, found.facts.round) == ("r-2", {"best": 3}, 2)
    told = [("a", "aunts", 2), ("b", "b", 1), ("new-01", "hats", 2)]
    assert [(c.id, c.name, c.n) for c in found.categories] == told
    assert list(found.images.category) == ["aunts", "b", "hats", "aunts", "hats", ""]
    assert found.known == ("a", "b")  # ids
    assert found.category("new-01").suggested == ""  # like neither
    near = placed(0, 1, 2, 0, 2, -1)
    near.features[:] += 0.3
    alike = describe(near, context)
    assert "aunts" in alike.category("b").words
    assert alike.category("new-01").suggested.startswith("near aunts")


def test_rejected_images_are_in_no_category_and_no_problem() -> None:
    own = placed(0, 1, 2, 0, 2, -1)
    rejected = np.array([False, True, True, False, False, True])
    context = RoundContext("r", ABOUT, table=own.table, rows=np.arange(6), rejected=rejected)
    left = module.place_rest(own, context, SimpleNamespace(method=Linear()), None, None, None)
    assert left.category.tolist() == [0, -1, -1, 0, 2, -1]
    frame = describe(left).images
    assert list(frame.category_id) == ["a", "", "", "a", "new-01", ""]
    assert list(frame.note) == ["", "rejected", "rejected", "", "", ""]
    assert list(frame.problem) == ["", "", "", "", "", "broken"]
    assert np.isfinite(left.features[:3]).all()  # should they come back, it is known what they look like


def test_a_second_opinion_finds_what_the_method_was_sure_of() -> None:
    given, embedded = many(labelled=24)
    found = describe(given, RoundContext("r", ABOUT), embedded)
    p, labelled = found.images.probability, (found.images.label != "").to_numpy()
    assert (p[labelled] == 1).all()
    assert p[55:].max() < 0.3 < 0.8 < p[:55][~labelled[:55]].mean()
    assert found.images.doubtful[55:].all()
    assert found.images.doubtful[:55].mean() < 0.1
    assert "calibrated on 24 labelled images" in found.facts.calibration
    assert len(found.facts.calibration_curve) == 20
    wrong = found.images.category_id[55:].value_counts()
    for category in found.categories:
        assert category.purity_low <= 1 - wrong.get(category.id, 0) / category.n <= category.purity_high
    few = describe(many(labelled=6)[0], RoundContext("r", ABOUT), embedded)  # nothing is promised
    assert few.facts.calibration.startswith("There are too few labelled images")
    assert few.facts.calibration_curve == ()
    assert np.isnan([category.purity for category in few.categories]).all()
    plain = describe(given)  # without frozen features it is the method's own score, and nobody says otherwise
    assert (plain.images.probability[59], plain.facts.calibration) == (pytest.approx(0.99), "")


@pytest.mark.parametrize("labelled", [24, 6])
def test_an_image_that_trainings_are_divided_about_is_less_likely_right(labelled: int) -> None:
    given, embedded = many(labelled)
    category, divided, every = given.said.category, np.array([41, 42, 43]), np.arange(60)  # without a label
    other = category.copy()
    other[divided] = (category[divided] + 1) % 3

    def likely(*voices: np.ndarray, rows: np.ndarray) -> np.ndarray:
        each = [Training(one[rows], np.full(len(rows), 0.9)) for one in voices]
        votes = VoteShares.of(vote_consensus(each, 2, 3), 3).spread(rows, 60) if voices else None
        cast = dataclasses.replace(given, votes=votes)
        return describe(cast, RoundContext("r", ABOUT), embedded).images.probability.to_numpy()

    agreed, torn = (likely(category, category, third, rows=every) for third in (category, other))
    assert (torn[divided] < agreed[divided] - 0.03).all()
    others = np.setdiff1d(every, divided)
    if labelled < FEW_ROWS:  # how far they agree says how sure the LDA may be of any image
        assert torn[others].mean() <= agreed[others].mean()
        return
    assert torn[others] == pytest.approx(agreed[others])
    half = likely(category, category, other, rows=every[::2])  # nobody has voted about the others
    assert half[1::2] == pytest.approx(likely(rows=every)[1::2])
    assert half[::2] == pytest.approx(torn[::2])
    # what one training says counts beside the LDA as votes do: one that is unsure makes an image less likely right
    own, unsure = (module.ModelScores(method := Told(given, heat), method.x) for heat in (50.0, 0.0))
    assert own.shares(np.array([3, 4])) == pytest.approx(np.eye(3)[category[[3, 4]]])
    each = [dataclasses.replace(given, votes=voice, features=voice.features) for voice in (own, unsure)]
    for one in each:
        one.calibrate(embedded, own.method)
    assert (each[0].scores.probability[:55] > each[1].scores.probability[:55]).all()


def test_an_image_is_judged_as_new_by_those_that_have_not_learned_from_it() -> None:
    given, embedded = many(labelled=24)
    x = features(60, seed=0)
    judged = dataclasses.replace(given, features=x, k=4)
    lda = module.fit_lda_of(judged, embedded)
    said, alone, p = module.predict_as_new(judged, Linear(), lda), predict(Linear(), x), np.zeros((60, 4))
    for part, scores in lda.scores(np.arange(60)):
        p[part] = softmax(scores / lda.heat)
    for row in range(60):
        m = np.exp(x[row] @ Linear().weight.numpy().T)
        q = (m / m.sum() + p[row]) / 2
        assert said.category[row] == q.argmax()
        assert said.probability[row] == pytest.approx(q.max(), abs=1e-5)
    assert (said.category != alone.category).any()
    # so lie the images of one training; of labelled ones it stays what the model says
    module.place_with_lda(judged, Linear(), embedded)
    fixed = given.fixed
    assert judged.said.category[~fixed].tolist() == said.category[~fixed].tolist()
    assert judged.said.category[fixed].tolist() == given.said.category[fixed].tolist()
    without = dataclasses.replace(given, features=x, k=4)
    without.said.category[59] = -1
    assert module.predict_as_new(without, Linear(), None).category.tolist() == [*alone.category[:59], -1]
    # and the LDA of later images is that of those that are placed
    kept = module.fit_lda_of(given, embedded).kept().shares(embedded).argmax(axis=1)
    assert (kept == given.category)[:55].mean() > 0.9
    config, task = METHODS["simgcd"].Config(), Task(2, K, DIM, N, 5)
    assert module.uses_lda(METHODS["simgcd"](config, task))
    assert not module.uses_lda(METHODS["kmeans"](METHODS["kmeans"].Config(), task))


@pytest.mark.parametrize(("method", "asked"), [("kmeans", False), ("simgcd", False), ("simgcd", True)])
def test_a_run_on_a_sample_places_the_whole_collection(method, asked, tiny, squares_folder, tmp_path) -> None:
    """Every second square is trained on; the others are placed as new ones are, broken ones not."""
    whole, rows = load_table(squares_folder / "squares.csv"), np.arange(0, 64, 2)
    whole = whole.with_problems(["known to be broken" if row == 63 else "" for row in range(64)])
    run = begin_run(tiny(method, "."), ResourceCache(data=RunData(whole.take(rows), 4)))
    prediction = run.loop.fit()
    colours = 3 * np.eye(4, 8)[np.arange(64) // 16] + np.random.default_rng(0).normal(size=(64, 8))
    embedded = colours.astype(np.float32) if asked else None
    context = RoundContext("r", ABOUT, table=whole, rows=rows, embedded=embedded)
    found = module.place_images(run.loop, prediction, run.prepared, context, tmp_path)
    assert np.isnan(found.features).any(axis=1).tolist() == [row == 63 for row in range(64)]
    others, said = np.arange(1, 63, 2), found.said.category
    alone = run.loop.method.predict(torch.from_numpy(found.features[others])).category
    if asked:
        assert (said[others] != alone.numpy()).any()
    else:
        assert said[others].tolist() == alone.tolist()
        assert said[rows].tolist() == prediction.category.tolist()
    assert said[63] == -1
    assert (tmp_path / module.REMAINDER_FOLDER).is_dir()
    record = finish_run(run, prediction, 1.0, 1, context)
    assert record.scores.n == 47  # the whole collection is scored: 48 unlabelled images, one of them broken
    assert not (tmp_path / module.REMAINDER_FOLDER).exists()  # the shards have done their work


def test_new_categories_are_numbered_by_size_and_ids_of_earlier_rounds_stay_or_are_left_alone() -> None:
    """new-03 stays with its images; new-01 and new-02 were something else, and a person has called one new-05."""
    category = np.array([0, 1, 4, 4, 2, -1])
    assert module.name_categories(category, ("a", "b"), 5) == ["a", "b", "new-02", "new-03", "new-01"]
    assert module.name_categories(np.array([0, 1]), ("a", "b"), 2) == ["a", "b"]
    category = np.array([0, 1, 4, 4, 2, 3, 3, 3])
    ids = module.name_categories(category, ("a", "b"), 5, {2: "new-03"}, {"new-01", "new-02", "new-05"})
    assert ids == ["a", "b", "new-03", "new-04", "new-06"]
    # a category that was split off by hand, and whose labels were withdrawn since, is found again
    assert module.name_categories(category, ("a", "b"), 5, {3: "odd ones"})[3] == "odd ones"


BEFORE = {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]}


@pytest.mark.parametrize(
    ("label", "said", "withdrawn", "carried"),
    [
        ("aaaa        ", "000002221111", "", {1: "new-02", 2: "new-01"}),
        ("aaaa        ", "000011221122", "", {}),  # torn apart: neither part is the old one
        ("            ", "000011112222", "", {0: "a", 1: "new-01", 2: "new-02"}),
        ("            ", "000011112222", "a", {1: "new-01", 2: "new-02"}),  # hands its id on to none
        ("aaaahhh     ", "000011112222", "", {2: "new-02"}),  # what has become a class is matched no more
        ("aaaahh      ", "000011223333", "", {2: "new-01", 3: "new-02"}),  # labelled images do not count
    ],
)
def test_ids_stay_with_the_images(label: str, said: str, withdrawn: str, carried: dict[int, str]) -> None:
    def later(paths: list[str], label: str, said: str) -> Placement:
        table = Table(texts(*paths), texts(*(one.strip() for one in label)), tuple(sorted({*label} - {" "})))
        own = Predictions(np.array([*map(int, said)]), np.zeros(len(paths)), np.zeros(len(paths)))
        return Placement(table, 4, np.zeros((len(paths), 2)), own, np.full(len(paths), "", dtype=object))

    before = made_discovery("r-1", BEFORE)
    if label.startswith("aaaahhh"):
        before = made_discovery("r-1", {"h" if id == "new-01" else id: rows for id, rows in BEFORE.items()})
    now = later(PATHS, label, said)
    assert module.carry_over_ids(now, before, frozenset(withdrawn)) == carried
    assert module.carry_over_ids(now, None) == {}
    # what is new says nothing on whether a category is the one that it was
    more = later([*PATHS, *(f"new-{i}.png" for i in range(8))], label + " " * 8, said + "33221100")
    assert module.carry_over_ids(more, before, frozenset(withdrawn)) == carried
