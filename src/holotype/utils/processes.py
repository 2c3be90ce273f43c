"""Processes of a run: signals that ask them to stop, start or join the others, and end together.

Ctrl-C, SIGTERM and SIGHUP are taken the same way: what can be saved is saved, and the exit code is 128 and the number
of the signal. A signal that is ignored, as `nohup` does with SIGHUP, stays ignored.

`launch` speaks torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), which Slurm scripts and
Ray Train set as well. Where nobody has set it and several processes are asked for, it starts the others itself: this
very command, once for each. This process stays the first, since it holds the folder and returns the result to its
caller; torch's launcher would make it a supervisor, and would kill the first while it writes the state because another
has stopped. None outlives the others: a further process ends when the first is gone, and the first ends when a further
one has failed, because it would wait for it for ever. `import holotype` begins to watch, long before torch is there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from holotype.errors import InputError, Interrupted

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)

_last_signal: Interrupted | None = None


def handled_signals() -> tuple[signal.Signals, ...]:
    """Return those that this process can take, and does not ignore on somebody's wish."""
    if threading.current_thread() is not threading.main_thread():
        return ()
    hangup = getattr(signal, "SIGHUP", None)
    return tuple(n for n in STOP_SIGNALS if n != hangup or signal.getsignal(n) != signal.SIG_IGN)


@contextmanager
def interrupting() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does, where they would end the process at once."""
    global _last_signal
    before, _last_signal = {}, None
    for number in handled_signals():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            before[number] = signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_signal() -> Interrupted | None:
    """Return the last signal that has interrupted: a library may have made an error of its own of it."""
    return _last_signal


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _last_signal
    _last_signal = Interrupted(number)
    raise _last_signal


PARENT = "HOLOTYPE_PARENT"
"""Process that started this one; without it there is nothing to do."""
PARENT_POLL_SECONDS = 1.0
LOOPBACK = "127.0.0.1"
LONGEST_WAIT = timedelta(hours=6)
"""For each other. One process may have to write a token cache for all of them; one that is gone is noticed sooner."""
DELIBERATE_EXITS = (2, *(128 + number for number in STOP_SIGNALS))
"""Exit codes of bad input and of a stop, which all processes come to by themselves."""
GRACE = {True: 120.0, False: 4.0}
"""Seconds that the first process has to end by itself after another has, deliberately or not: it may be writing the
state, or about to say what is wrong."""
MIN_PROCESS_LIMIT = 8
"""Processes that any machine can start, whatever its cores."""
LAST_SECONDS = 10.0
"""That the others have to end after the first one."""

Workers = Sequence["subprocess.Popen[bytes]"]
_meeting_place: object = None
"""The server that the processes of a run find each other by, as long as this process lives."""


def watch_parent() -> None:
    """End this process with the one that started it, where that is the first of a run; once is enough."""
    parent = os.environ.pop(PARENT, "")  # what this process starts itself is not the parent's
    if parent.isdecimal():
        threading.Thread(target=_exit_with_parent, args=(int(parent),), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    os._exit(1)


def process_count(asked: int) -> int:
    """Return how many there will be: what a launcher has set, which must not contradict `asked`, or else `asked`."""
    if not _is_launched():
        return asked
    rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise InputError(f"RANK is {rank!r} and WORLD_SIZE {world!r}, not numbers of a launcher; unset them.")
    if asked not in (1, int(world)):
        raise InputError(f"--devices {asked} contradicts the launcher's {world} processes; leave it out.")
    return int(world)


def launch(asked: int, backend: str) -> None:
    """Join the processes of this run, after starting the others where no launcher has. Once is enough.

    asked: processes in all. backend: nccl for GPUs, gloo elsewhere.
    """
    import torch
    import torch.distributed as dist

    processes = process_count(asked)
    if processes == 1 or dist.is_initialized():
        return
    if not _is_launched():
        _start_workers(processes)
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group(backend, timeout=LONGEST_WAIT)
    atexit.register(_leave_group)


def _is_launched() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def _leave_group() -> None:
    import torch.distributed as dist

    with contextlib.suppress(RuntimeError, ValueError):
        dist.destroy_process_group()


def _start_workers(processes: int) -> None:
    """Run this very command once for every further process, in an environment as a launcher sets it."""
    from torch.distributed import TCPStore

    global _meeting_place
    cores = os.cpu_count() or 1
    if processes > max(cores, MIN_PROCESS_LIMIT):
        raise InputError(f"{processes:,} processes are more than the {cores} cores here; lower --devices.")
    command = _this_command(processes)
    # the system chooses the port: one that was free a moment ago may be somebody else's by now
    _meeting_place = TCPStore(LOOPBACK, 0, None, is_master=True, timeout=LONGEST_WAIT)
    os.environ |= {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(_meeting_place.port), "RANK": "0"}
    os.environ |= {"LOCAL_RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True"}  # the first joins its own store
    os.environ |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(processes))
    others: list[subprocess.Popen[bytes]] = []
    atexit.register(_end_workers, others)  # also those of a start that fails half-way
    for number in map(str, range(1, processes)):
        extra = {"RANK": number, "LOCAL_RANK": number, PARENT: str(os.getpid())}
        others.append(subprocess.Popen(command, env=os.environ | extra))
    threading.Thread(target=_end_with_first, args=(others,), daemon=True).start()


def _this_command(processes: int) -> list[str]:
    """Return it as it was typed. A session in which people type line by line cannot be started again."""
    main = sys.modules["__main__"]
    if hasattr(sys, "ps1") or not (hasattr(main, "__file__") or "-c" in sys.orig_argv):
        raise InputError("Several processes cannot be started from an interactive session; write a script.")
    return [sys.executable, *sys.orig_argv[1:]]


def _end_with_first(others: Workers) -> None:
    """End the first process when another has failed, and take the rest along."""
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
    """Return the exit code of each process that has failed, by its number; 128 + n where signal n has ended it."""
    codes = {number: other.poll() for number, other in enumerate(others, start=1)}
    return {number: code if code > 0 else 128 - code for number, code in codes.items() if code}


def _end_workers(others: Workers, seconds: float = LAST_SECONDS) -> None:
    """End the others with this process; one that failed alone is named.

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
