"""The judge of the second opinion against plain formulas, and centroids: what is near, and what fits nothing."""

import numpy as np
import pytest

from holotype.results import lda
from tests.results.test_calibration import K, world


def test_shares_are_a_softmax_that_knows_of_nothing() -> None:
    logits = np.array([[1.0, 2.0, -np.inf], [800.0, 0.0, 1.0], [-np.inf, -np.inf, -np.inf]])
    found = lda.softmax(logits)
    assert found[0] == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e), 0])
    assert found[1] == pytest.approx([1, 0, 0])
    assert found[2].tolist() == [0, 0, 0]
    assert lda.own_class_share(logits, [1, 0, 2]) == pytest.approx([np.e / (1 + np.e), 1, 0])


def test_the_pool_is_the_root_of_both() -> None:
    p, v = np.array([[0.7, 0.2, 0.1]]), np.array([[0.0, 0.9, 0.1]])
    both = np.sqrt((v + lda.FLOOR) * p)
    np.testing.assert_allclose(lda.softmax(lda.log_pool(np.log(p), v)), both / both.sum())
    np.testing.assert_allclose(lda.softmax(lda.log_pool(np.log(p), np.full((1, 3), np.nan))), p)


def test_votes_make_an_image_likelier_where_they_are_and_less_elsewhere() -> None:
    class Cast:
        def __init__(self, category: np.ndarray) -> None:
            self.category = category

        def shares(self, images: np.ndarray) -> np.ndarray:
            return np.eye(K)[self.category[images]]

    embedded, category, target, _ = world()
    opinion = lda.CrossFitLDA(embedded, category, K)
    alone, heat = opinion.form(target), np.full(K, opinion.heat)
    for_it, against = opinion.own(heat, Cast(category)), opinion.own(heat, Cast((category + 1) % K))
    assert (for_it > against).all()
    assert for_it.mean() > alone.mean() > against.mean()


def test_every_category_is_spread_over_the_folds() -> None:
    placed = np.repeat([0, 1, -1, 2], [30, 3, 4, 25])
    fold = lda.assign_folds(placed, 4, np.random.default_rng(0))
    assert (fold[placed < 0] == -1).all()
    assert np.bincount(fold[placed == 0]).tolist() == [3] * lda.FOLDS
    assert len(set(fold[placed == 1])) == 3


def test_a_judge_scores_by_distance_to_means() -> None:
    """Against the formula, one image and one category at a time."""
    random = np.random.default_rng(0)
    u, category, weight = random.normal(size=(60, 4)), np.arange(60) % 3, random.uniform(0.1, 1, 60)
    scores = lda.LDAStats.of(u, category, weight, 4).judge().scores(u)
    means = [np.average(u[category == c], axis=0, weights=weight[category == c]) for c in range(3)]
    rest = u - np.array(means)[category]
    scatter = (rest * weight[:, None]).T @ rest / weight.sum()
    share = max(lda.SHRINKAGE, 4 / 64)
    inverse = np.linalg.inv((1 - share) * scatter + share * np.trace(scatter) / 4 * np.eye(4))
    for row in range(0, 60, 7):
        expected = [
            np.log(weight[category == c].sum() / weight.sum())
            - (u[row] - mean) @ inverse @ (u[row] - mean) / 2
            for c, mean in enumerate(means)
        ]
        # what all categories share does not count
        assert scores[row, :3] - scores[row, 0] == pytest.approx(np.array(expected) - expected[0])
    assert np.isneginf(scores[:, 3]).all()  # it has seen nothing of it


def test_the_judge_of_a_fold_is_the_one_that_the_other_folds_teach() -> None:
    """Sums less those of the fold, against teaching from the others one by one; a category that lies in one fold is
    nothing to its own judge."""
    embedded, category, target, _ = world()
    category = category.copy()
    category[7] = K
    opinion = lda.CrossFitLDA(embedded, category, K + 1)
    weight = np.where(target >= 0, 0.0, np.random.default_rng(0).uniform(0.01, 1, len(category)))
    opinion.learn(weight)
    u = opinion.unit(opinion.taught)
    for f, judge in enumerate(opinion.judges):
        rows = opinion.fold != f
        alone = lda.LDAStats.of(u[rows], category[rows], weight[rows], K + 1).judge()
        np.testing.assert_allclose(judge.scores(u), alone.scores(u), rtol=1e-6, atol=1e-6)
    assert np.isneginf(opinion.judges[opinion.fold[7]].offset[K])


def test_labels_are_enough_from_twenty_on() -> None:
    labels = ([0, 1] * 10, [0, 1] * 9 + [0], [0] * 30 + [1], [-1] * 5)
    assert [lda.can_calibrate(np.array(some)) for some in labels] == [True, False, False, False]


def test_what_is_kept_is_the_discriminant_that_all_folds_teach() -> None:
    """Against the formula with squares, at the temperature that was found. Neither length nor a shift matters."""
    embedded, category, target, _ = world()
    opinion = lda.CrossFitLDA(embedded, category, K + 1)  # of the last one there is no image
    opinion.form(target)
    kept = opinion.kept()
    new = embedded[:50] + np.random.default_rng(3).normal(0, 0.3, (50, embedded.shape[1]))
    scores = opinion.whole.judge().scores(lda.center_rows(new, opinion.middle))
    found = kept.shares(new)
    assert opinion.heat != 1
    np.testing.assert_allclose(found, lda.softmax(scores / opinion.heat), atol=1e-5)
    assert found.sum(axis=1) == pytest.approx(1)
    assert (found[:, K] == 0).all()
    shifted = lda.LinearHead(kept.middle + 5, kept.slope, kept.offset)
    np.testing.assert_allclose(shifted.shares(new + 5), found, atol=1e-4)
    np.testing.assert_allclose(kept.shares(kept.middle + 3 * (new - kept.middle)), found, atol=1e-4)


def test_it_knows_images_that_it_has_not_seen() -> None:
    embedded, category, target, _ = world()
    there = np.arange(len(category)) % 4 != 0
    opinion = lda.CrossFitLDA(embedded[there], category[there], K)
    opinion.form(target[there])
    said = opinion.kept().shares(embedded[~there]).argmax(axis=1)
    assert (said == category[~there]).mean() > 0.8


DIM = 12
SCATTER = np.geomspace(0.3, 0.003, DIM)
"""Images of a category differ much in some directions and hardly in others."""


def around(direction: int, n: int, seed: int | np.random.Generator) -> np.ndarray:
    rng = np.random.default_rng(seed)
    points = rng.normal(0, SCATTER, (n, DIM))
    points[:, direction] += 1
    return points * rng.uniform(0.5, 20, (n, 1))  # lengths mean nothing


ONE = np.random.default_rng(0)
FEATURES = np.concatenate([around(c, n, ONE) for c, n in ((0, 300), (1, 300), (2, 1))])
CATEGORY = np.repeat([0, 1, 3], [300, 300, 1])  # category 2 has no image


@pytest.fixture(scope="module")
def centres() -> lda.Centroids:
    return lda.Centroids.measure(FEATURES, CATEGORY, 4)


def test_centres_against_a_slow_loop(centres, monkeypatch) -> None:
    for c in (0, 1, 3):
        rows = [f / np.linalg.norm(f) for f, k in zip(FEATURES, CATEGORY, strict=True) if k == c]
        assert np.allclose(centres.mean[c], np.mean(rows, axis=0), atol=1e-5)
    assert list(centres.n) == [300, 300, 0, 1]
    assert not centres.mean[2].any()
    more = np.concatenate([FEATURES, np.full((2, DIM), np.nan), np.ones((1, DIM))])  # not placed, or not read
    again = lda.Centroids.measure(more, np.concatenate([CATEGORY, [0, -1, -1]]), 4)
    assert np.allclose(again.mean, centres.mean, atol=1e-6)
    monkeypatch.setattr("holotype.results.lda.CHUNK", 37)
    again = lda.Centroids.measure(FEATURES.astype(np.float32), CATEGORY, 4)
    assert np.allclose(again.mean, centres.mean, atol=1e-5)
    assert again.limit == pytest.approx(float(centres.limit), rel=1e-3)


def test_the_distance_against_a_slow_loop(centres) -> None:
    u = lda.unit_rows(around(1, 5, 3))
    inverse = (centres.whiten @ centres.whiten.T).astype(np.float64)
    for row, found in zip(u, centres.distance(u), strict=True):
        steps = [(row - centres.mean[c], centres.n[c]) for c in (0, 1, 3)]
        assert found == pytest.approx(min(s @ inverse @ s / (1 + 1 / n) for s, n in steps) ** 0.5, rel=1e-3)


def test_what_fits(centres) -> None:
    """Whether an image fits at all is no question of which category a method has chosen."""

    def fit(features: np.ndarray, category: int) -> float:
        return centres.judge(features, np.full(len(features), category))[2].mean()

    assert 0.97 < fit(around(0, 2000, 1), 0) < 1
    assert 1 - centres.judge(FEATURES, CATEGORY)[2].mean() == pytest.approx(lda.FAR_QUANTILE, abs=0.01)
    assert fit(around(0, 50, 4), 1) > 0.9  # in the wrong category
    assert fit(around(2, 200, 2), 3) > 0.5  # there is room around a category of one image
    stranger = np.eye(1, DIM, 7)  # at a right angle to every category
    category, typicality, fits = centres.judge(stranger, np.array([0]))
    assert (category[0], typicality[0], fits[0]) == (0, 0, False)
    told, _, fits = centres.judge(FEATURES[:5], np.full(5, 2))  # a category that has vanished takes nothing
    assert list(told) == [0] * 5
    assert not fits.any()


def test_a_step_where_images_never_differ_is_a_long_one(centres) -> None:
    """Both images are equally near in cosine; one has moved as images of a category do, one as none does."""
    usual, odd = centres.mean[[0, 0]].copy()
    usual[1] += 0.4
    odd[-1] += 0.4
    both = lda.unit_rows(np.stack([usual, odd]))
    near = both @ lda.unit_rows(centres.mean[:1])[0]
    assert near[0] == pytest.approx(near[1], abs=0.01)
    distance = centres.distance(both)
    assert distance[1] > 2 * distance[0]
    assert list(centres.judge(both, np.zeros(2, dtype=int))[2]) == [True, False]


def test_typicality_is_the_share_that_is_no_nearer(centres) -> None:
    own = FEATURES[CATEGORY == 0]
    _, typicality, _ = centres.judge(own, np.zeros(len(own), dtype=int))
    near = lda.unit_rows(own) @ lda.unit_rows(centres.mean[:1])[0]
    assert np.abs(typicality - [(near <= value).mean() for value in near]).max() < 0.02
    assert centres.judge(centres.mean[:1], np.array([0]))[1][0] == 1


@pytest.mark.parametrize(
    ("features", "category"),
    [
        (np.full((2, DIM), np.nan), [0, 1]),  # nothing was read
        (np.eye(2, DIM), [0, 1]),  # one image each
        (np.ones((6, DIM)), [0, 0, 0, 1, 1, 1]),  # all the same
    ],
)
def test_too_little_to_measure(features, category) -> None:
    centres = lda.Centroids.measure(features, np.array(category), 2)
    for name in ("mean", "whiten", "cosine"):
        assert np.isfinite(getattr(centres, name)).all()
    _, typicality, _ = centres.judge(np.ones((1, DIM)), np.array([0]))
    assert 0 <= typicality[0] <= 1
