"""Concepts: from features to groups, their means, and what is said where there are few."""

from __future__ import annotations

import torch

from holotype.methods._infomap import Concepts, concept_means, find_concepts, warn_few_concepts


def blobs(n: int = 6, each: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    truth = torch.arange(n * each) % n
    x = 2 * torch.eye(n, 10)[truth] + 0.1 * torch.randn(n * each, 10, generator=g)
    return x, truth


def test_groups_are_found_and_the_same_call_finds_the_same():
    x, truth = blobs()
    found = find_concepts(x, torch.full_like(truth, -1), seed=3)
    assert torch.equal(found.of, truth)  # numbered by first appearance
    assert found.count == 6
    assert found.positives == 8
    assert found.precision != found.precision  # NaN: nothing is labelled
    again = find_concepts(x, torch.full_like(truth, -1), seed=3)
    assert torch.equal(found.of, again.of)


def test_groups_below_the_smallest_are_outliers():
    x, truth = blobs()
    keep = (truth != 2) | (torch.arange(len(truth)) < 12)  # two images of group 2
    found = find_concepts(x[keep], torch.full((int(keep.sum()),), -1), seed=0)
    assert found.count == 5
    assert (found.of[truth[keep] == 2] == -1).all()


def test_precision_is_that_of_labelled_pairs():
    x, truth = blobs()
    found = find_concepts(x, truth // 2 * 2, edges="none", seed=0)
    assert found.precision == 1.0
    wrong = torch.where(
        torch.arange(len(truth)) < 6, -1, torch.arange(len(truth)) // 6
    )  # nine different labels
    assert find_concepts(x, wrong, edges="none", seed=0).precision == 0.0


def test_means_are_of_raw_features_and_then_of_unit_length():
    x = torch.tensor([[4.0, 0.0], [0.0, 1.0], [5.0, 5.0], [0.0, 2.0]])
    found = Concepts(torch.tensor([0, 0, -1, 1]), 2, 1.0, 1.0)
    expected = torch.tensor([[4.0, 1.0], [0.0, 1.0]]) / torch.tensor([[17.0**0.5], [1.0]])
    torch.testing.assert_close(concept_means(x, found), expected)
    assert concept_means(x, Concepts(torch.full((4,), -1), 0, 0.0, 0.0)).shape == (0, 2)


def test_what_was_said_is_not_said_again(caplog):
    """Their number changes from one search to the next: that is no news."""
    told: set[str] = set()

    def search(count: int) -> list[str]:
        warn_few_concepts(Concepts(torch.zeros(5, dtype=torch.long), count, 4.0, 1.0), 8, told)
        return [record.getMessage() for record in caplog.records]

    assert search(8) == []
    assert search(1) == ["Only 1 concept was found: it repeats to fill the 8 places of a step."]
    assert search(3) == search(9) == search(2)
    assert len(search(7)) == 1
    assert "so the concept loss is 0" in search(0)[1]
    assert len(search(0)) == len(search(1)) == 2
