"""Collective operations over the processes of a run: rank, broadcast, all-gather with gradients.

Whatever waits for the other processes must be reached by all of them: never call it in a branch on what one process
alone knows, such as its files or its free memory.

Every process computes the same loss on the whole batch. So the gradient of a gathered row is already
complete on the process that owns the row, and only the encoder, which saw a part of the rows, has to
sum its gradients over the processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holotype.errors import InputError

T = TypeVar("T")


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def local_rank() -> int:
    """Number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_world_size() -> int:
    """Processes of this run on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", world_size())) if world_size() > 1 else 1


def broadcast_object(value: T) -> T:
    """What the first process has found, on all of them."""
    if world_size() == 1:
        return value
    told = [value]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def run_on_rank0(find: Callable[[], T]) -> T:
    """What the first process finds when it looks, on all of them; a fault of the input is raised on all of them."""
    found: T | InputError | None = None
    if rank() == 0:
        try:
            found = find()
        except InputError as error:
            found = error
    found = broadcast_object(found)
    if isinstance(found, InputError):
        raise found
    return cast(T, found)


def all_gather_object(value: T) -> list[T]:
    """What each process has found, in the order of their numbers, on all of them."""
    if world_size() == 1:
        return [value]
    told: list[Any] = [None] * world_size()
    dist.all_gather_object(told, value)
    return told


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.stack(parts, dim=1).flatten(0, 1)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad[rank() :: world_size()].contiguous()


def all_gather_rows(x: Tensor) -> Tensor:
    """(b, ...) rows `rank::world` of a batch -> the whole batch (b * world, ...), in its own order."""
    if world_size() == 1:
        return x
    gathered: Tensor = _GatherRows.apply(x)
    return gathered


def local_rows(x: Tensor) -> Tensor:
    """The rows of a batch that this process encodes."""
    return x[rank() :: world_size()]


def sum_gradients(encoder: Iterable[nn.Parameter], heads: Iterable[nn.Parameter]) -> None:
    """Make gradients whole: summed over processes in the encoder, equal everywhere in the heads.

    The heads' gradients are equal by construction; averaging them keeps rounding from driving the
    processes apart.
    """
    if world_size() == 1:
        return
    for parameter in encoder:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
    for parameter in heads:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world_size()


def any_rank(flag: bool, device: torch.device) -> bool:
    """Has any process raised the flag? All of them get the same answer."""
    if world_size() == 1:
        return flag
    raised = torch.tensor(float(flag), device=device)
    dist.all_reduce(raised)
    return bool(raised > 0)
