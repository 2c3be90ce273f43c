"""A teacher: the moving average by hand, weights that are buffers, and the two ends of its momentum."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from holotype.models.ema import Teacher


def student() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3, bias=False))


def learn(module: nn.Module, number: int) -> None:
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += torch.randn(parameter.shape, generator=generator)
        module(torch.randn(8, 4, generator=generator))  # moves the statistics of the norm


def test_it_is_the_moving_average_of_its_student():
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


@pytest.mark.parametrize("kind", [float, torch.tensor])
def test_momentum_zero_copies_and_one_freezes(kind):
    one = student()
    teacher, before = Teacher(one), copy.deepcopy(dict(one.named_parameters()))
    learn(one, 0)
    teacher.update(kind(1.0))
    assert all(torch.equal(teacher[0].get_buffer(name), value) for name, value in before.items())
    teacher.update(kind(0.0))
    assert all(torch.equal(teacher[0].get_buffer(name), p) for name, p in one.named_parameters())


def test_its_weights_are_saved_and_nobody_trains_them():
    one = student()
    owner = nn.ModuleDict({"head": nn.Linear(2, 2), "teacher": Teacher(one)})
    assert [name for name, _ in owner.named_parameters()] == ["head.weight", "head.bias"]
    assert "teacher.copies.0.0.weight" in owner.state_dict()
    learn(one, 0)
    owner["teacher"].update(0.5)
    again = nn.ModuleDict({"head": nn.Linear(2, 2), "teacher": Teacher(student())})
    again.load_state_dict(owner.state_dict())
    x = torch.randn(5, 4)
    assert torch.equal(owner["teacher"](x), again["teacher"](x))


def test_it_stays_in_evaluation_mode_and_gives_no_gradient():
    teacher = Teacher(student())
    teacher.train()
    x = torch.randn(5, 4)
    assert torch.equal(teacher(x), teacher(x))  # without dropout
    assert not teacher(x.requires_grad_()).requires_grad
    teacher.double()
    assert teacher(x.double()).dtype == torch.float64


def test_several_modules_follow_their_own_students():
    one, other = nn.Linear(3, 3), nn.Linear(3, 2)
    teacher = Teacher(one, other)
    with torch.no_grad():
        other.weight.fill_(7.0)
    teacher.update(0.0)
    assert torch.equal(teacher[0].weight, one.weight)
    assert torch.equal(teacher[1].weight, torch.full((2, 3), 7.0))
