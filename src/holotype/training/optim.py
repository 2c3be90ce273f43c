"""SGD as the reference code sets it up, or AdamW, with parameter groups and saved state."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from holotype.errors import InputError
from holotype.methods.base import ParamGroup, Progress
from holotype.methods.schedules import cosine_lr

Parameters = dict[str, nn.Parameter]
BETA2 = 0.999
"""Second beta of AdamW."""
SAVED = {"momentum_buffer": "momentum", "step": "step", "exp_avg": "average", "exp_avg_sq": "square"}
"""Of an optimiser's state, and what a saved state calls it."""


class LightSGD(torch.optim.SGD):
    """torch's SGD, without its compiler, which the decorators of its methods import: more than a second of a start."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.param_groups.append({**self.defaults, **param_group})

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            params = [parameter for parameter in group["params"] if parameter.grad is not None]
            buffers = [self.state[parameter].get("momentum_buffer") for parameter in params]
            sgd(
                params,
                [parameter.grad for parameter in params],
                buffers,
                has_sparse_grad=False,
                **{name: group[name] for name in SGD_SETTINGS},
            )


SGD_SETTINGS = ("foreach", "fused", "weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")


def build_optimiser(
    learnable: Parameters,
    trains: tuple[str, ...],
    lr: float,
    momentum: float,
    weight_decay: float,
    rates: tuple[ParamGroup, ...] = (),
    slowed: float = 1.0,
    block_rate: float = 1.0,
    kind: str = "sgd",
) -> torch.optim.Optimizer:
    """SGD or AdamW over the parameters whose names begin with one of `trains`; all the others are frozen.

    Matrices decay; biases and other one-dimensional parameters do not. Momentum starts at zero, which is
    what SGD does on its first step, but as tensors that exist before it; so does the state of AdamW. rates: for
    parameters with one of their own; slowed: what these are multiplied with, after a restart. block_rate: the rate of a
    block, as a share of that of the block after it. kind: sgd or adamw.
    """
    for name, parameter in learnable.items():
        parameter.requires_grad_(name.startswith(trains))
    training = {name: p for name, p in learnable.items() if p.requires_grad}
    if not training:
        raise InputError(f"no parameter learns: none begins with {' or '.join(trains)}.")
    # those without a rate of their own come before all, and of these the last block and what is in none
    stage = ParamGroup("", None, weight_decay)
    members: dict[tuple[ParamGroup, float], list[nn.Parameter]] = {(r, 1.0): [] for r in (stage, *rates)}
    share = _block_decay(training, block_rate)
    for name, parameter in training.items():
        own = [rate for rate in rates if name.startswith(rate.prefix)]
        rate = max(own, key=lambda rate: len(rate.prefix), default=stage)
        members.setdefault((rate, share[name]), []).append(parameter)
    for rate in rates:
        if not any(found for (one, _), found in members.items() if one is rate):
            raise InputError(f"the rate of {rate.prefix!r} is nobody's: no parameter that learns begins so.")
    # A captured step cannot read a number of the host: there the rate is a tensor, which only the fused form takes.
    device = next(iter(training.values())).device
    on_cuda, groups = device.type == "cuda", []
    for (rate, part), found in members.items():
        decay = weight_decay if rate.weight_decay is None else rate.weight_decay
        full = part * (lr if rate.lr is None else slowed * rate.lr)  # `lr` is slowed already
        for params, decays in (
            ([p for p in found if p.ndim > 1], decay),
            ([p for p in found if p.ndim <= 1], 0.0),
        ):
            start = torch.tensor(full, device=device) if on_cuda else full
            facts = {"lr": start, "full": full, "written": None, "rate": rate}
            groups.append({"params": params, "weight_decay": decays, **facts})
    if kind == "adamw":
        adam = torch.optim.AdamW(groups, lr=lr, betas=(momentum, BETA2), fused=on_cuda, capturable=on_cuda)
        for parameter in training.values():
            steps = torch.zeros((), device=device if on_cuda else "cpu")
            averages = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            adam.state[parameter] = {"step": steps, **averages}
        return adam
    optimiser = LightSGD(groups, lr=lr, momentum=momentum, fused=on_cuda)
    if momentum:
        for parameter in training.values():
            optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimiser


def _block_decay(names: Collection[str], block_rate: float) -> dict[str, float]:
    """1 for the last of the blocks (`...blocks.11...`) and for what is in none, block_rate for the one before, ..."""
    block = {name: int(found[1]) for name in names if (found := re.search(r"(?:^|\.)blocks\.(\d+)\.", name))}
    last = max(block.values(), default=0)
    return {name: block_rate ** (last - block.get(name, last)) for name in names}


def current_rate(group: dict[str, Any], warmup: float, at: Progress) -> float:
    """The rate of a group of parameters at a moment. warmup: share of the epochs, of the loop's own pace."""
    full: float = group["full"]
    pace = group["rate"].pace
    return cosine_lr(full, at.epoch, at.epochs, warmup) if pace is None else full * pace(at)


def logged_rate(optimiser: torch.optim.Optimizer, warmup: float, at: Progress) -> float:
    """The rate that a log tells: of the parameters that learn at the stage's rate, whatever their pace; where there are
    none, of the first group."""
    groups = [group for group in optimiser.param_groups if group["params"]]
    own = (group for group in groups if not group["rate"].prefix or group["rate"].lr is None)
    return current_rate(next(own, groups[0]), warmup, at)


def set_rates(optimiser: torch.optim.Optimizer, warmup: float, at: Progress) -> None:
    """Write the rates in force at a moment, where they have changed."""
    for group in optimiser.param_groups:
        rate = current_rate(group, warmup, at)
        if rate == group["written"]:
            continue
        group["written"] = rate
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def state_of(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """What the optimiser remembers of every parameter that learns; empty for SGD without momentum."""
    return [state[key] for state in optimiser.state.values() for key in SAVED if key in state]


def state_tensors(optimiser: torch.optim.Optimizer, learnable: Parameters) -> dict[str, Tensor]:
    """`momentum.NAME` for every parameter that has some; of AdamW `step.NAME` and the two averages."""
    return {
        f"{prefix}.{name}": state[key]
        for name, parameter in learnable.items()
        for key, prefix in SAVED.items()
        if key in (state := optimiser.state.get(parameter, {}))
    }


def restore_state(
    optimiser: torch.optim.Optimizer, learnable: Parameters, tensors: dict[str, Tensor]
) -> None:
    """Take over what `state_tensors` gave."""
    for name, value in state_tensors(optimiser, learnable).items():
        if name in tensors:
            value.copy_(tensors[name])


def reset_parameters(learnable: Parameters, initial: dict[str, Tensor], prefixes: tuple[str, ...]) -> None:
    """Set the parameters whose names begin so back to their initial values."""
    for name, parameter in learnable.items():
        if prefixes and name.startswith(prefixes):
            parameter.data.copy_(initial[name])
