"""What all loss tests share: the golden numbers and the way to compare with them."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

PARITY = Path(__file__).parent.parent / "parity"


@cache
def _load(name: str) -> dict[str, np.ndarray]:
    with np.load(PARITY / f"{name}.npz", allow_pickle=False) as file:
        return dict(file)


@pytest.fixture
def golden() -> Callable[[str], dict[str, np.ndarray]]:
    """golden("infonce")["b16_d32.features"]: fixed inputs and what the reference code makes of them."""
    return _load


@pytest.fixture
def case() -> Callable[[str, str], dict[str, np.ndarray]]:
    """case("uno", "swapped_two_views")["logits"]: the arrays of one case, named {case}__{array}."""

    def find(name: str, prefix: str) -> dict[str, np.ndarray]:
        arrays = _load(name).items()
        return {key.removeprefix(f"{prefix}__"): x for key, x in arrays if key.startswith(f"{prefix}__")}

    return find


@pytest.fixture
def agrees() -> Callable[..., None]:
    """Compare a loss and its gradients with golden numbers, in float64 (1e-9) and in float32 (1e-5)."""

    def check(
        loss: Callable[..., Tensor],
        inputs: list[np.ndarray],
        value: np.ndarray,
        grads: list[np.ndarray] | None = None,
        *,
        tol64: float = 1e-9,
        grad_tol64: float = 1e-9,
        grad_tol32: float = 1e-5,
    ) -> None:
        for dtype, tol in ((torch.float64, tol64), (torch.float32, 1e-5)):
            leaves = [torch.tensor(x, dtype=dtype, requires_grad=True) for x in inputs]
            ours = loss(*leaves)
            assert ours.dtype == dtype
            assert ours.shape == ()
            assert abs(ours.item() - value) <= tol * max(1.0, abs(value))
            given = torch.autograd.grad(ours, leaves, allow_unused=True, materialize_grads=True)
            for mine, theirs in zip(given, grads or [], strict=False):
                error = np.abs(mine.numpy() - theirs)
                if dtype == torch.float64:
                    assert (error <= grad_tol64 * (1 + np.abs(theirs))).all()
                else:
                    assert error.max(initial=0) <= grad_tol32 * max(np.abs(theirs).max(initial=0), 1e-3)

    return check


@pytest.fixture
def finite() -> Callable[..., None]:
    """A loss is finite, and so is its gradient, in float32, in bf16, and inside a bf16 autocast region."""

    def check(loss: Callable[..., Tensor], *inputs: Tensor) -> None:
        values = []
        for dtype, autocast in ((torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)):
            leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                value = loss(*leaves)
            assert value.dtype == torch.float32  # never accumulated in half precision
            assert value.isfinite()
            for grad in torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True):
                assert grad.isfinite().all()
            values.append(value.item())
        # Rounding the inputs may cost something, autocast around the loss may not.
        assert values[1] == pytest.approx(values[2], rel=1e-5, abs=1e-6)

    return check
