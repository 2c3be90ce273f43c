"""Fusion and alignment: against matrices, loops and InterLUDE's golden numbers."""

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.losses.relational import behaviour_alignment, circular_fusion

FUSION = ["q10_c4_h3", "q6_c3_h2_alpha0.3", "q2", "q1"]


@pytest.mark.parametrize("q", [1, 2, 7])
def test_fusion_is_the_row_stochastic_matrix(q) -> None:
    torch.manual_seed(5)
    z, weight = torch.randn(q, 4, dtype=torch.float64), torch.rand(q, dtype=torch.float64) * 0.3
    mixing = torch.eye(q, dtype=torch.float64)
    for i in range(q):
        mixing[i, i] -= weight[i]
        mixing[i, (i - 1) % q] += weight[i]
    torch.testing.assert_close(mixing.sum(1), torch.ones(q, dtype=torch.float64))
    torch.testing.assert_close(circular_fusion(z, weight), mixing @ z)


def test_fusion_of_weight_zero_is_the_identity() -> None:
    z = torch.randn(6, 3)
    assert torch.equal(circular_fusion(z, torch.zeros(6)), z)


@pytest.mark.parametrize("case", FUSION)
def test_fusion_golden(case, golden) -> None:
    """InterLUDE goes the other way round."""
    g, key = golden("interlude"), f"fusion.{case}"
    for dtype, name, tol in ((torch.float64, "fused_f64", 1e-9), (torch.float32, "fused_f32", 1e-6)):
        z = torch.tensor(g[f"{key}.z"], dtype=dtype)
        weight = torch.full((len(z),), float(g[f"{key}.alpha"]), dtype=dtype)
        ours = circular_fusion(z.flip(0), weight).flip(0)
        np.testing.assert_allclose(ours, g[f"{key}.{name}"], atol=tol)


def test_the_source_row_carries_no_gradient() -> None:
    z = torch.randn(2, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(circular_fusion(z, torch.tensor([0.0, 0.3]))[1].sum(), z)
    torch.testing.assert_close(grad, torch.tensor([[0.0], [0.7]]).expand(2, 3))


@pytest.fixture
def groups() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(6)
    anchor, partner = torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 3, 4, dtype=torch.float64)
    weight = torch.rand(5, 3, dtype=torch.float64)
    weight[2] = 0  # an anchor without partners
    return anchor, partner, weight, torch.tensor([1, 1, 1, 0, 1]).bool()


def test_alignment_is_the_slow_loop(groups) -> None:
    anchor, partner, weight, labelled = groups
    terms = []
    for i in range(5):
        if labelled[i] and weight[i].sum() >= 1e-3:
            mean = sum(weight[i, j] * partner[i, j] for j in range(3)) / (sum(weight[i]) + 1e-6)
            terms.append(float(sum((anchor[i, d] - mean[d]) ** 2 for d in range(4))))
    assert len(terms) == 3
    assert behaviour_alignment(*groups).item() == pytest.approx(sum(terms) / 3, abs=1e-12)


def test_alignment_vanishes_where_all_changes_agree(groups) -> None:
    anchor, _, weight, labelled = groups
    same = anchor[:, None].expand(5, 3, 4)
    assert behaviour_alignment(anchor, same, weight, labelled).item() == pytest.approx(0, abs=1e-9)


def test_no_gradient_reaches_the_anchor(groups) -> None:
    anchor, partner, weight, labelled = groups
    anchor.requires_grad_(), partner.requires_grad_()
    value = behaviour_alignment(anchor, partner, weight, labelled)
    target, moved = torch.autograd.grad(value, [anchor, partner], allow_unused=True)
    assert target is None
    assert (moved[[2, 3]] == 0).all()  # skipped and unlabelled anchors
    assert (moved[[0, 1, 4]] != 0).all()


def test_fusing_one_partner_only_rescales_the_alignment() -> None:
    """With one partner, fused in both views: (1 - alpha w)^2 ||Delta_l - Delta_u||^2."""
    torch.manual_seed(7)
    weak, strong = torch.randn(2, 2, 6, dtype=torch.float64)  # rows: the anchor, its partner
    w = 0.8
    fusion = torch.tensor([0.0, 0.3 * w], dtype=torch.float64)
    fused = circular_fusion(weak, fusion) - circular_fusion(strong, fusion)
    delta = weak - strong
    value = behaviour_alignment(delta[:1], fused[1:][None], torch.full((1, 1), w), torch.ones(1).bool())
    expected = (1 - 0.3 * w) ** 2 * (delta[0] - delta[1]).square().sum()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)


def test_alignment_does_not_depend_on_the_order(groups) -> None:
    anchor, partner, weight, labelled = groups
    order, inner = torch.randperm(5), torch.randperm(3)
    other = (anchor[order], partner[order][:, inner], weight[order][:, inner], labelled[order])
    torch.testing.assert_close(behaviour_alignment(*other), behaviour_alignment(*groups))


def test_alignment_is_finite_at_the_edges(groups, finite) -> None:
    anchor, partner, weight, labelled = groups
    for mask in (labelled, torch.zeros_like(labelled), torch.ones_like(labelled)):
        for w in (weight, weight * 0, weight * 1e-4):
            finite(lambda a, p, x, m=mask: behaviour_alignment(a, p, x, m), anchor, partner, w)
    assert behaviour_alignment(anchor, partner, weight * 0, labelled) == 0
