"""What holds for every loss of two views: order, absent rows, overflow; and the operations below them."""

import pytest
import torch
import torch.nn.functional as F

from holotype.losses import ops
from holotype.losses.affinity import affinity_contrast
from holotype.losses.classification import (
    debiased_loss,
    mean_entropy_deficit,
    self_distillation,
    supervised_cross_entropy,
)
from holotype.losses.contrastive import concept_nce, info_nce, sup_con
from holotype.losses.ops import at_least_float32, exact_inner, inner, l2_normalize, masked_mean
from holotype.losses.ova import detector_loss, ova_consistency, ova_entropy, ova_hard_negative
from holotype.losses.pseudo_labels import prototype_separation
from holotype.losses.rank_stats import pair_cross_entropy, prediction_mse
from holotype.losses.sinkhorn import swapped_prediction

# name -> loss of x (2, B, 5), label (B,) and labelled (B,)
LOSSES = {
    "distillation": lambda x, y, m: self_distillation(x, 0.05),
    "entropy deficit": lambda x, y, m: mean_entropy_deficit(x),
    "entropy deficit, weighed": lambda x, y, m: mean_entropy_deficit(
        x, weight=(m + 1.0).to(x.dtype) / (m + 1.0).sum()
    ),
    "cross entropy": supervised_cross_entropy,
    "info_nce": lambda x, y, m: info_nce(x, 0.07),
    "sup_con": sup_con,
    "debiased": lambda x, y, m: debiased_loss(x, 1.5 * x.flip(-1), x.float().sigmoid().mean(-1), y, m, 0.5),
    "detector": lambda x, y, m: detector_loss(x.sigmoid(), y, m),
    "detector, p_out": lambda x, y, m: detector_loss(x.sigmoid(), y, m, (-x).sigmoid()),
    "mse": lambda x, y, m: prediction_mse(x),
    "unlike pairs": lambda x, y, m: pair_cross_entropy(x, torch.zeros(len(y), len(y)) > 0),
    "like pairs": lambda x, y, m: pair_cross_entropy(x, torch.ones(len(y), len(y)) > 0),
    "swapped": lambda x, y, m: swapped_prediction(
        x[:, None], F.one_hot(y, 5).to(x).expand(2, 1, -1, -1)
    ).mean(),
    "concepts": lambda x, y, m: concept_nce(
        x.flatten(0, 1), torch.where(m, y, -1).repeat(2), torch.eye(5, dtype=x.dtype), 5
    ),
    "affinity": lambda x, y, m: affinity_contrast(
        *x, torch.eye(5, dtype=x.dtype), m[:, None] & NEAR, ~m[:, None] & NEAR
    ),
    "separation": lambda x, y, m: prototype_separation(F.normalize(x[0].float(), dim=-1)),
}
NEAR = torch.tensor([True, True, False, True, True])
EVERY_LOSS = pytest.mark.parametrize("name", LOSSES)
LABEL, LABELLED = torch.tensor([0, 0, 1, 4, 2, 0, 3]), torch.tensor([1, 0, 1, 1, 0, 0, 1]).bool()


@EVERY_LOSS
def test_order_of_images_and_views_does_not_matter(name) -> None:
    torch.manual_seed(2)
    loss, x, order = LOSSES[name], torch.rand(2, 7, 5, dtype=torch.float64), torch.randperm(7)
    value = loss(x, LABEL, LABELLED)
    torch.testing.assert_close(loss(x[:, order], LABEL[order], LABELLED[order]), value)
    if name not in ("affinity", "separation"):  # of a student and its teacher, of the first view
        torch.testing.assert_close(loss(x.flip(0), LABEL, LABELLED), value)


@EVERY_LOSS
@pytest.mark.parametrize(
    "labelled", [LABELLED, ~LABELLED & LABELLED, ~LABELLED | LABELLED, torch.arange(7) == 3]
)
def test_finite_at_the_edges(name, labelled, finite) -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 7, 5) * 2 - 1
    sure, one_zero = torch.eye(7)[:, :5].expand(2, 7, 5), x * (torch.arange(7) > 0)[:, None]
    for rows in (x, x[:, :1].expand(2, 7, 5), x * 0, 50 * sure, 1e4 * x, one_zero, x[:, :1]):
        n = rows.shape[1]
        finite(lambda q, n=n: LOSSES[name](q, LABEL[:n], labelled[:n]), rows)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, m: sup_con(x, LABEL, m),
        lambda x, m: supervised_cross_entropy(x, LABEL, m),
        lambda x, m: LOSSES["concepts"](x, LABEL, m),
        lambda x, m: ova_hard_negative(x.sigmoid(), LABEL, m),
        lambda x, m: ova_entropy(x.sigmoid(), m),
        lambda x, m: ova_consistency(x.sigmoid(), m),
    ],
)
def test_rows_outside_the_mask_cost_and_teach_nothing(loss) -> None:
    x = torch.randn(2, 7, 5, dtype=torch.float64).requires_grad_()
    nothing = loss(x, LABELLED & False)
    assert nothing == 0
    assert (torch.autograd.grad(nothing, x)[0] == 0).all()
    other = torch.where(LABELLED[:, None], x, 9 * torch.randn_like(x))
    torch.testing.assert_close(loss(other, LABELLED), loss(x, LABELLED))
    (grad,) = torch.autograd.grad(loss(x, LABELLED), x)
    assert (grad[:, ~LABELLED] == 0).all()
    assert (grad[:, LABELLED] != 0).any()


def test_a_masked_mean_is_that_of_the_selected_entries() -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(3, 7, dtype=torch.float64), torch.rand(3, 7) < 0.4
    torch.testing.assert_close(masked_mean(x, mask), x[mask].mean())
    torch.testing.assert_close(masked_mean(x, mask.double()), x[mask].mean())
    images = torch.tensor([True, False, False, True])  # counts every view
    assert masked_mean(torch.arange(8.0).view(2, 4), images) == (0 + 3 + 4 + 7) / 4


def test_inner_products_ignore_autocast() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(4, 64), torch.randn(3, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ b.T).dtype == torch.bfloat16
        torch.testing.assert_close(inner(a, b), (a.double() @ b.double().T).float())
    assert at_least_float32(a.bfloat16()).dtype == torch.float32
    assert at_least_float32(a.double()).dtype == torch.float64


def test_unit_vectors_are_those_of_normalize() -> None:
    torch.manual_seed(0)
    for dtype, tolerance in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        length = torch.logspace(-2, 4, 30, dtype=dtype)[:, None]
        x = (torch.randn(30, 48, dtype=dtype) * length).requires_grad_()
        ours, theirs = l2_normalize(x), F.normalize(x, dim=-1)
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
        cotangent = torch.randn_like(ours)
        mine, reference = (torch.autograd.grad(out, x, cotangent)[0] * length for out in (ours, theirs))
        torch.testing.assert_close(mine, reference, atol=10 * tolerance, rtol=10 * tolerance)


def test_exact_products_are_taken_in_full_float32_and_leave_the_setting_alone(monkeypatch) -> None:
    before, seen = torch.get_float32_matmul_precision(), []

    def spy(a, b):
        seen.append(torch.get_float32_matmul_precision())
        return inner(a, b)

    monkeypatch.setattr(ops, "inner", spy)
    a, b = torch.randn(3, 4), torch.randn(5, 4)
    try:
        torch.set_float32_matmul_precision("high")
        torch.testing.assert_close(exact_inner(a, b), a @ b.T)
        assert (seen, torch.get_float32_matmul_precision()) == (["highest"], "high")
    finally:
        torch.set_float32_matmul_precision(before)
