"""Run numbered shards, one after the other in this process or on a Ray cluster.

A job is a plain object that can be pickled. It does one slice when it is called with its number, writes the answer to
disk, and returns a few words for the summary; what is wrong with one image is part of the answer, and no exception. Its
method `ready` raises InputError where a process cannot do slices at all. Whoever is killed in between has lost the
slices under way, no more.

Ray starts long-lived workers, which do one slice at a time. Where one falls, a new one is started as soon as there is
room, and what it had under way goes back to the others. Nothing is kept in Ray: what is done lies on the disk that all
machines share, and a driver that dies has lost nothing but the slices under way. Where workers could only wait for
ever, one sentence says so instead.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import signal
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from holotype.errors import InputError, Stopped
from holotype.utils.device import limit_threads

MAX_CONSECUTIVE_FAILURES = 8
"""Slices that fail with none done in between, after which the rest is not tried: a full disk fails them all."""

log = logging.getLogger("holotype")

OnDone = Callable[[int, Any], None]
"""Is told the number of a slice that was done, and what the job returned."""
OnFailed = dict[int, str]
"""Numbers of slices to the reason why they could not be done."""
Executor = Callable[[Iterable[int], OnDone], OnFailed]
"""Does slices of a job that it knows."""


def run_shards(job: Callable[[int], Any], numbers: Iterable[int], done: OnDone) -> OnFailed:
    """Do slices in this process. A stop that was asked for ends it; any other exception is that slice's failure."""
    failed: OnFailed = {}
    in_a_row = 0
    for number in numbers:
        try:
            answer = job(number)
        except Stopped:
            raise
        except Exception as error:
            failed[number], in_a_row = error_reason(error), in_a_row + 1
            if in_a_row == MAX_CONSECUTIVE_FAILURES:
                break
            continue
        in_a_row = 0
        done(number, answer)
    return failed


def error_reason(error: BaseException) -> str:
    """Return one line on an error."""
    said = " ".join(str(error).split())[:400]
    return said if isinstance(error, InputError) else f"{type(error).__name__}: {said}"


def shard_of_process(text: str) -> tuple[int, int]:
    """Parse the value of --only: `2/4` is every fourth slice, from the second on; (1, 4), counted from 0."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(f"--only {text} is no share of the work; write i/n with i from 1 to n, as in 2/4.")
    return int(found[1]) - 1, int(found[2])


LOCAL_CLUSTER = "local"
"""What Ray calls a cluster of this machine alone, which it starts."""
SECONDS_TO_ANSWER = 5.0
"""An address answers within this, or is taken for dead."""
SECONDS_TO_START = 120.0
"""In which a worker must have started."""
SECONDS_TO_RETURN = 180.0
"""For which all workers may be away at once, as when a node starts again."""
MAX_RESTARTS = 3
"""Workers that may fall over one slice before it counts as failed: it may be the slice that fells them."""
PING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""What HTTP/2, which Ray speaks, begins with; the other side begins with a frame of the kind 4."""


class Worker:
    """One process of the cluster."""

    def __init__(self, job: Any, cpus: int) -> None:
        limit_threads(cpus)
        self.job = job

    def ready(self) -> None:
        self.job.ready()

    def do(self, number: int) -> tuple[Any, str]:
        """Return the answer, or the reason why there is none."""
        try:
            return self.job(number), ""
        except Exception as error:
            return None, error_reason(error)


def check_installed() -> None:
    if importlib.util.find_spec("ray") is None:
        raise InputError("--engine ray needs Ray, which is not installed; pip install 'holotype[ray]'.")


@contextmanager
def ray_session(job: Any, address: str | None, actors: int | None, *, gpus: bool) -> Iterator[Executor]:
    """Yield an engine whose workers are there. gpus: each has one, where the cluster has any. Raises InputError where
    the cluster does not answer, or cannot hold so many workers."""
    check_installed()
    # by itself Ray would join whichever cluster runs on this machine, and fall with it
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL_CLUSTER
    _check_responds(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    own = {"include_dashboard": False} if address == LOCAL_CLUSTER else {}
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, RuntimeError, ValueError) as error:
        where = "on this machine" if address == LOCAL_CLUSTER else f"at {address}"
        raise InputError(f"Ray {where} cannot be used ({error_reason(error)}).") from error
    finally:
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)  # Ray sets its own, which would not save anything
    try:
        yield partial(_run, ray, *_start(ray, job, actors, gpus))
    finally:
        ray.shutdown()


def _check_responds(address: str) -> None:
    """Ray itself tries for two minutes."""
    if address in ("auto", LOCAL_CLUSTER):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER) as line:
            line.sendall(PING)
            answer = line.recv(9)
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"No Ray cluster answers at {address} ({error}); check --ray-address.") from error
    if len(answer) < 4 or answer[3] != 4:
        raise InputError(f"What answers at {address} is no Ray cluster; check --ray-address.")


def _start(ray: Any, job: Any, actors: int | None, gpus: bool) -> tuple[Callable[[], Any], list[Any]]:
    """Return what makes a worker, and workers that have answered."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpu = gpus and any(node.get("GPU", 0) >= 1 for node in nodes)
    useful = [node for node in nodes if not gpu or node.get("GPU", 0) >= 1]
    shares = [node.get("CPU", 0) / max(node.get("GPU", 0), 1) for node in useful]
    cpus = max(int(min(shares, default=1)), 1) if gpu else 1
    fit = sum(int(min(node.get("CPU", 0) // cpus, node.get("GPU", 0) if gpu else 1e9)) for node in nodes)
    if fit < (actors or 1):
        what = "a GPU and its share of the CPUs" if gpu else "a CPU"
        room = f"The Ray cluster has room for {fit} workers, {what} each"
        raise InputError(f"{room}, and {actors or 1} would wait for ever; lower --actors, or add nodes.")
    make = partial(ray.remote(num_cpus=cpus, num_gpus=int(gpu))(Worker).remote, job, cpus)
    pings = {worker.ready.remote(): worker for worker in (make() for _ in range(actors or fit))}
    there, _ = ray.wait(list(pings), num_returns=len(pings), timeout=SECONDS_TO_START)
    if not there:
        raise InputError(f"No worker has started in {SECONDS_TO_START:.0f} s, since others use the cluster.")
    try:
        ray.get(there)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        told = f"A worker could not start ({error_reason(error)}); every node needs the same versions of Python, Ray "
        raise InputError(str(cause) if isinstance(cause, InputError) else f"{told}and Holotype.") from error
    return make, [pings[ping] for ping in there]


def _run(ray: Any, make: Any, idle: list[Any], numbers: Iterable[int], done: OnDone) -> OnFailed:
    """Hand out slices until all are done. Where a worker falls, a new one gets slices once it has answered."""
    failed: OnFailed = {}
    waiting, falls = deque(numbers), Counter[int]()
    in_a_row, under_way = 0, dict[Any, tuple[Any, int | None]]()
    while in_a_row < MAX_CONSECUTIVE_FAILURES:
        while idle and waiting:
            task = idle.pop(), waiting.popleft()
            under_way[task[0].do.remote(task[1])] = task
        working = any(number is not None for _, number in under_way.values())
        if not working and not waiting:
            break
        timeout = None if working else SECONDS_TO_RETURN
        found = ray.wait(list(under_way), timeout=timeout)[0] if under_way else []
        if not found:
            failed |= dict.fromkeys(waiting, "no worker of the cluster is left")
            break
        worker, number = under_way.pop(found[0])
        answer = None
        try:
            answer, reason = ray.get(found[0]) or (None, "")
            idle.append(worker)
        except ray.exceptions.RayError as error:
            if number is None:
                continue
            worker = make()
            under_way[worker.ready.remote()] = (worker, None)
            falls[number] += 1
            if falls[number] < MAX_RESTARTS:
                waiting.append(number)
                continue
            reason = f"{MAX_RESTARTS} workers fell over it ({error_reason(error)})"
        if number is not None and reason:
            failed[number], in_a_row = reason, in_a_row + 1
        elif number is not None:
            in_a_row = 0
            done(number, answer)
    return failed
