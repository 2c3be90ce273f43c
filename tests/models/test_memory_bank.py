"""The ring against a Python list."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from holotype.models.memory_bank import RingMemory


def rows_of(memory: RingMemory) -> list[float]:
    """Valid rows, oldest first."""
    place, count = int(memory.place), int(memory.count)
    order = [(place - count + i) % len(memory.rows) for i in range(count)]
    return memory.rows[order][:, 0].tolist()


@pytest.mark.parametrize("size", [1, 3, 10, 64])
def test_it_holds_the_last_rows_that_were_kept(size) -> None:
    torch.manual_seed(size)
    memory, expected, number = RingMemory(size, 2), deque(maxlen=size), 0.0
    for _ in range(40):
        n = int(torch.randint(1, 9, ()))
        new = torch.arange(number, number + n)[:, None].expand(n, 2)
        keep, number = torch.rand(n) < 0.5, number + n
        memory.push(new, keep)
        expected.extend(new[keep][:, 0].tolist())
        assert rows_of(memory) == list(expected)
        assert int(memory.valid.sum()) == len(expected)
        written = set(memory.rows[memory.valid][:, 0].tolist())
        assert written == set(expected)


def test_nothing_kept_changes_nothing() -> None:
    memory = RingMemory(4, 3)
    memory.push(torch.ones(6, 3), torch.ones(6) > 0)
    before = {name: x.clone() for name, x in memory.state_dict().items()}
    memory.push(torch.zeros(5, 3), torch.zeros(5) > 0)
    assert all(torch.equal(x, before[name]) for name, x in memory.state_dict().items())


def test_it_is_saved_and_takes_no_gradient() -> None:
    memory, x = RingMemory(4, 2, 3), torch.randn(3, 2, 3, requires_grad=True)
    memory.push(x, torch.tensor([True, False, True]))
    assert not memory.rows.requires_grad
    again = RingMemory(4, 2, 3)
    again.load_state_dict(memory.state_dict())
    for each in (memory, again):
        each.push(x, torch.tensor([True, True, True]))
    assert torch.equal(memory.rows, again.rows)
    assert int(again.place) == int(memory.place) == 1


def test_pushing_needs_no_values() -> None:
    with FakeTensorMode():
        memory = RingMemory(5, 2)
        memory.push(torch.randn(8, 2), torch.rand(8) < 0.5)
        assert memory.valid.shape == (5,)
