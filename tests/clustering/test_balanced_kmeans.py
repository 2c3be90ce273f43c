"""Balanced k-means: even clusters where plain ones are not, fixed rows, and Lloyd's steps without balance."""

import torch

from holotype.clustering.kmeans import balanced_kmeans, centres_of, squared_distances


def blobs(sizes, dim=8, seed=0):
    g = torch.Generator().manual_seed(seed)
    centres = 4 * torch.randn(len(sizes), dim, generator=g)
    label = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return centres[label] + torch.randn(len(label), dim, generator=g), centres, label


def test_even_blobs_are_found_and_fixed_rows_stay():
    x, centres, truth = blobs([50, 50, 50, 50])
    fixed = torch.where(torch.arange(200) % 5 == 0, truth, -1)
    start = centres + 0.5 * torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    label, found, _ = balanced_kmeans(x, start, fixed, iterations=5)
    assert torch.equal(label, truth)
    for c in range(4):
        torch.testing.assert_close(found[c], x[truth == c].mean(0))
    wrong = fixed.clone()
    wrong[0] = 3
    assert int(balanced_kmeans(x, start, wrong)[0][0]) == 3


def test_clusters_are_even_although_the_nearest_centres_are_not():
    x, centres, _ = blobs([150, 30, 20])
    free = torch.full((200,), -1)
    even = torch.bincount(balanced_kmeans(x, centres, free, iterations=10)[0], minlength=3)
    plain = torch.bincount(balanced_kmeans(x, centres, free, iterations=10, balanced=False)[0], minlength=3)
    assert plain.max() >= 100
    assert even.max() <= 72
    assert even.sum() == 200


def test_a_bonus_reproduces_the_assignment_row_by_row():
    x, centres, _ = blobs([80, 40, 60, 20])
    free = torch.full((200,), -1)
    label, _, bonus = balanced_kmeans(x, centres, free, iterations=1)
    one_by_one = [int((squared_distances(row[None], centres) - bonus).argmin()) for row in x]
    assert label.tolist() == one_by_one


def test_without_balance_it_is_lloyds_iteration():
    x, _, _ = blobs([30, 30, 30], seed=2)
    start = x[:3]
    label, found, bonus = balanced_kmeans(x, start, torch.full((90,), -1), iterations=4, balanced=False)
    slow = start.clone()
    for _ in range(4):
        nearest = [min(range(3), key=lambda c, row=row: float((row - slow[c]).square().sum())) for row in x]
        slow = torch.stack([x[torch.tensor(nearest) == c].mean(0) for c in range(3)])
    assert label.tolist() == nearest
    torch.testing.assert_close(found, slow)
    assert bonus.eq(0).all()


def test_an_empty_cluster_keeps_its_centre():
    x, old = torch.ones(4, 2), torch.tensor([[1.0, 1.0], [5.0, 5.0]])
    assert torch.equal(centres_of(x, torch.zeros(4, dtype=torch.long), old), old)
