"""Start or join the processes of one run, and end them together.

It is `import holotype` that begins to watch, long before torch is there: a process that was killed right after it had
started others leaves none of them behind.

`launch` speaks torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), which Slurm scripts and
Ray Train set as well. Where nobody has set it and several processes are asked for, it starts them itself: this very
command, once for each. Then none of them outlives the others: a further process ends when the first is gone, and the
first ends when a further one has failed, because it would wait for it for ever.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

from holotype.errors import InputError
from holotype.utils.signals import STOP_SIGNALS

PARENT = "HOLOTYPE_PARENT"
"""Process that started this one; without it there is nothing to do."""
PARENT_POLL_SECONDS = 1.0

_watcher = ""


def watch_parent() -> bool:
    """Watch from now on, where there is somebody to watch; once is enough. Whether there is."""
    global _watcher
    parent = os.environ.pop(PARENT, "")  # what this process starts itself is not the parent's
    if parent.isdecimal() and not _watcher:
        _watcher = parent
        threading.Thread(target=_exit_with_parent, args=(int(parent),), daemon=True).start()
    return bool(_watcher)


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    os._exit(1)


LOOPBACK = "127.0.0.1"
LONGEST_WAIT = timedelta(hours=6)
"""For each other. One process may have to write a token cache for all of them; one that is gone is noticed sooner."""
DELIBERATE_EXITS = (2, *(128 + number for number in STOP_SIGNALS))
"""Exit codes of bad input and of a stop, which all processes come to by themselves."""
GRACE = {True: 120.0, False: 4.0}
"""Seconds that the first process has to end by itself after another has, deliberately or not: it may be writing the
state, or about to say what is wrong."""
FEW_LINES = 8
"""Processes that any machine can start, whatever its cores."""
LAST_SECONDS = 10.0
"""That the others have to end after the first one."""

Workers = Sequence["subprocess.Popen[bytes]"]


def process_count(asked: int) -> int:
    """How many there will be: what a launcher has set, which must not contradict `asked`, or else `asked`."""
    if not _is_launched():
        return asked
    try:
        given, number = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    except ValueError as error:
        raise InputError(
            f"RANK and WORLD_SIZE must be numbers, which a launcher sets ({error}); unset them to start without one."
        ) from error
    if not 0 <= number < given:
        raise InputError(
            f"RANK is {number}, but WORLD_SIZE is {given}; unset them to start without a launcher."
        )
    if asked not in (1, given):
        raise InputError(
            f"--devices {asked} contradicts the launcher, which started {given} processes; leave --devices out."
        )
    return given


def launch(asked: int, backend: str) -> None:
    """Join the processes of this run, after starting the others where no launcher has. Once is enough.

    asked: processes in all. backend: nccl for GPUs, gloo elsewhere.
    """
    processes = process_count(asked)
    if processes == 1 or dist.is_initialized():
        return
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) if _is_launched() else 0)
    if not _is_launched():
        store = _start_workers(processes)
    elif watch_parent():
        store = dist.TCPStore(LOOPBACK, int(os.environ["MASTER_PORT"]), processes, timeout=LONGEST_WAIT)
    else:
        store = None
    if store is None:
        dist.init_process_group(backend, timeout=LONGEST_WAIT)
    else:
        number = int(os.environ["RANK"])
        dist.init_process_group(backend, store=store, rank=number, world_size=processes, timeout=LONGEST_WAIT)
    atexit.register(_exit)


def _is_launched() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def _exit() -> None:
    with contextlib.suppress(RuntimeError, ValueError):
        dist.destroy_process_group()


def _start_workers(processes: int) -> dist.TCPStore:
    """Run this very command once for every further process; returns where they meet."""
    cores = os.cpu_count() or 1
    if processes > max(cores, FEW_LINES):
        raise InputError(f"{processes:,} processes are more than the {cores} cores here; lower --devices.")
    command = _this_command(processes)
    # the system chooses the port: one that was free a moment ago may be somebody else's by now
    store = dist.TCPStore(
        LOOPBACK, 0, processes, is_master=True, timeout=LONGEST_WAIT, wait_for_workers=False
    )
    os.environ.update(
        {
            "MASTER_ADDR": LOOPBACK,
            "MASTER_PORT": str(store.port),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "RANK": "0",
            "LOCAL_RANK": "0",
        }
    )
    others: list[subprocess.Popen[bytes]] = []
    atexit.register(_end_workers, others)  # also those of a start that fails half-way
    for number in range(1, processes):
        own = {"RANK": str(number), "LOCAL_RANK": str(number), PARENT: str(os.getpid())}
        others.append(subprocess.Popen(command, env=os.environ | own))
    threading.Thread(target=_end_with_first, args=(others,), daemon=True).start()
    return store


def _this_command(processes: int) -> list[str]:
    """As it was typed. A session in which people type line by line cannot be started again."""
    main = sys.modules["__main__"]
    if hasattr(sys, "ps1") or not (hasattr(main, "__file__") or "-c" in sys.orig_argv):
        raise InputError(
            f"{processes} processes cannot be started from an interactive session; put the call into a script, or use "
            "one device."
        )
    return [sys.executable, *sys.orig_argv[1:]]


def _end_with_first(others: Workers) -> None:
    """In the first process: end when another has failed, and take the rest along."""
    while not (failed := _failed(others)):
        if all(other.poll() == 0 for other in others):
            return
        time.sleep(PARENT_POLL_SECONDS)
    time.sleep(GRACE[all(code in DELIBERATE_EXITS for code in failed.values())])
    _end_workers(others, seconds=0.0)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    code = next(iter(failed.values()))
    os._exit(code if 0 < code < 256 else 1)


def _failed(others: Workers) -> dict[int, int]:
    """Exit code of each process that has failed, by its number; 128 + n where signal n has ended it."""
    codes = {number: other.poll() for number, other in enumerate(others, start=1)}
    return {number: code if code > 0 else 128 - code for number, code in codes.items() if code}


def _end_workers(others: Workers, seconds: float = LAST_SECONDS) -> None:
    """The others end with this process, by themselves or not; one that failed alone is named.

    Named after it was waited for: the talk with a process breaks off a moment before it counts as ended.
    """
    deadline = time.monotonic() + seconds
    for number, other in enumerate(others, start=1):
        try:
            other.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            other.kill()
            other.wait()
            continue
        code = _failed(others).get(number, 0)
        if code and code not in DELIBERATE_EXITS:
            print(f"Process {number} of this run failed (exit code {code}).", file=sys.stderr, flush=True)
