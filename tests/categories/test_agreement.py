"""What several trainings agree on: categories are matched whatever their numbers, and the many overrule the few."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.categories.agreement import Training, agree, match, rename, returns

KNOWN, K = 2, 5
TRUE = np.repeat(np.arange(K), 20)


def shuffled(category: np.ndarray, seed: int) -> np.ndarray:
    """The same categories with the new ones under other numbers."""
    named = np.append(np.arange(KNOWN), KNOWN + np.random.default_rng(seed).permutation(K - KNOWN))
    return rename(category, named, K)


def spoilt(category: np.ndarray, n: int, seed: int) -> np.ndarray:
    random, found = np.random.default_rng(seed), category.copy()
    rows = random.permutation(len(found))[:n]
    found[rows] = random.integers(0, K, n)
    return found


def training(category: np.ndarray, sure: float = 0.9) -> Training:
    return Training(category, np.where(category >= 0, sure, np.nan))


def test_the_numbers_of_new_categories_do_not_matter() -> None:
    found = agree([training(shuffled(TRUE, seed)) for seed in range(4)], KNOWN, K)
    carrier = shuffled(TRUE, found.carrier)
    assert (found.category == carrier).all()
    assert (found.trainings == carrier).all()
    assert found.agreed == pytest.approx(1)
    assert found.share == pytest.approx(1)


def test_mistakes_of_single_trainings_are_outvoted() -> None:
    each = [shuffled(spoilt(TRUE, 25, seed), seed) for seed in range(5)]
    found = agree([training(one) for one in each], KNOWN, K)
    named = match(np.eye(K)[found.category], TRUE, 1.0, KNOWN)
    right = (rename(TRUE, named, K) == found.category).mean()
    assert right > 0.97
    assert max((rename(TRUE, named, K) == one).mean() for one in found.trainings) < right
    assert found.carrier == int(found.agreed.argmax())


def test_known_classes_are_never_renamed() -> None:
    """A training that has swapped two known classes is wrong about them, and does not name them otherwise."""
    swapped = np.where(TRUE == 0, 1, np.where(TRUE == 1, 0, TRUE))
    found = agree([training(TRUE), training(swapped), training(TRUE)], KNOWN, K)
    assert (found.category == TRUE).all()
    assert found.agreed[1] == pytest.approx(0.6)


def test_a_vote_weighs_as_much_as_it_is_sure() -> None:
    other = np.where(np.arange(len(TRUE)) == 0, 1, TRUE)
    each = [training(TRUE, 0.3), training(other, 0.95), training(TRUE, 0.3)]
    assert agree(each, KNOWN, K).category[0] == 1
    assert agree([training(TRUE, 0.3), training(other, 0.5), training(TRUE, 0.3)], KNOWN, K).category[0] == 0


def test_an_image_that_is_placed_nowhere_stays_there() -> None:
    unread = np.where(np.arange(len(TRUE)) == 7, -1, TRUE)
    found = agree([training(unread), training(shuffled(unread, 1))], KNOWN, K)
    assert found.category[7] == -1
    assert np.isnan(found.share[7])
    assert (np.delete(found.category, 7) >= 0).all()


def test_a_category_that_others_have_parted_does_not_come_back() -> None:
    """Category 4 is found by two of four trainings; the others spread it over the rest."""
    gone = np.where(TRUE == 4, np.arange(len(TRUE)) % 4, TRUE)
    found = returns(TRUE, np.stack([TRUE, TRUE, gone, gone]), K)
    assert [one.times for one in found] == [4, 4, 4, 4, 2]
    assert found[0].together == 1
    assert found[4].together == pytest.approx((1 + 1 + 0.25 + 0.25) / 4)


def test_a_category_without_free_images_says_nothing() -> None:
    labelled = np.where(TRUE == 0, -1, TRUE)
    found = returns(labelled, np.stack([TRUE, TRUE]), K)
    assert found[0].times == 0
    assert np.isnan(found[0].together)
    assert found[1].times == 2
