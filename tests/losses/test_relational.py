"""Signatures and the discovery loss against loops over pairs."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.losses.relational import discovery_loss_as_printed, relational_consistency, signature

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


def test_signature_is_the_cosine_to_each_prototype() -> None:
    f, p = torch.randn(3, 5, dtype=torch.float64) * 9, torch.randn(2, 5, dtype=torch.float64)
    expected = torch.tensor([[cosine(x, y) for y in p] for x in f], dtype=torch.float64)
    torch.testing.assert_close(signature(f, p), expected)
    torch.testing.assert_close(signature(f, p), F.cosine_similarity(f[:, None], p[None], dim=-1))


def test_it_is_the_slow_loop(rows) -> None:
    ours = relational_consistency(**rows)
    assert ours.item() == pytest.approx(slow(**rows), rel=1e-10)


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


def test_no_novelty_or_equal_signatures_cost_nothing(rows) -> None:
    assert relational_consistency(**{**rows, "w_new": torch.zeros(12)}) == 0
    equal = rows["r"][:1].expand(12, 4)
    assert relational_consistency(**{**rows, "r": equal}).item() == pytest.approx(0, abs=1e-6)


def test_pairs_of_one_image_carry_no_weight(rows) -> None:
    alone = {**rows, "image": torch.zeros(12, dtype=torch.long)}
    rows["r"].requires_grad_()
    value = relational_consistency(**alone)
    assert value == 0
    assert (torch.autograd.grad(value, rows["r"])[0] == 0).all()


def test_order_does_not_matter_and_invalid_rows_do_not_enter(rows) -> None:
    value = relational_consistency(**rows)
    order = torch.randperm(12)
    torch.testing.assert_close(relational_consistency(**{k: v[order] for k, v in rows.items()}), value)
    other = dict(rows)
    for name in ("r", "f"):
        other[name] = torch.where(rows["valid"][:, None], rows[name], torch.randn_like(rows[name]))
    torch.testing.assert_close(relational_consistency(**other), value)


def test_the_printed_sum_runs_over_all_pairs(rows) -> None:
    r, f, w = rows["r"], rows["f"], rows["w_new"]
    total = 0.0
    for i in range(12):
        for j in range(12):
            distance = float((r[i] - r[j]).square().sum())
            total += float(w[i] * w[j]) * math.exp(cosine(f[i], f[j]) / TAU) * distance
    assert discovery_loss_as_printed(r, f, w, TAU).item() == pytest.approx(total, rel=1e-10)


def test_finite_at_the_edges(rows, finite) -> None:
    r, f, w, image, valid = (rows[k] for k in ("r", "f", "w_new", "image", "valid"))
    one = torch.arange(12) == 3
    for mask in (valid, torch.zeros_like(valid), torch.ones_like(valid), one):
        for x, y, v in (
            (r, f, w),
            (r, f, w * 0),
            (r * 0, f * 0, w),
            (r[:1].expand(12, 4), f[:1].expand(12, 5), w),
        ):
            finite(
                lambda a, b, c, m=mask: relational_consistency(a, b, c, image, m),
                x,
                y,
                v,
            )
    finite(discovery_loss_as_printed, r, f, w)
    finite(signature_sum, f, f[:3])


def signature_sum(f: Tensor, prototypes: Tensor) -> Tensor:
    return signature(f, prototypes).sum()
