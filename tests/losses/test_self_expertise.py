"""SelEx's losses against loops over pairs."""

import math

import pytest
import torch

from holotype.losses.ops import l2_normalize
from holotype.losses.self_expertise import apartness, cluster_contrast, distances, smoothed_info_nce

N = 8


@pytest.fixture
def rows():
    g = torch.Generator().manual_seed(4)
    return torch.randn(N, 5, generator=g).double()


def test_distances_are_those_of_pairs_and_have_a_gradient_everywhere(rows):
    rows = torch.cat([rows, rows[:1]]).requires_grad_()
    d = distances(rows)
    slow = [[float(((a - b).square().sum() + 1e-6).sqrt()) for b in rows.detach()] for a in rows.detach()]
    torch.testing.assert_close(d, torch.tensor(slow, dtype=torch.float64), atol=1e-9, rtol=0)
    d.sum().backward()
    assert rows.grad.isfinite().all()


def test_contrast_within_clusters_is_the_slow_loop_on_every_level(rows):
    d = torch.stack([distances(rows), distances(rows[:, :2])])
    cluster = torch.tensor([[0, 1, 2, 0, 1, 2, 0, 3], [0, 0, 1, 0, 0, 1, 0, 1]])
    valid = torch.tensor([[1, 1, 1, 1, 1, 0, 1, 1], [1] * 8]).bool()
    found = cluster_contrast(d, cluster, valid, 0.3)
    for level in range(2):
        anchors = []
        for i in range(N):
            rivals = [j for j in range(N) if j != i and valid[level, j]]
            kin = [j for j in rivals if cluster[level, j] == cluster[level, i]]
            if not valid[level, i] or not kin:
                continue
            total = sum(math.exp(-float(d[level, i, j]) / 0.3) for j in rivals)
            anchors.append(sum(float(d[level, i, j]) / 0.3 + math.log(total) for j in kin) / len(kin))
        assert found[level].item() == pytest.approx(sum(anchors) / len(anchors))
    nothing = cluster_contrast(d, cluster, torch.zeros_like(valid))
    assert nothing.eq(0).all()


def test_apart_are_those_further_than_the_diameter_of_their_cluster(rows):
    radius = torch.tensor([[0.3, 0.6] * 4, [0.5, 0.2] * 4]).double()
    found, f = apartness(rows, radius), l2_normalize(rows)
    for i in range(N):
        far = [[float((f[i] - f[j]).norm()) > 2 * radius[level, j] for level in range(2)] for j in range(N)]
        raw = [(i != j) * sum(0.5**level for level in range(2) if far[j][level]) for j in range(N)]
        expected = torch.tensor([a / max(sum(raw), 1e-12) for a in raw]).double()
        torch.testing.assert_close(found[i], expected)
    assert apartness(rows, radius + 9).eq(0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.4, 1.0])
def test_the_target_is_the_other_view_and_what_is_apart(rows, smoothing):
    d, apart = distances(rows), apartness(rows, torch.full((1, N), 0.4).double())
    terms = []
    for i in range(N):
        total = sum(math.exp(-float(d[i, k])) for k in range(N) if k != i)
        for j in range(N):
            target = smoothing * float(apart[i, j]) + (1 - smoothing) * (j == (i + N // 2) % N)
            terms.append(target * (float(d[i, j]) + math.log(total)) if j != i else 0.0)
    found = smoothed_info_nce(d, apart, smoothing)
    assert found.item() == pytest.approx(sum(terms) / N)
