"""Placing by the nearest centre."""

from dataclasses import dataclass

import torch

from holotype.methods import Task
from holotype.methods._common import NearestCentreMethod


@dataclass
class Empty:
    """No settings."""


def test_probabilities_are_those_of_squared_distances():
    torch.manual_seed(0)
    method = NearestCentreMethod(Empty(), Task(2, 4, 6, 20, 5))
    method.centres.copy_(torch.randn(4, 6))
    x = torch.randn(9, 6)
    placed = method.predict(x)
    for row, x_i in enumerate(x):
        distance = torch.stack([((x_i / x_i.norm() - c) ** 2).sum() for c in method.centres])
        p = (-distance / 0.1).softmax(0)
        assert int(placed.category[row]) == int(distance.argmin())
        torch.testing.assert_close(placed.probability[row], p.max(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(placed.known_score[row], p[:2].sum(), atol=1e-5, rtol=1e-4)
    assert not method.scores_early
    assert "centres" in method.state_dict()
