"""The judge of the second opinion: it learns what a plain formula says, and judges no image that it has seen."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.results.lda import (
    FLOOR,
    FOLDS,
    SHRINKAGE,
    CrossFitLDA,
    LDAStats,
    LinearHead,
    assign_folds,
    can_calibrate,
    center_rows,
    log_pool,
    own_class_share,
    softmax,
)
from tests.results.test_calibration import K, world


def test_shares_are_a_softmax_that_knows_of_nothing() -> None:
    logits = np.array([[1.0, 2.0, -np.inf], [800.0, 0.0, 1.0], [-np.inf, -np.inf, -np.inf]])
    found = softmax(logits)
    assert found[0] == pytest.approx([1 / (1 + np.e), np.e / (1 + np.e), 0])
    assert found[1] == pytest.approx([1, 0, 0])
    assert found[2].tolist() == [0, 0, 0]
    assert own_class_share(logits, [1, 0, 2]) == pytest.approx([np.e / (1 + np.e), 1, 0])


def test_the_pool_is_the_root_of_both() -> None:
    p, v = np.array([[0.7, 0.2, 0.1]]), np.array([[0.0, 0.9, 0.1]])
    both = np.sqrt((v + FLOOR) * p)
    np.testing.assert_allclose(softmax(log_pool(np.log(p), v)), both / both.sum())
    silent = np.full((1, 3), np.nan)
    np.testing.assert_allclose(softmax(log_pool(np.log(p), silent)), p)


def test_votes_make_an_image_likelier_where_they_are_and_less_elsewhere() -> None:
    class Cast:
        def __init__(self, category: np.ndarray) -> None:
            self.category = category

        def shares(self, images: np.ndarray) -> np.ndarray:
            return np.eye(K)[self.category[images]]

    embedded, category, target, _ = world()
    opinion = CrossFitLDA(embedded, category, K)
    alone, heat = opinion.form(target), opinion.heat
    for_it = opinion.own(np.full(K, heat), Cast(category))
    against = opinion.own(np.full(K, heat), Cast((category + 1) % K))
    assert (for_it > against).all()
    assert for_it.mean() > alone.mean() > against.mean()


def test_every_category_is_spread_over_the_folds() -> None:
    placed = np.repeat([0, 1, -1, 2], [30, 3, 4, 25])
    fold = assign_folds(placed, 4, np.random.default_rng(0))
    assert (fold[placed < 0] == -1).all()
    assert np.bincount(fold[placed == 0]).tolist() == [3] * FOLDS
    assert len(set(fold[placed == 1])) == 3


def test_a_judge_scores_by_distance_to_means() -> None:
    """Against the formula, one image and one category at a time."""
    random = np.random.default_rng(0)
    u, category = random.normal(size=(60, 4)), np.arange(60) % 3
    weight = random.uniform(0.1, 1, 60)
    judge = LDAStats.of(u, category, weight, 4).judge()
    means = [np.average(u[category == c], axis=0, weights=weight[category == c]) for c in range(3)]
    rest = u - np.array(means)[category]
    scatter = (rest * weight[:, None]).T @ rest / weight.sum()
    share = max(SHRINKAGE, 4 / 64)
    inverse = np.linalg.inv((1 - share) * scatter + share * np.trace(scatter) / 4 * np.eye(4))
    scores = judge.scores(u)
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
    opinion = CrossFitLDA(embedded, category, K + 1)
    weight = np.random.default_rng(0).uniform(0.01, 1, len(category))
    weight[target >= 0] = 0.0
    opinion.learn(weight)
    u = opinion.unit(opinion.taught)
    for f, judge in enumerate(opinion.judges):
        rows = opinion.fold != f
        alone = LDAStats.of(u[rows], category[rows], weight[rows], K + 1).judge()
        np.testing.assert_allclose(judge.scores(u), alone.scores(u), rtol=1e-6, atol=1e-6)
    assert np.isneginf(opinion.judges[opinion.fold[7]].offset[K])


def test_labels_are_enough_from_twenty_on() -> None:
    assert can_calibrate(np.array([0, 1] * 10))
    assert not can_calibrate(np.array([0, 1] * 9 + [0]))
    assert not can_calibrate(np.array([0] * 30 + [1]))
    assert not can_calibrate(np.full(5, -1))


def formed() -> tuple[CrossFitLDA, np.ndarray]:
    embedded, category, target, _ = world()
    opinion = CrossFitLDA(embedded, category, K + 1)  # of the last one there is no image
    opinion.form(target)
    return opinion, embedded


def test_it_is_the_discriminant_that_all_folds_teach() -> None:
    """Against the formula with squares, at the temperature that was found."""
    opinion, embedded = formed()
    new = embedded[:50] + np.random.default_rng(3).normal(0, 0.3, (50, embedded.shape[1]))
    judge, u = opinion.whole.judge(), center_rows(new, opinion.middle)
    expected = softmax(judge.scores(u) / opinion.heat)
    found = opinion.kept().shares(new)
    assert opinion.heat != 1
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.sum(axis=1) == pytest.approx(1)
    assert (found[:, K] == 0).all()


def test_it_knows_images_that_it_has_not_seen() -> None:
    embedded, category, target, _ = world()
    there = np.arange(len(category)) % 4 != 0
    opinion = CrossFitLDA(embedded[there], category[there], K)
    opinion.form(target[there])
    said = opinion.kept().shares(embedded[~there]).argmax(axis=1)
    assert (said == category[~there]).mean() > 0.8


def test_neither_length_nor_a_shift_of_all_images_matters() -> None:
    opinion, embedded = formed()
    shifted = LinearHead(opinion.kept().middle + 5, opinion.kept().slope, opinion.kept().offset)
    np.testing.assert_allclose(
        shifted.shares(embedded[:20] + 5), opinion.kept().shares(embedded[:20]), atol=1e-4
    )
    middle = opinion.kept().middle
    np.testing.assert_allclose(
        opinion.kept().shares(middle + 3 * (embedded[:20] - middle)),
        opinion.kept().shares(embedded[:20]),
        atol=1e-4,
    )


def test_nothing_is_said_of_categories_of_which_nothing_is_known() -> None:
    assert softmax(np.array([[-np.inf, 0.0, 0.0], [-np.inf, -np.inf, -np.inf]])).tolist() == [
        [0, 0.5, 0.5],
        [0, 0, 0],
    ]
