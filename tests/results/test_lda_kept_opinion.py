"""What is kept of the second opinion says of later images what the whole discriminant says."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.results.lda import CrossFitLDA, LinearHead, center_rows, softmax
from tests.results.test_calibration import K, world


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
