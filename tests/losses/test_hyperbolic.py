"""The Poincare ball: Moebius addition row by row, known distances, limits."""

import math

import pytest
import torch

from holotype.losses.hyperbolic import clip_norm, exp_at_centre, poincare_distance


@pytest.fixture
def points():
    return exp_at_centre(torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).double(), 0.1)


def moebius(x, y, c):
    dot, xx, yy = float(x @ y), float(x @ x), float(y @ y)
    return ((1 + 2 * c * dot + c * yy) * x + (1 - c * xx) * y) / (1 + 2 * c * dot + c * c * xx * yy)


@pytest.mark.parametrize("c", [0.05, 0.1])
def test_distances_are_those_of_moebius_addition(points, c):
    found = poincare_distance(points, c)
    for i in range(7):
        for j in range(7):
            length = math.sqrt(c) * float(moebius(-points[i], points[j], c).norm())
            if i != j:
                assert float(found[i, j]) == pytest.approx(2 / math.sqrt(c) * math.atanh(length), rel=1e-4)
    assert found.diagonal().max() < 0.01


def test_from_the_centre_a_tangent_vector_is_as_long_as_its_way_and_a_flat_ball_is_euclidean():
    u = torch.tensor([[0.0, 0, 0], [0.3, -0.4, 0], [0.2, 0.1, 0.6]]).double()
    d = poincare_distance(exp_at_centre(u, 0.1), 0.1)
    torch.testing.assert_close(d[0, 1:], 2 * u[1:].norm(dim=-1), rtol=1e-3, atol=0)
    flat = poincare_distance(exp_at_centre(u, 1e-3), 1e-3)
    assert float(flat[1, 2]) == pytest.approx(2 * float((u[1] - u[2]).norm()), rel=2e-2)


def test_long_features_are_clipped_stay_in_the_ball_and_have_gradients():
    f = torch.randn(6, 5, generator=torch.Generator().manual_seed(1)) * torch.tensor(
        [[0.0], [0.1], [1], [9], [99], [1e6]]
    )
    f.requires_grad_()
    u = clip_norm(f, 2.0)
    assert u.norm(dim=-1).max() <= 2 + 1e-5
    torch.testing.assert_close(u[1], f[1])
    x = exp_at_centre(f, 0.1)
    assert x.norm(dim=-1).max() < 0.1**-0.5
    poincare_distance(x, 0.1).sum().backward()
    assert f.grad.isfinite().all()
