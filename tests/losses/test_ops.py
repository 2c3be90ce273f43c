"""masked_mean: the mean that survives an empty mask. full, inner: float32 whatever surrounds them. unit: length 1."""

import torch

from holotype.losses import ops
from holotype.losses.ops import at_least_float32, exact_inner, inner, l2_normalize, masked_mean


def test_a_masked_mean_is_that_of_the_selected_entries() -> None:
    torch.manual_seed(0)
    x, mask = torch.randn(3, 7, dtype=torch.float64), torch.rand(3, 7) < 0.4
    torch.testing.assert_close(masked_mean(x, mask), x[mask].mean())
    torch.testing.assert_close(masked_mean(x, mask.double()), x[mask].mean())
    images = torch.tensor([True, False, False, True])  # counts every view
    assert masked_mean(torch.arange(8.0).view(2, 4), images) == (0 + 3 + 4 + 7) / 4


def test_an_empty_mask_gives_zero_with_zero_gradient() -> None:
    x = torch.randn(5, requires_grad=True)
    value = masked_mean(x, torch.zeros(5, dtype=torch.bool))
    (grad,) = torch.autograd.grad(value, x)
    assert value == 0
    assert (grad == 0).all()


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
        ours, theirs = l2_normalize(x), torch.nn.functional.normalize(x, dim=-1)
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
        cotangent = torch.randn_like(ours)
        mine, reference = (torch.autograd.grad(out, x, cotangent)[0] * length for out in (ours, theirs))
        torch.testing.assert_close(mine, reference, atol=10 * tolerance, rtol=10 * tolerance)


def test_a_zero_vector_stays_zero_and_its_gradient_a_number() -> None:
    x = torch.zeros(2, 384, requires_grad=True)
    out = l2_normalize(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert (out == 0).all()
    assert grad.isfinite().all()


def test_exact_products_are_taken_in_full_float32_and_leave_the_setting_alone(monkeypatch) -> None:
    before, seen = torch.get_float32_matmul_precision(), []
    monkeypatch.setattr(
        ops, "inner", lambda a, b: (seen.append(torch.get_float32_matmul_precision()), inner(a, b))[1]
    )
    a, b = torch.randn(3, 4), torch.randn(5, 4)
    try:
        torch.set_float32_matmul_precision("high")
        torch.testing.assert_close(exact_inner(a, b), a @ b.T)
        assert (seen, torch.get_float32_matmul_precision()) == (["highest"], "high")
    finally:
        torch.set_float32_matmul_precision(before)
