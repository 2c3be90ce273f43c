"""Several processes as one: they are started or joined, features are gathered with their gradient, gradients summed.

`launch` speaks torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), which Slurm scripts and
Ray Train set as well. Where nobody has set it and several processes are asked for, it starts them itself.

Every process computes the same loss on the whole batch. So the gradient of a gathered row is already
complete on the process that owns the row, and only the encoder, which saw a part of the rows, has to
sum its gradients over the processes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from holotype.errors import InputError

T = TypeVar("T")
PARENT = "HOLOTYPE_PARENT"
"""Process that started this one; without it there is nothing to do."""
SECONDS_BETWEEN_LOOKS = 2.0


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def local_rank() -> int:
    """Number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def planned_processes(asked: int) -> int:
    """How many there will be: what a launcher has set, which must not contradict `asked`, or else `asked`."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return asked
    given = int(os.environ["WORLD_SIZE"])
    if asked not in (1, given):
        raise InputError(
            f"--devices {asked} contradicts the launcher, which started {given} processes; leave --devices out."
        )
    return given


def launch(asked: int, backend: str) -> None:
    """Join the processes of this run, after starting the others where no launcher has. Once is enough.

    asked: processes in all. backend: nccl for GPUs, gloo elsewhere.
    """
    processes = planned_processes(asked)
    if processes == 1 or dist.is_initialized():
        return
    if "RANK" not in os.environ:
        _start_others(processes)
    elif PARENT in os.environ:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    dist.init_process_group(backend)
    atexit.register(_leave)
    if backend == "nccl":
        torch.cuda.set_device(local_rank())


def _leave() -> None:
    with contextlib.suppress(RuntimeError, ValueError):
        dist.destroy_process_group()


def _start_others(processes: int) -> None:
    """Run this very command once for every further process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    os.environ.update(
        {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "WORLD_SIZE": str(processes),
            "RANK": "0",
            "LOCAL_RANK": "0",
        }
    )
    others = []
    for number in range(1, processes):
        own = {"RANK": str(number), "LOCAL_RANK": str(number), PARENT: str(os.getpid())}
        others.append(subprocess.Popen(_this_command(), env=os.environ | own))
    threading.Thread(target=_end_with_any, args=(others,), daemon=True).start()
    atexit.register(_wait_for, others)


def _this_command() -> list[str]:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m holotype; the spec of a package's __main__ bears its name
        return [sys.executable, "-m", spec.name.removesuffix(".__main__"), *sys.argv[1:]]
    return [sys.executable, os.path.abspath(sys.argv[0]), *sys.argv[1:]]


def _end_with_parent() -> None:
    """A process whose parent is gone would wait for it for ever."""
    parent = int(os.environ[PARENT])
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)


def _end_with_any(others: list[subprocess.Popen[bytes]]) -> None:
    """End everything where one of the others has failed: the rest would wait for it for ever."""
    while all(other.poll() in (None, 0) for other in others):
        if all(other.poll() == 0 for other in others):
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)
    time.sleep(
        SECONDS_BETWEEN_LOOKS
    )  # most failures happen to all of them, and the first one says its sentence
    _wait_for(others, 0.0)
    os._exit(next(code for code in (other.poll() for other in others) if code) & 0xFF)


def _wait_for(others: list[subprocess.Popen[bytes]], seconds: float = 10.0) -> None:
    """The others end with this process, by themselves or not."""
    for other in others:
        with contextlib.suppress(subprocess.TimeoutExpired):
            other.wait(seconds)
            continue
        other.kill()
        other.wait()


def barrier() -> None:
    """Wait until all processes are here."""
    if world_size() > 1:
        dist.barrier()


def told_by_first(value: T) -> T:
    """What the first process has found, on all of them."""
    if world_size() == 1:
        return value
    told = [value]
    dist.broadcast_object_list(told, src=0)
    return told[0]


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.stack(parts, dim=1).flatten(0, 1)

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad[rank() :: world_size()].contiguous()


def gather_rows(x: Tensor) -> Tensor:
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


def any_process(flag: bool, device: torch.device) -> bool:
    """Has any process raised the flag? All of them get the same answer."""
    if world_size() == 1:
        return flag
    raised = torch.tensor(float(flag), device=device)
    dist.all_reduce(raised)
    return bool(raised > 0)
