"""What several trainings agree on: categories are matched whatever their numbers, and the many overrule the few."""

from __future__ import annotations

import dataclasses
import itertools
import tracemalloc

import numpy as np
import pytest

from holotype.results import ensemble
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, apply_edits
from holotype.results.ensemble import (
    Consensus,
    Training,
    category_stability,
    match_categories,
    match_partitions,
    rename_to_match,
    stability_summary,
    stability_text,
    vote_consensus,
)
from tests.discovery.made_round import made_discovery

KNOWN, K = 2, 5
TRUE = np.repeat(np.arange(K), 20)


def shuffled(category: np.ndarray, seed: int) -> np.ndarray:
    """The same categories with the new ones under other numbers."""
    named = np.append(np.arange(KNOWN), KNOWN + np.random.default_rng(seed).permutation(K - KNOWN))
    return rename_to_match(category, named, K)


def spoilt(category: np.ndarray, n: int, seed: int) -> np.ndarray:
    random, found = np.random.default_rng(seed), category.copy()
    rows = random.permutation(len(found))[:n]
    found[rows] = random.integers(0, K, n)
    return found


def training(category: np.ndarray, sure: float = 0.9) -> Training:
    return Training(category, np.where(category >= 0, sure, np.nan))


def test_the_numbers_of_new_categories_do_not_matter() -> None:
    found = vote_consensus([training(shuffled(TRUE, seed)) for seed in range(4)], KNOWN, K)
    carrier = shuffled(TRUE, found.carrier)
    assert (found.category == carrier).all()
    assert (found.trainings == carrier).all()
    assert found.agreed == pytest.approx(1)
    assert found.share == pytest.approx(1)


def test_mistakes_of_single_trainings_are_outvoted() -> None:
    each = [shuffled(spoilt(TRUE, 25, seed), seed) for seed in range(5)]
    found = vote_consensus([training(one) for one in each], KNOWN, K)
    named = match_partitions(np.eye(K)[found.category], TRUE, np.ones(len(TRUE)), KNOWN)
    right = (rename_to_match(TRUE, named, K) == found.category).mean()
    assert right > 0.97
    assert max((rename_to_match(TRUE, named, K) == one).mean() for one in found.trainings) < right
    assert found.carrier == int(found.agreed.argmax())


def test_known_classes_are_never_renamed() -> None:
    """A training that has swapped two known classes is wrong about them, and does not name them otherwise."""
    swapped = np.where(TRUE == 0, 1, np.where(TRUE == 1, 0, TRUE))
    found = vote_consensus([training(TRUE), training(swapped), training(TRUE)], KNOWN, K)
    assert (found.category == TRUE).all()
    assert found.agreed[1] == pytest.approx(0.6)


def test_a_vote_weighs_as_much_as_it_is_sure() -> None:
    other = np.where(np.arange(len(TRUE)) == 0, 1, TRUE)
    each = [training(TRUE, 0.3), training(other, 0.95), training(TRUE, 0.3)]
    assert vote_consensus(each, KNOWN, K).category[0] == 1
    assert (
        vote_consensus([training(TRUE, 0.3), training(other, 0.5), training(TRUE, 0.3)], KNOWN, K).category[0]
        == 0
    )


MISLED = np.array(
    [
        [0, 0, 1, 0, 1, 1, 0, 1],
        [0, 0, 1, 0, 0, 0, 0, 1],
        [0, 1, 1, 1, 1, 1, 1, 0],
        [0, 1, 1, 0, 1, 0, 1, 0],
        [1, 0, 1, 1, 0, 1, 0, 0],
    ]
)
"""Five trainings with two new categories. The one nearest to all others leads to 28 votes of 40 that win."""


def winning(found: Consensus, trainings: list[Training]) -> float:
    """The sum of the votes that are for the outcome."""
    return sum(
        float(one.probability[said == found.category].sum())
        for one, said in zip(trainings, found.trainings, strict=True)
    )


def test_the_start_that_leads_to_most_votes_is_taken(monkeypatch) -> None:
    each = [training(one, 1.0) for one in MISLED]
    namings = itertools.product(*([one, 1 - one] for one in MISLED))
    best = max(sum(np.bincount(image).max() for image in np.stack(named).T) for named in namings)
    assert winning(vote_consensus(each, 0, 2), each) == best == 30
    every = ensemble._initial_partitions
    monkeypatch.setattr(ensemble, "_initial_partitions", lambda *given: every(*given)[:1])
    assert winning(vote_consensus(each, 0, 2), each) == 28


def test_where_no_start_is_better_the_nearest_training_is_taken(monkeypatch) -> None:
    """All five lead to the same votes; with one of them alone the outcome is the same to the last bit."""
    each = [training(shuffled(spoilt(TRUE, 25, seed), seed), 0.5 + 0.1 * seed) for seed in range(5)]
    found, every = vote_consensus(each, KNOWN, K), ensemble._initial_partitions
    monkeypatch.setattr(ensemble, "_initial_partitions", lambda *given: every(*given)[:1])
    alone = vote_consensus(each, KNOWN, K)
    assert found.carrier == alone.carrier
    for name in ("category", "share", "trainings", "agreed"):
        np.testing.assert_array_equal(getattr(found, name), getattr(alone, name))


@pytest.mark.parametrize("first", range(5))
def test_the_order_of_the_trainings_does_not_matter(first: int) -> None:
    random = np.random.default_rng(3)
    made = [(Training(one, random.uniform(0.8, 1, len(one))), 0, 2) for one in MISLED]
    noisy = [
        (Training(shuffled(spoilt(TRUE, 60, s), s), random.random(len(TRUE))), KNOWN, K) for s in range(5)
    ]
    for some in (made, noisy):
        each, (_, n_known, k) = [one for one, _, _ in some], some[0]
        turned = each[first:] + each[:first]
        expected = winning(vote_consensus(each, n_known, k), each)
        assert winning(vote_consensus(turned, n_known, k), turned) == pytest.approx(expected)


def test_the_outcome_is_counted_as_the_carrier_does() -> None:
    for given, n_known, k in (
        (MISLED, 0, 2),
        ([shuffled(spoilt(TRUE, 40, s), s) for s in range(6)], KNOWN, K),
    ):
        found = vote_consensus([training(one) for one in given], n_known, k)
        assert found.carrier == int(found.agreed.argmax())
        assert (found.trainings[found.carrier] == given[found.carrier]).all()
        assert (found.category == given[found.carrier]).mean() == pytest.approx(found.agreed[found.carrier])


def test_one_training_agrees_with_itself() -> None:
    alone = np.where(np.arange(len(TRUE)) % 9 == 0, -1, shuffled(spoilt(TRUE, 30, 1), 1))
    found = vote_consensus([training(alone, 0.4)], KNOWN, K)
    assert found.carrier == 0
    assert (found.category == alone).all()
    assert (found.trainings == alone).all()
    assert found.agreed == pytest.approx(1)
    assert found.share[alone >= 0] == pytest.approx(1)


def test_the_votes_of_all_starts_are_never_held_at_once() -> None:
    random = np.random.default_rng(0)
    true = random.integers(0, 100, 5_000)
    each = [np.where(random.random(5_000) < 0.2, random.integers(0, 100, 5_000), true) for _ in range(8)]
    vote_consensus([training(one) for one in each[:2]], 10, 100)  # what is imported on the way does not count
    tracemalloc.start()
    vote_consensus([training(one) for one in each], 10, 100)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    votes = 5_000 * 100 * 4
    assert most < 4 * votes


@pytest.mark.parametrize("n_known", [0, KNOWN, K])
def test_images_that_some_or_all_place_nowhere(n_known: int) -> None:
    nowhere, some = np.full(len(TRUE), -1), np.where(np.arange(len(TRUE)) < 10, -1, TRUE)
    found = vote_consensus([training(nowhere), training(some), training(TRUE)], n_known, K)
    assert (found.category == TRUE).all()
    found = vote_consensus([training(nowhere), training(nowhere)], n_known, K)
    assert (found.category == -1).all()
    assert np.isnan(found.share).all()


def test_a_category_that_others_have_parted_does_not_come_back() -> None:
    """Category 4 is found by two of four trainings; the others spread it over the rest."""
    gone = np.where(TRUE == 4, np.arange(len(TRUE)) % 4, TRUE)
    found = category_stability(TRUE, np.stack([TRUE, TRUE, gone, gone]), K)
    assert [one.times for one in found] == [4, 4, 4, 4, 2]
    assert found[0].together == 1
    assert found[4].together == pytest.approx((1 + 1 + 0.25 + 0.25) / 4)
    labelled = category_stability(np.where(TRUE == 0, -1, TRUE), np.stack([TRUE, TRUE]), K)
    assert (labelled[0].times, np.isnan(labelled[0].together), labelled[1].times) == (0, True, 2)


def five_trainings() -> Discovery:
    groups = {"a": [0, 1], "new-01": [2, 3, 4, 5], "new-02": [6, 7, 8], "new-03": [9, 10, 11]}
    found = made_discovery("r", groups)
    for category, (times, together) in zip(
        found.categories, [(5, 1.0), (5, 0.934), (2, 0.4), (3, 0.7)], strict=True
    ):
        category.comes_back, category.together = times, together
    facts = dataclasses.replace(
        found.facts, trainings=(0, 1, 2, 3, 4), agreement=(0.7, 0.8, 0.916, 0.9, 0.8), seed=2
    )
    return dataclasses.replace(found, facts=facts)


def test_what_comes_back_is_told() -> None:
    found = five_trainings()
    assert stability_text(found.category("new-01"), 5).startswith("Comes back in 5 of 5 trainings; 93 % of")
    assert stability_text(found.category("new-01"), 0) == ""
    first, second, third, fourth = stability_summary(found)
    assert first == "5 trainings vote; --seeds changes it."
    assert "seeds 0 to 4). The model of the one with seed 2, which agrees on 92 %" in second
    assert "in every training: 1 of 3." in third
    assert fourth.endswith("look twice: new-02 (2 of 5).")
    facts = dataclasses.replace(found.facts, methods=("rpc", "uno", "gcd"), method="rpc")
    turns = stability_summary(dataclasses.replace(found, facts=facts))[1]
    assert "; rpc, uno and gcd in turn). The model of rpc with seed 2" in turns


def test_one_training_is_no_vote() -> None:
    found = made_discovery("r", {"a": list(range(12))})
    of_train, of_discover = (
        dataclasses.replace(found, facts=dataclasses.replace(found.facts, round=round)) for round in (0, 1)
    )
    assert stability_summary(of_train) == []
    assert (
        [line for line in stability_summary(of_discover) if "--seeds" in line]
        == stability_summary(of_discover)
        != []
    )


def test_a_merged_category_is_another_one() -> None:
    found = apply_edits(five_trainings(), [Edit("r", "t", "merge", "", "new-02", "new-01")]).discovery
    assert stability_text(found.category("new-01"), 5) == ""
    assert stability_text(found.category("new-03"), 5) != ""


def test_the_best_pairs_in_sum_are_taken() -> None:
    earlier = {"new-01": set("abcd"), "new-02": set("efgh"), "new-03": set("ij")}
    assert match_categories(earlier, {5: set("fghk"), 6: set("abcde")}) == {6: "new-01", 5: "new-02"}
    # either could be new-01, but only one of them is
    assert match_categories({"new-01": set("abcdef")}, {1: set("abcd"), 2: set("ef")}) == {1: "new-01"}
