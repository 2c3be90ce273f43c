"""Signatures and the discovery loss against loops over pairs."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from holotype.errors import InputError
from holotype.losses.relational import printed_new, relational_consistency, signature

TAU = 0.07
NORMS = ["row_softmax", "exp_shift", "literal"]


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


def slow(r: Tensor, f: Tensor, w_new: Tensor, image: Tensor, valid: Tensor, norm: str) -> float:
    n, total = int(valid.sum()), 0.0
    for i in range(len(r)):
        partners = [j for j in range(len(r)) if valid[i] and valid[j] and image[i] != image[j]]
        similarity = {j: math.exp(cosine(f[i], f[j]) / TAU) for j in partners}
        for j in partners:
            s = {
                "row_softmax": similarity[j] / sum(similarity.values()) / n,
                "exp_shift": similarity[j] * math.exp(-1 / TAU) / (n * (n - 1)),
                "literal": similarity[j],
            }[norm]
            total += (w_new[i] * w_new[j]).item() * s * (r[i] - r[j]).square().sum().item()
    return total


def test_signature_is_the_cosine_to_each_prototype() -> None:
    f, p = torch.randn(3, 5, dtype=torch.float64) * 9, torch.randn(2, 5, dtype=torch.float64)
    expected = torch.tensor([[cosine(x, y) for y in p] for x in f], dtype=torch.float64)
    torch.testing.assert_close(signature(f, p), expected)
    torch.testing.assert_close(signature(f, p), F.cosine_similarity(f[:, None], p[None], dim=-1))


@pytest.mark.parametrize("norm", NORMS)
def test_it_is_the_slow_loop(rows, norm) -> None:
    ours = relational_consistency(**rows, norm=norm)
    assert ours.item() == pytest.approx(slow(**rows, norm=norm), rel=1e-10)
    assert relational_consistency(**rows, norm=norm, detach=False).item() == ours.item()


@pytest.mark.parametrize("norm", NORMS)
def test_gradient_is_that_of_the_distances_alone(rows, norm) -> None:
    inputs = {k: v.requires_grad_() for k, v in rows.items() if v.is_floating_point()}
    value = relational_consistency(**rows, norm=norm)
    grad_r, grad_f, grad_w = torch.autograd.grad(value, list(inputs.values()), allow_unused=True)
    assert grad_f is None
    assert grad_w is None
    step = 1e-6
    for i, c in ((0, 1), (3, 0), (7, 2)):
        probe = torch.zeros_like(rows["r"])
        probe[i, c] = step
        up, down = (slow(**{**rows, "r": (rows["r"] + s * probe).detach()}, norm=norm) for s in (1, -1))
        assert grad_r[i, c].item() == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-6)


def test_without_detaching_similarity_and_weights_learn_too(rows) -> None:
    inputs = [rows["f"].requires_grad_(), rows["w_new"].requires_grad_()]
    for grad in torch.autograd.grad(relational_consistency(**rows, detach=False), inputs):
        assert grad.abs().sum() > 0


def test_exp_shift_is_literal_up_to_a_constant(rows) -> None:
    n = int(rows["valid"].sum())
    literal = relational_consistency(**rows, norm="literal")
    shifted = relational_consistency(**rows, norm="exp_shift")
    torch.testing.assert_close(shifted, literal * math.exp(-1 / TAU) / (n * (n - 1)))


@pytest.mark.parametrize("norm", NORMS)
def test_no_novelty_or_equal_signatures_cost_nothing(rows, norm) -> None:
    assert relational_consistency(**{**rows, "w_new": torch.zeros(12)}, norm=norm) == 0
    equal = rows["r"][:1].expand(12, 4)
    assert relational_consistency(**{**rows, "r": equal}, norm=norm).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_pairs_of_one_image_carry_no_weight(rows, norm) -> None:
    alone = {**rows, "image": torch.zeros(12, dtype=torch.long)}
    rows["r"].requires_grad_()
    value = relational_consistency(**alone, norm=norm)
    assert value == 0
    assert (torch.autograd.grad(value, rows["r"])[0] == 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_order_does_not_matter_and_invalid_rows_do_not_enter(rows, norm) -> None:
    value = relational_consistency(**rows, norm=norm)
    order = torch.randperm(12)
    torch.testing.assert_close(
        relational_consistency(**{k: v[order] for k, v in rows.items()}, norm=norm), value
    )
    other = dict(rows)
    for name in ("r", "f"):
        other[name] = torch.where(rows["valid"][:, None], rows[name], torch.randn_like(rows[name]))
    torch.testing.assert_close(relational_consistency(**other, norm=norm), value)


def test_the_printed_sum_runs_over_all_pairs(rows) -> None:
    r, f, w = rows["r"], rows["f"], rows["w_new"]
    total = 0.0
    for i in range(12):
        for j in range(12):
            distance = float((r[i] - r[j]).square().sum())
            total += float(w[i] * w[j]) * math.exp(cosine(f[i], f[j]) / TAU) * distance
    assert printed_new(r, f, w, TAU).item() == pytest.approx(total, rel=1e-10)
    everyone = {"image": torch.arange(12), "valid": torch.ones(12).bool()}
    literal = relational_consistency(r, f, w, **everyone, norm="literal")
    torch.testing.assert_close(printed_new(r, f, w), literal)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("detach", [True, False])
def test_finite_at_the_edges(rows, norm, detach, finite) -> None:
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
                lambda a, b, c, m=mask: relational_consistency(a, b, c, image, m, norm=norm, detach=detach),
                x,
                y,
                v,
            )
    finite(printed_new, r, f, w)
    finite(signature_sum, f, f[:3])


def signature_sum(f: Tensor, prototypes: Tensor) -> Tensor:
    return signature(f, prototypes).sum()


def test_an_unknown_norm_is_named(rows) -> None:
    with pytest.raises(InputError, match="softmaxx"):
        relational_consistency(**rows, norm="softmaxx")
