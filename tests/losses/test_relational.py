"""Signatures and the discovery loss against loops over pairs."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.losses.relational import (
    behaviour_alignment,
    circular_fusion,
    discovery_loss_as_printed,
    relational_consistency,
    signature,
)

TAU = 0.07


@pytest.fixture
def rows() -> dict[str, Tensor]:
    """Two views of six images, the last two being the same image drawn twice; some rows are left out."""
    torch.manual_seed(8)
    return {
        "r": torch.randn(12, 4, dtype=torch.float64),
        "f": torch.randn(12, 5, dtype=torch.float64) * 0.4 + 1,
        "w_new": torch.rand(12, dtype=torch.float64),
        "image": torch.tensor([0, 1, 2, 3, 4, 4]).repeat(2),
        "valid": torch.tensor([1, 1, 1, 0, 1, 1]).bool().repeat(2),
    }


def cosine(a: Tensor, b: Tensor) -> float:
    return (a @ b / a.norm() / b.norm()).item()


def slow(r: Tensor, f: Tensor, w_new: Tensor, image: Tensor, valid: Tensor) -> float:
    n, total = int(valid.sum()), 0.0
    for i in range(len(r)):
        partners = [j for j in range(len(r)) if valid[i] and valid[j] and image[i] != image[j]]
        similarity = {j: math.exp(cosine(f[i], f[j]) / TAU) for j in partners}
        for j in partners:
            s = similarity[j] / sum(similarity.values()) / n
            total += (w_new[i] * w_new[j]).item() * s * (r[i] - r[j]).square().sum().item()
    return total


def test_signatures_and_their_loss_are_the_slow_loops(rows) -> None:
    f, p = torch.randn(3, 5, dtype=torch.float64) * 9, torch.randn(2, 5, dtype=torch.float64)
    expected = torch.tensor([[cosine(x, y) for y in p] for x in f], dtype=torch.float64)
    torch.testing.assert_close(signature(f, p), expected)
    assert relational_consistency(**rows).item() == pytest.approx(slow(**rows), rel=1e-10)


def test_gradient_is_that_of_the_distances_alone(rows) -> None:
    inputs = {k: v.requires_grad_() for k, v in rows.items() if v.is_floating_point()}
    value = relational_consistency(**rows)
    grad_r, grad_f, grad_w = torch.autograd.grad(value, list(inputs.values()), allow_unused=True)
    assert grad_f is None
    assert grad_w is None
    step = 1e-6
    for i, c in ((0, 1), (3, 0), (7, 2)):
        probe = torch.zeros_like(rows["r"])
        probe[i, c] = step
        up, down = (slow(**{**rows, "r": (rows["r"] + s * probe).detach()}) for s in (1, -1))
        assert grad_r[i, c].item() == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-6)


def test_order_does_not_matter_and_invalid_rows_do_not_enter(rows) -> None:
    value = relational_consistency(**rows)
    order = torch.randperm(12)
    torch.testing.assert_close(relational_consistency(**{k: v[order] for k, v in rows.items()}), value)
    other = dict(rows)
    for name in ("r", "f"):
        other[name] = torch.where(rows["valid"][:, None], rows[name], torch.randn_like(rows[name]))
    torch.testing.assert_close(relational_consistency(**other), value)
    nobody = rows | {"image": torch.zeros(12, dtype=torch.long)}
    assert relational_consistency(**nobody) == 0  # no pair is left


def test_the_printed_sum_runs_over_all_pairs(rows) -> None:
    r, f, w = rows["r"], rows["f"], rows["w_new"]
    total = 0.0
    for i, j in itertools.product(range(12), repeat=2):
        distance = float((r[i] - r[j]).square().sum())
        total += float(w[i] * w[j]) * math.exp(cosine(f[i], f[j]) / TAU) * distance
    assert discovery_loss_as_printed(r, f, w, TAU).item() == pytest.approx(total, rel=1e-10)


def test_finite_at_the_edges(rows, finite) -> None:
    r, f, w, image, valid = (rows[k] for k in ("r", "f", "w_new", "image", "valid"))
    alike = (r[:1].expand(12, 4), f[:1].expand(12, 5), w)
    for mask in (valid, torch.zeros_like(valid), torch.ones_like(valid), torch.arange(12) == 3):
        for inputs in ((r, f, w), (r, f, w * 0), (r * 0, f * 0, w), alike):
            finite(lambda a, b, c, m=mask: relational_consistency(a, b, c, image, m), *inputs)
    finite(discovery_loss_as_printed, r, f, w)
    finite(lambda x, prototypes: signature(x, prototypes).sum(), f, f[:3])


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


def test_the_source_row_of_a_fusion_learns_nothing() -> None:
    z = torch.randn(2, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(circular_fusion(z, torch.tensor([0.0, 0.3]))[1].sum(), z)
    torch.testing.assert_close(grad, torch.tensor([[0.0], [0.7]]).expand(2, 3))


@pytest.mark.parametrize("case", ["q10_c4_h3", "q6_c3_h2_alpha0.3", "q2", "q1"])
def test_fusion_golden(case, golden) -> None:
    """InterLUDE goes the other way round."""
    g, key = golden("interlude"), f"fusion.{case}"
    for dtype, name, tol in ((torch.float64, "fused_f64", 1e-9), (torch.float32, "fused_f32", 1e-6)):
        z = torch.tensor(g[f"{key}.z"], dtype=dtype)
        weight = torch.full((len(z),), float(g[f"{key}.alpha"]), dtype=dtype)
        ours = circular_fusion(z.flip(0), weight).flip(0)
        np.testing.assert_allclose(ours, g[f"{key}.{name}"], atol=tol)


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
    n_labelled = int(groups[-1].sum())
    assert n_labelled > 3
    every = sum(terms) / n_labelled
    assert behaviour_alignment(*groups, over_all=True).item() == pytest.approx(every, abs=1e-12)


def test_alignment_vanishes_where_all_changes_agree_and_knows_no_order(groups) -> None:
    anchor, partner, weight, labelled = groups
    same = anchor[:, None].expand(5, 3, 4)
    assert behaviour_alignment(anchor, same, weight, labelled).item() == pytest.approx(0, abs=1e-9)
    order, inner = torch.randperm(5), torch.randperm(3)
    other = (anchor[order], partner[order][:, inner], weight[order][:, inner], labelled[order])
    torch.testing.assert_close(behaviour_alignment(*other), behaviour_alignment(*groups))


def test_no_gradient_reaches_the_anchor(groups) -> None:
    anchor, partner, weight, labelled = groups
    anchor.requires_grad_(), partner.requires_grad_()
    value = behaviour_alignment(anchor, partner, weight, labelled)
    target, moved = torch.autograd.grad(value, [anchor, partner], allow_unused=True)
    assert target is None
    assert (moved[[2, 3]] == 0).all()  # skipped and unlabelled anchors
    assert (moved[[0, 1, 4]] != 0).all()


def test_alignment_is_finite_at_the_edges(groups, finite) -> None:
    anchor, partner, weight, labelled = groups
    for mask in (labelled, torch.zeros_like(labelled), torch.ones_like(labelled)):
        for w in (weight, weight * 0, weight * 1e-4):
            finite(lambda a, p, x, m=mask: behaviour_alignment(a, p, x, m), anchor, partner, w)
    assert behaviour_alignment(anchor, partner, weight * 0, labelled) == 0
