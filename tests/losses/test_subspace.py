"""Subspaces of features against slow loops and known answers."""

import pytest
import torch

from holotype.losses.subspace import (
    conceptor,
    negative_isotropy,
    polar_factor,
    squared_drift,
    subspace_energy,
)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def test_conceptor_shrinks_each_direction_by_what_it_carries():
    f = drawn(50, 6) * torch.tensor([5.0, 3, 1, 0.5, 0.1, 0])
    s = conceptor(f, 2.0)
    power, axes = torch.linalg.eigh(f.T @ f / 50)
    slow = sum(p / (p + 0.25) * torch.outer(axis, axis) for p, axis in zip(power, axes.T, strict=True))
    torch.testing.assert_close(s, slow)
    torch.testing.assert_close(subspace_energy(axes.T, s), power / (power + 0.25))
    assert float(subspace_energy(torch.zeros(6).double(), s)) == 0


def test_squared_drift_is_a_mean_over_labelled_rows_and_dimensions():
    f, reference, labelled = drawn(2, 5, 4), drawn(2, 5, 4, seed=1), torch.tensor([1, 0, 1, 0, 0]).bool()
    f.requires_grad_()
    slow = sum(((f[v, i] - reference[v, i]) ** 2).sum() for v in range(2) for i in (0, 2)) / (2 * 4 * 4)
    found = squared_drift(f, reference.requires_grad_(), labelled)
    torch.testing.assert_close(found, slow)
    found.backward()
    assert reference.grad is None
    assert float(squared_drift(f, reference, torch.zeros(5).bool())) == 0


@pytest.mark.parametrize("shape", [(6, 10), (10, 6)])
def test_isotropy_is_the_sum_of_singular_values_and_its_gradient_the_polar_factor(shape):
    f = drawn(*shape).requires_grad_()
    valid = torch.arange(shape[0]) % 3 != 0
    z = torch.nn.functional.normalize(f, dim=-1)[valid]
    slow = -torch.linalg.svdvals(z).sum() / valid.sum()
    (expected,) = torch.autograd.grad(slow, f, retain_graph=True)
    found = negative_isotropy(f, valid)
    found.backward()
    torch.testing.assert_close(found, slow, rtol=1e-6, atol=0)
    torch.testing.assert_close(f.grad, expected, rtol=1e-5, atol=1e-7)
    assert f.grad[~valid].eq(0).all()


def test_isotropy_is_least_for_orthogonal_rows_and_most_for_one_direction():
    assert float(negative_isotropy(3 * torch.eye(5).double(), torch.ones(5).bool())) == pytest.approx(-1)
    assert float(negative_isotropy(torch.ones(4, 5).double(), torch.ones(4).bool())) == pytest.approx(-0.5)
    nothing = negative_isotropy(torch.ones(4, 5).double().requires_grad_(), torch.zeros(4).bool())
    assert float(nothing) == 0
    assert polar_factor(torch.zeros(3, 4)).eq(0).all()
