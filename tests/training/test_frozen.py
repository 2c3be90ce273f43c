"""A module that is shared: called by its owners, trained and saved by none of them."""

from __future__ import annotations

import copy

import torch
from torch import nn

from holotype.models.frozen import Unregistered, registered_count


class Owner(nn.Module):
    def __init__(self, trunk) -> None:
        super().__init__()
        self.trunk, self.head = trunk, nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.trunk(x))


def test_it_is_called_and_looked_into_like_the_module():
    trunk = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    frozen, x = Unregistered(trunk), torch.randn(2, 4)
    assert torch.equal(frozen(x), trunk(x))
    assert frozen.training == trunk.training
    assert list(frozen.parameters()) == list(trunk.parameters())


def test_its_owner_neither_trains_nor_saves_nor_moves_nor_copies_it():
    trunk = nn.Linear(4, 3)
    owner = Owner(Unregistered(trunk)).double()
    assert set(owner.state_dict()) == {"head.weight", "head.bias"}
    assert trunk.weight.dtype == torch.float32
    assert copy.deepcopy(owner).trunk.module is trunk


def test_an_owner_that_registers_it_is_found_out():
    trunk = nn.Linear(4, 3)
    assert not registered_count(Owner(Unregistered(trunk)), trunk)
    assert registered_count(Owner(trunk), trunk)
