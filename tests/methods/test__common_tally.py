"""Means of an epoch, kept in buffers."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from holotype.methods._common import EpochMeans


def test_means_are_of_all_counted_values_of_all_steps():
    tally = EpochMeans("a", "b")
    assert tally.means() == {}
    tally.add("a", torch.tensor([1.0, 2, 6]))
    tally.add("a", torch.tensor([[1.0, 100], [2, float("nan")]]), torch.tensor([True, False]))
    tally.add("b", torch.tensor([3.0]), torch.tensor([False]))
    assert tally.means() == {"a": pytest.approx(12 / 5)}  # of b nothing was counted
    tally.reset()
    assert tally.means() == {}


def test_a_resumed_epoch_goes_on_counting():
    one, two = EpochMeans("a"), EpochMeans("a")
    one.add("a", torch.ones(3))
    two.load_state_dict(one.state_dict())
    two.add("a", torch.zeros(3))
    assert float(two.means()["a"]) == 0.5


def test_adding_needs_no_values():
    with FakeTensorMode():
        tally = EpochMeans("a")
        tally.add("a", torch.rand(2, 5, requires_grad=True), torch.rand(5) < 0.5)
