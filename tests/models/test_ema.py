"""The EMA teacher: its moving average by hand, weights that are buffers; the memory bank against a Python list."""

from collections import deque

import pytest
import torch
from torch import nn

from holotype.models.ema import Teacher
from holotype.models.memory_bank import RingMemory


def student() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3, bias=False))


def learn(module: nn.Module, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.randn(parameter.shape, generator=generator)
        module(torch.randn(8, 4, generator=generator))  # moves the statistics of the norm


def test_it_is_the_moving_average_of_its_student_in_evaluation_mode():
    one = student()
    teacher = Teacher(one)
    expected = {name: p.detach().double() for name, p in one.named_parameters()}
    for number, m in enumerate((0.9, 0.5, torch.tensor(0.99))):
        learn(one, number)
        teacher.update(m)
        for name, parameter in one.named_parameters():
            expected[name] = float(m) * expected[name] + (1 - float(m)) * parameter.detach().double()
    own = teacher[0].state_dict()
    assert own.keys() == one.state_dict().keys()
    for name, value in expected.items():
        torch.testing.assert_close(own[name].double(), value, rtol=1e-6, atol=1e-6)
    for name, buffer in one.named_buffers():  # counts and statistics are copied
        assert torch.equal(own[name], buffer)
    teacher, x = Teacher(student()), torch.randn(5, 4)
    teacher.train()
    assert torch.equal(teacher(x), teacher(x))  # without dropout
    assert not teacher(x.requires_grad_()).requires_grad
    assert teacher.double()(x.double()).dtype == torch.float64


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
