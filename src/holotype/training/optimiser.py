"""SGD as the reference code sets it up, and its momentum as tensors that can be saved."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from holotype.errors import InputError


def build_sgd(
    learnable: dict[str, nn.Parameter],
    trains: tuple[str, ...],
    lr: float,
    momentum: float,
    weight_decay: float,
) -> torch.optim.SGD:
    """SGD over the parameters whose names begin with one of `trains`; all the others are frozen.

    Matrices decay; biases and other one-dimensional parameters do not. Momentum starts at zero, which is
    what SGD does on its first step, but as tensors that exist before it.
    """
    for name, parameter in learnable.items():
        parameter.requires_grad_(name.startswith(trains))
    training = [p for p in learnable.values() if p.requires_grad]
    if not training:
        raise InputError(f"no parameter learns: none begins with {' or '.join(trains)}.")
    groups = [
        {"params": [p for p in training if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in training if p.ndim <= 1], "weight_decay": 0.0},
    ]
    # A captured step cannot read a number of the host: there the rate is a tensor, which only the fused form takes.
    device = training[0].device
    on_cuda = device.type == "cuda"
    rate = torch.tensor(lr, device=device) if on_cuda else lr
    optimiser = torch.optim.SGD(groups, lr=rate, momentum=momentum, fused=on_cuda)
    if momentum:
        for parameter in training:
            optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimiser


def set_rate(optimiser: torch.optim.Optimizer, lr: float) -> None:
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def momentum_of(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """The momentum of every parameter that learns; empty without momentum."""
    return [state["momentum_buffer"] for state in optimiser.state.values() if "momentum_buffer" in state]


def momentum_tensors(
    optimiser: torch.optim.Optimizer, learnable: dict[str, nn.Parameter]
) -> dict[str, Tensor]:
    """`momentum.NAME` for every parameter that has some."""
    found = {}
    for name, parameter in learnable.items():
        momentum = optimiser.state.get(parameter, {}).get("momentum_buffer")
        if momentum is not None:
            found[f"momentum.{name}"] = momentum
    return found


def restore_momentum(
    optimiser: torch.optim.Optimizer, learnable: dict[str, nn.Parameter], tensors: dict[str, Tensor]
) -> None:
    for name, parameter in learnable.items():
        if f"momentum.{name}" in tensors:
            optimiser.state[parameter]["momentum_buffer"].copy_(tensors[f"momentum.{name}"])
