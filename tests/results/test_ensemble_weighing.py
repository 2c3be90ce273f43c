"""Votes and the second opinion: each corrects what the other errs in, and neither decides alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from holotype.results.ensemble import Consensus, Training, VoteShares, pool_with_lda, vote_consensus
from holotype.results.lda import FLOOR, CrossFitLDA, softmax
from tests.results.test_calibration import KNOWN, K, world


def voted(seed: int, wrong: float = 0.4) -> tuple[Consensus, np.ndarray, np.ndarray, np.ndarray]:
    """Seven trainings that are each wrong about `wrong` of the images, without looking at them."""
    embedded, _, target, truth = world(seed, apart=1.2)
    random = np.random.default_rng(seed)
    voices = []
    for _ in range(7):
        astray = random.random(len(truth)) < wrong
        category = np.where(astray, random.integers(0, K, len(truth)), truth)
        voices.append(Training(category, random.uniform(0.5, 1, len(truth)).astype(np.float32)))
    return vote_consensus(voices, KNOWN, K), embedded, target, truth


def named(together: Consensus, truth: np.ndarray) -> np.ndarray:
    """The truth by the numbers of the outcome: new categories have any."""
    table = np.zeros((K, K))
    np.add.at(table, (truth, together.category), 1)
    return table.argmax(1)[truth]


@pytest.mark.parametrize("seed", range(3))
def test_the_opinion_puts_right_what_votes_leave_open(seed: int) -> None:
    together, embedded, target, truth = voted(seed, wrong=0.7)
    own, free = named(together, truth), target < 0
    before, after = (
        (one.category == own)[free].mean() for one in (together, pool_with_lda(together, embedded, target, K))
    )
    assert after > before + 0.03


def test_what_all_trainings_agree_on_stays() -> None:
    """Whatever the opinion says: here it has been told nonsense."""
    together, embedded, target, _ = voted(0)
    certain = together.share > 1 - 1e-6
    assert certain.sum() > 20
    noise = np.random.default_rng(9).normal(size=embedded.shape).astype(np.float32)
    found = pool_with_lda(together, noise, target, K)
    assert (found.category == together.category)[certain].all()


def test_labels_and_images_that_are_placed_nowhere_stay() -> None:
    together, embedded, target, _ = voted(1)
    nowhere = np.arange(len(target)) % 50 == 7
    together = dataclasses.replace(
        together,
        category=np.where(nowhere, -1, together.category),
        trainings=np.where(nowhere, -1, together.trainings),
        share=np.where(nowhere, np.nan, together.share),
    )
    found = pool_with_lda(together, embedded, target, K)
    still = nowhere | (target >= 0)
    np.testing.assert_array_equal(found.category[still], together.category[still])
    assert (np.isnan(found.share) == nowhere).all()
    assert found.carrier == together.carrier


def test_one_round_is_what_the_formula_says(monkeypatch) -> None:
    monkeypatch.setattr("holotype.results.ensemble.POOL_ROUNDS", 1)
    together, embedded, target, _ = voted(2)
    found = pool_with_lda(together, embedded, target, K)
    opinion = CrossFitLDA(embedded, np.where(target >= 0, target, together.category), K)
    opinion.form(target)
    p = np.zeros((len(target), K))
    for part, scores in opinion.scores(np.arange(len(target))):
        p[part] = softmax(scores / opinion.heat)
    for row in np.flatnonzero(target < 0)[:100]:
        v = np.zeros(K)
        for category, weight in zip(together.trainings[:, row], together.weight[:, row], strict=True):
            v[category] += weight / together.weight[:, row].sum()
        best = max(range(K), key=lambda c, row=row, v=v: (v[c] + FLOOR) * (p[row, c] + FLOOR))
        assert found.category[row] == best
        assert found.share[row] == pytest.approx(v[best], abs=1e-6)


def test_the_share_of_agreement_is_that_of_the_new_places() -> None:
    together, embedded, target, _ = voted(0, wrong=0.6)
    found = pool_with_lda(together, embedded, target, K)
    assert (found.category != together.category).any()
    assert found.agreed == pytest.approx([(one == found.category).mean() for one in together.trainings])


def test_votes_of_some_images_are_known_among_all() -> None:
    together, *_ = voted(0)
    n = len(together.category)
    rows = np.random.default_rng(0).permutation(2 * n)[:n]
    own, among = VoteShares.of(together, K), VoteShares.of(together, K).spread(rows, 2 * n)
    np.testing.assert_array_equal(among.shares(rows), own.shares(np.arange(n)))
    others = np.setdiff1d(np.arange(2 * n), rows)
    assert np.isnan(among.shares(others)).all()
    assert own.shares(np.arange(n)).sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_a_category_of_one_image_keeps_it_where_all_have_voted_so() -> None:
    """Nobody else can tell what it looks like: the opinion of it is 0."""
    together, embedded, target, _ = voted(1)
    row = int(np.flatnonzero(target < 0)[0])
    odd = dataclasses.replace(
        together, category=together.category.copy(), trainings=together.trainings.copy()
    )
    odd.category[row] = odd.trainings[:, row] = K
    assert pool_with_lda(odd, embedded, target, K + 1).category[row] == K
