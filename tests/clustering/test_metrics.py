"""Scores: brute force over permutations, golden numbers, invariances, and what `score` reads from a table."""

import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holotype.clustering.metrics import (
    balanced_accuracy,
    clustering_accuracy,
    score,
    separate_accuracy,
)
from holotype.data.table import Table
from holotype.errors import InputError

GOLDEN = dict(np.load(Path(__file__).parents[1] / "parity/cluster_acc.npz", allow_pickle=False))
CASES = sorted({key.split(".")[0] for key in GOLDEN})


def brute_force(true: list[int], predicted: list[int]) -> float:
    size = max(*true, *predicted) + 1
    pairs = list(zip(true, predicted, strict=True))
    return max(sum(order[p] == y for y, p in pairs) for order in permutations(range(size))) / len(pairs)


column = lambda n: st.lists(st.integers(0, 5), min_size=n, max_size=n)  # noqa: E731
labels = st.integers(1, 40).flatmap(lambda n: st.tuples(column(n), column(n)))


@given(labels, st.integers(0, 6))
def test_all_is_the_best_of_all_permutations(both, n_known) -> None:
    true, predicted = both
    result = clustering_accuracy(true, predicted, n_known)  # its constructor checks All = r Old + (1 - r) New
    assert result.all == pytest.approx(brute_force(true, predicted), abs=1e-12)
    by_hand = [result.assignment[p] == y for y, p in zip(true, predicted, strict=True)]
    assert result.all == pytest.approx(np.mean(by_hand), abs=1e-12)
    assert (result.old is None) == all(y >= n_known for y in true)
    assert (result.new is None) == all(y < n_known for y in true)


@given(labels, st.permutations(range(9)))
def test_names_of_categories_do_not_matter(both, names) -> None:
    true, predicted = both
    renamed = clustering_accuracy(true, [names[p] for p in predicted], 3)
    assert renamed.all == pytest.approx(clustering_accuracy(true, predicted, 3).all, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_golden(case) -> None:
    true, predicted = GOLDEN[f"{case}.y_true"], GOLDEN[f"{case}.y_pred"]
    n_known = int(GOLDEN[f"{case}.num_old"])
    ours = clustering_accuracy(true, predicted, n_known)
    np.testing.assert_allclose([ours.all, ours.old, ours.new], GOLDEN[f"{case}.v2"], atol=1e-12)
    np.testing.assert_allclose(separate_accuracy(true, predicted, n_known), GOLDEN[f"{case}.v1"], atol=1e-12)
    np.testing.assert_allclose(balanced_accuracy(true, predicted, n_known), GOLDEN[f"{case}.v2b"], atol=1e-12)


def table(truth: list[str] | None, label: list[str], problem: list[str] | None = None) -> Table:
    n = len(label)
    return Table(
        path=np.array([f"{i}.png" for i in range(n)], dtype=object),
        label=np.array(label, dtype=object),
        known=("wren", "crow"),
        truth=None if truth is None else np.array(truth, dtype=object),
        problem=np.array(problem or [""] * n, dtype=object),
        name="birds",
    )


@pytest.fixture
def birds() -> Table:
    truth = ["wren", "crow", "wren", "wren", "crow", "owl", "owl", "finch", "wren", "", "owl"]
    label = ["wren", "crow", *[""] * 9]
    problem = [""] * 8 + ["file is truncated", "", ""]
    return table(truth, label, problem)


def test_score_counts_unlabelled_usable_rows_with_a_truth(birds) -> None:
    # Scored are rows 2..7 and 10: wren wren crow owl owl finch owl. Class order: wren crow finch owl.
    category = np.array([1, 0, 0, 1, 1, 2, 2, 3, -1, -1, 2])
    known_score = np.array([math.nan, math.nan, 0.9, 0.4, 0.8, 0.1, 0.5, 0.2, math.nan, math.nan, 0.3])
    found = score(birds, category, known_score)
    expected = {"n": 7, "all": 6 / 7, "old": 2 / 3, "new": 1, "share_old": 3 / 7, "known_accuracy": 2 / 3}
    expected["auroc"] = 11 / 12  # of 12 known-novel pairs one is in the wrong order
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert [(c["class"], c["kind"], c["n"], c["correct"], c["category"]) for c in found["per_class"]] == [
        ("wren", "known", 2, 1, 0),
        ("crow", "known", 1, 1, 1),
        ("finch", "novel", 1, 1, 3),
        ("owl", "novel", 3, 3, 2),
    ]
    assert found["per_class"][0]["accuracy"] == 0.5
    assert [c["counts"] for c in found["per_class"]] == [{0: 1, 1: 1}, {1: 1}, {3: 1}, {2: 3}]
    nobody = score(birds, np.zeros(11, dtype=int), np.full(11, math.nan))
    assert [c["category"] for c in nobody["per_class"]] == [None, None, None, 0]
    assert nobody["auroc"] is None


def test_known_accuracy_takes_no_renaming(birds) -> None:
    """Swapping the two known classes leaves the matched accuracy and ruins the one by name."""
    found = score(birds, np.array([0, 0, 1, 1, 0, 2, 2, 3, 0, 0, 2]))
    assert (found["all"], found["known_accuracy"], found["auroc"]) == (1.0, 0.0, None)
    assert found["nmi"] == pytest.approx(1.0) == found["ari"]


def test_empty_parts_are_none() -> None:
    only_known = score(table(["wren", "crow"], ["", ""]), [0, 1], [0.5, 0.6])
    assert (only_known["old"], only_known["new"], only_known["auroc"]) == (1.0, None, None)
    only_novel = score(table(["owl", "owl"], ["", ""]), [4, 4])
    assert (only_novel["old"], only_novel["new"], only_novel["known_accuracy"]) == (None, 1.0, None)
    nothing = score(table(["wren", "crow"], ["wren", "crow"]), [0, 1])
    assert nothing["n"] == 0
    assert nothing["all"] is None
    assert nothing.keys() == only_known.keys()


def test_what_cannot_be_scored(birds) -> None:
    for true, predicted in (([0, 1], [0]), ([], []), ([0, 1], [0, -1])):
        with pytest.raises(InputError, match=r"equally long|non-empty|negative"):
            clustering_accuracy(true, predicted, 1)
    with pytest.raises(InputError, match="'birds' holds no truth"):
        score(table(None, ["", ""]), [0, 1])
    with pytest.raises(InputError, match="11 rows"):
        score(birds, np.zeros(7, dtype=int))
