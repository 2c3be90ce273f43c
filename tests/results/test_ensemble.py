"""What several trainings agree on: categories are matched whatever their numbers, and the many overrule the few."""

import copy
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
    VoteShares,
    category_stability,
    match_categories,
    match_partitions,
    pool_with_lda,
    rename_to_match,
    stability_summary,
    stability_text,
    vote_consensus,
)
from holotype.results.lda import FLOOR, CrossFitLDA, softmax
from tests.discovery.made_round import made_discovery
from tests.results.test_calibration import KNOWN as WORLD_KNOWN
from tests.results.test_calibration import K as WORLD_K
from tests.results.test_calibration import world

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
    assert (found.category == shuffled(TRUE, found.carrier)).all()
    assert (found.trainings == found.category).all()
    assert (*found.agreed, *found.share) == pytest.approx([1] * (4 + len(TRUE)))


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
    for sure, wins in ((0.95, 1), (0.5, 0)):
        each = [training(TRUE, 0.3), training(other, sure), training(TRUE, 0.3)]
        assert vote_consensus(each, KNOWN, K).category[0] == wins


MISLED = np.array([[*map(int, row)] for row in ("00101101", "00100001", "01111110", "01101010", "10110100")])
"""Five trainings with two new categories. The one nearest to all others leads to 28 votes of 40 that win."""


def winning(found: Consensus, trainings: list[Training]) -> float:
    """The sum of the votes that are for the outcome."""
    pairs = zip(trainings, found.trainings, strict=True)
    return sum(float(one.probability[said == found.category].sum()) for one, said in pairs)


def test_the_start_that_leads_to_most_votes_is_taken(monkeypatch) -> None:
    each = [training(one, 1.0) for one in MISLED]
    namings = itertools.product(*([one, 1 - one] for one in MISLED))
    best = max(sum(np.bincount(image).max() for image in np.stack(named).T) for named in namings)
    assert winning(vote_consensus(each, 0, 2), each) == best == 30
    every = ensemble._initial_partitions
    monkeypatch.setattr(ensemble, "_initial_partitions", lambda *given: every(*given)[:1])
    assert winning(vote_consensus(each, 0, 2), each) == 28


@pytest.mark.parametrize("n_known", [0, KNOWN])
def test_the_order_of_the_trainings_does_not_matter(n_known: int) -> None:
    random, k = np.random.default_rng(3), K if n_known else 2
    given = [shuffled(spoilt(TRUE, 60, seed), seed) for seed in range(5)] if n_known else MISLED
    each = [Training(one, random.uniform(0.1, 1, len(one))) for one in given]
    expected = winning(vote_consensus(each, n_known, k), each)
    for first in range(1, 5):
        turned = each[first:] + each[:first]
        assert winning(vote_consensus(turned, n_known, k), turned) == pytest.approx(expected)


def test_the_outcome_is_counted_as_the_carrier_does() -> None:
    noisy = [shuffled(spoilt(TRUE, 40, seed), seed) for seed in range(6)]
    for given, n_known, k in ((MISLED, 0, 2), (noisy, KNOWN, K)):
        found = vote_consensus([training(one) for one in given], n_known, k)
        assert found.carrier == int(found.agreed.argmax())
        assert (found.trainings[found.carrier] == given[found.carrier]).all()
        assert (found.category == given[found.carrier]).mean() == pytest.approx(found.agreed[found.carrier])


def test_one_training_agrees_with_itself() -> None:
    alone = np.where(np.arange(len(TRUE)) % 9 == 0, -1, shuffled(spoilt(TRUE, 30, 1), 1))
    found = vote_consensus([training(alone, 0.4)], KNOWN, K)
    assert (found.carrier, *found.agreed) == (0, 1)
    assert (found.category == alone).all()
    assert (found.trainings == alone).all()
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
    found, stable = made_discovery("r", groups), [(5, 1.0), (5, 0.934), (2, 0.4), (3, 0.7)]
    for category, (times, together) in zip(found.categories, stable, strict=True):
        category.comes_back, category.together = times, together
    agreement = (0.7, 0.8, 0.916, 0.9, 0.8)
    facts = dataclasses.replace(found.facts, trainings=(0, 1, 2, 3, 4), agreement=agreement, seed=2)
    return dataclasses.replace(found, facts=facts)


def test_what_comes_back_is_told() -> None:
    found = five_trainings()
    assert stability_text(found.category("new-01"), 5).startswith("Comes back in 5 of 5 trainings; 93 % of")
    assert stability_text(found.category("new-01"), 0) == ""
    _, second, third, fourth = stability_summary(found)
    assert "seed 2, which agrees on 92 %" in second
    assert "in every training: 1 of 3." in third
    assert fourth.endswith("look twice: new-02 (2 of 5).")
    merged = apply_edits(found, [Edit("r", "t", "merge", "", "new-02", "new-01")]).discovery
    assert stability_text(merged.category("new-01"), 5) == ""  # it is another one now
    assert stability_text(merged.category("new-03"), 5) != ""
    alone = made_discovery("r", {"a": list(range(12))})  # one training is no vote
    assert stability_summary(alone) == []  # k-means, without a step
    alone = dataclasses.replace(alone, facts=dataclasses.replace(alone.facts, steps=20))
    assert stability_summary(alone) == ["One training."]


def test_the_best_pairs_in_sum_are_taken() -> None:
    earlier = {"new-01": set("abcd"), "new-02": set("efgh"), "new-03": set("ij")}
    assert match_categories(earlier, {5: set("fghk"), 6: set("abcde")}) == {6: "new-01", 5: "new-02"}
    # either could be new-01, but only one of them is
    assert match_categories({"new-01": set("abcdef")}, {1: set("abcd"), 2: set("ef")}) == {1: "new-01"}


def voted(seed: int, wrong: float = 0.4) -> tuple[Consensus, np.ndarray, np.ndarray, np.ndarray]:
    """Seven trainings that are each wrong about `wrong` of the images, without looking at them."""
    embedded, _, target, truth = world(seed, apart=1.2)
    random = np.random.default_rng(seed)
    voices = []
    for _ in range(7):
        astray = random.random(len(truth)) < wrong
        category = np.where(astray, random.integers(0, WORLD_K, len(truth)), truth)
        voices.append(Training(category, random.uniform(0.5, 1, len(truth)).astype(np.float32)))
    return vote_consensus(voices, WORLD_KNOWN, WORLD_K), embedded, target, truth


def named(together: Consensus, truth: np.ndarray) -> np.ndarray:
    """The truth by the numbers of the outcome: new categories have any."""
    table = np.zeros((WORLD_K, WORLD_K))
    np.add.at(table, (truth, together.category), 1)
    return table.argmax(1)[truth]


@pytest.mark.parametrize("seed", range(3))
def test_the_opinion_puts_right_what_votes_leave_open(seed: int) -> None:
    together, embedded, target, truth = voted(seed, wrong=0.7)
    own, free = named(together, truth), target < 0
    pooled = pool_with_lda(together, embedded, target, WORLD_K)
    assert (pooled.category == own)[free].mean() > (together.category == own)[free].mean() + 0.03


def test_what_all_trainings_agree_on_stays() -> None:
    """Whatever the opinion says: here it has been told nonsense."""
    together, embedded, target, _ = voted(0)
    certain = together.share > 1 - 1e-6
    assert certain.sum() > 20
    noise = np.random.default_rng(9).normal(size=embedded.shape).astype(np.float32)
    found = pool_with_lda(together, noise, target, WORLD_K)
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
    found = pool_with_lda(together, embedded, target, WORLD_K)
    still = nowhere | (target >= 0)
    np.testing.assert_array_equal(found.category[still], together.category[still])
    assert (np.isnan(found.share) == nowhere).all()
    assert found.carrier == together.carrier


def test_one_round_is_what_the_formula_says(monkeypatch) -> None:
    monkeypatch.setattr("holotype.results.ensemble.POOL_ROUNDS", 1)
    together, embedded, target, _ = voted(2)
    found = pool_with_lda(together, embedded, target, WORLD_K)
    opinion = CrossFitLDA(embedded, np.where(target >= 0, target, together.category), WORLD_K)
    opinion.form(target)
    p = np.zeros((len(target), WORLD_K))
    for part, scores in opinion.scores(np.arange(len(target))):
        p[part] = softmax(scores / opinion.heat)
    for row in np.flatnonzero(target < 0)[:100]:
        v = np.zeros(WORLD_K)
        for category, weight in zip(together.trainings[:, row], together.weight[:, row], strict=True):
            v[category] += weight / together.weight[:, row].sum()
        best = max(range(WORLD_K), key=lambda c, row=row, v=v: (v[c] + FLOOR) * (p[row, c] + FLOOR))
        assert found.category[row] == best
        assert found.share[row] == pytest.approx(v[best], abs=1e-6)


def test_the_share_of_agreement_is_that_of_the_new_places() -> None:
    together, embedded, target, _ = voted(0, wrong=0.6)
    found = pool_with_lda(together, embedded, target, WORLD_K)
    assert (found.category != together.category).any()
    assert found.agreed == pytest.approx([(one == found.category).mean() for one in together.trainings])


def test_votes_of_some_images_are_known_among_all() -> None:
    together, *_ = voted(0)
    n = len(together.category)
    rows = np.random.default_rng(0).permutation(2 * n)[:n]
    own, among = VoteShares.of(together, WORLD_K), VoteShares.of(together, WORLD_K).spread(rows, 2 * n)
    np.testing.assert_array_equal(among.shares(rows), own.shares(np.arange(n)))
    others = np.setdiff1d(np.arange(2 * n), rows)
    assert np.isnan(among.shares(others)).all()
    assert own.shares(np.arange(n)).sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_a_category_of_one_image_keeps_it_where_all_have_voted_so() -> None:
    """Nobody else can tell what it looks like: the opinion of it is 0."""
    together, embedded, target, _ = voted(1)
    row = int(np.flatnonzero(target < 0)[0])
    odd = copy.deepcopy(together)
    odd.category[row] = odd.trainings[:, row] = WORLD_K
    assert pool_with_lda(odd, embedded, target, WORLD_K + 1).category[row] == WORLD_K
