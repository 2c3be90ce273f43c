"""Commands that are killed, stopped, refused by the disk or raced: the same command must go on as if nothing had
happened."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, pairwise

from tools.torture.harness import Campaign, Case, Strike, Watch, in_child, numbered, survivors
from tools.torture.world import (
    BY_NAME,
    COMMANDS,
    Command,
    World,
    baseline,
    differences,
    goes_on,
    holotype,
    snapshot,
    tried,
)

QUICK = ("edits",)  # commands of the short form
FOR_EVER = 1 << 30


def commands(world: World) -> list[Command]:
    return [BY_NAME[name] for name in QUICK] if world.short else list(COMMANDS)


def _points(world: World, seed: int, errors: tuple[int, ...]) -> Iterator[Case]:
    """Every change of every command, in an order of chance, so that a part of them tells of all; in the short form not
    every time that one and the same file is opened."""
    cases = []
    for command in commands(world):
        baseline(world, command)
        changes = world.events[command.name]
        again = {n for n, one in enumerate(changes) if one.startswith("open ") and one in changes[:n]}
        numbers = [n for n in range(len(changes)) if not (world.short and n in again)]
        for error in errors:
            told = errno.errorcode.get(error, "kill")
            cases += [Case(f"{command.name} {told} {n}", (command.name, error, n)) for n in numbers]
    random.Random(seed).shuffle(cases)
    yield from cases


def _at_point(world: World, case: Case) -> list[str]:
    name, error, number = case.what
    command = BY_NAME[name]
    if problems := baseline(world, command):
        return problems
    world.fresh(*command.kept)
    watch = Watch(at=number, error=error, last=FOR_EVER if error == errno.ENOSPC else 1)
    ended = tried(world, command, watch)
    if error:
        problems += ended.troubles(*command.ends)
        problems += (ended.value or {}).get("outside", [])
    elif ended.signal != 9:  # it changed fewer files than the first time
        problems += ended.troubles(0)
    left = goes_on(world, command)
    return problems + ([problem for problem in left if not _harmless(problem)] if error else left)


def _harmless(problem: str) -> bool:
    """What a fault of the disk may leave: a lock that could not be removed and is free, and no token cache, which is
    made when it is needed and the same command no longer needs."""
    lock, cache = problem.endswith(".lock was left behind"), problem.startswith("cache/holotype/tokens/")
    return lock or (cache and problem.endswith((".tokens is missing", "tokens/ was left behind")))


def limits(world: World, seed: int) -> Iterator[Case]:
    """For each command limits at which another file is the first that does not fit, cut anywhere.

    A case is named by the file's rank and the share of it that fits: its bytes differ by a few from world to world, and
    the name of a failure must repeat it in another.
    """
    cases = []
    for command in commands(world):
        baseline(world, command)
        for rank, (low, high) in enumerate(pairwise([0, *world.sizes[command.name]])):
            share = random.Random(f"{seed} {command.name} {rank}").random()
            limit = low + int(share * (high - low))
            cases.append(Case(f"{command.name} {rank} {share:.3f}", (command.name, limit)))
    random.Random(seed).shuffle(cases)
    yield from cases


def _limited(world: World, case: Case, killed: bool) -> list[str]:
    """Run it where no file can be larger than a limit. killed: at the first byte too many."""
    name, limit = case.what
    command = BY_NAME[name]
    if problems := baseline(world, command):
        return problems
    world.fresh(*command.kept)
    work = holotype(*command.words(world))

    def starved() -> int:
        world.settle()
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if killed else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        return work()

    ended = in_child(starved)
    return ([] if killed else ended.troubles(*command.ends)) + goes_on(world, command)


LONG = ("train", "discover", "round", "bench")
"""Commands in which people wait, and in which chance has many moments."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED = tuple(128 + sign for sign in SIGNALS)  # exit codes of a command that was asked to stop


def _moments(world: World, seed: int, signals: tuple[int, ...]) -> Iterator[Case]:
    """For ever: a command, a signal, a part of the time that it takes, and how often it is struck."""
    dice = random.Random(seed)
    for number in count():
        name = LONG[number % len(LONG)]
        when = (number // len(LONG) % 16 + dice.random()) / 16  # every phase has its turn
        sign = signals[number // 3 % len(signals)]
        yield Case(f"{number}", (name, sign, when, dice.choice((1, 1, 2))))


def _at_moment(world: World, case: Case) -> list[str]:
    name, sign, when, times = case.what
    command, kill = BY_NAME[name], sign == signal.SIGKILL
    if problems := baseline(world, command):
        return problems
    world.fresh(*command.kept)
    for _ in range(times if kill else 1):
        strike = Strike(0.02 + when * world.seconds[name], sign, times=1 if kill else times)
        ended = tried(world, command, strike=strike)
        if not kill and not (ended.signal == sign and sign != signal.SIGINT):
            problems += [f"{signal.Signals(sign).name}: {problem}" for problem in ended.troubles(0, *STOPPED)]
        problems += survivors(ended.session)
    return problems + [f"{name}: {problem}" for problem in goes_on(world, command)]


PAIRED = ("report", "edits", "train", "discover", "labels", "folders", "assign", "embed")


def _fork(*works: Callable[[], int | None]) -> list[int]:
    """Do all of it at once, each in a process of its own; the exit codes."""
    children = []
    for work in works:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = work() or 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _race(world: World, case: Case) -> list[str]:
    """One of the two runs, or one after the other; what is there at the end is what one alone would leave."""
    seed, number = case.what
    name = PAIRED[number % len(PAIRED)]
    late = random.Random(f"pairs {seed} {number}").random() if number % 2 else 0.0
    command = BY_NAME[name]
    if problems := baseline(world, command):
        return problems
    world.fresh(*command.kept)
    work = holotype(*command.words(world))

    def both() -> list[int]:
        world.settle()
        return _fork(work, lambda: time.sleep(late * world.seconds[name]) or work())

    ended = in_child(both)
    codes = sorted(ended.value) if isinstance(ended.value, list) else []
    problems += ended.troubles()
    if codes not in ([0, 0], [0, 2]):
        problems.append(f"the two ended with {codes}: {' '.join(ended.err.split())[-300:]}")
    if codes == [0, 0] and name in ("train", "discover") and late < 0.5:
        problems.append("both of them ran")
    return problems + differences(world.baselines[name], snapshot(world.trial))


KILLED = (signal.SIGKILL,)
FULL = (errno.ENOSPC, errno.EIO)
# fmt: off
CAMPAIGNS = (
    Campaign("torn", "killed in the middle of a write", limits, partial(_limited, killed=True), "kills", 6, 1.5),
    Campaign("full", "the disk is full in the middle of a write", limits, partial(_limited, killed=False), "faults",
             3, 1.5),
    Campaign("stops", "killed before a change of a file", partial(_points, errors=(0,)), _at_point,
             "stop points", 20, 6),
    Campaign("faults", "the disk is full from a change on, or fails once", partial(_points, errors=FULL), _at_point,
             "faults", 6, 6),
    Campaign("kills", "killed at any moment of train, discover, a further round and bench",
             partial(_moments, signals=KILLED), _at_moment, "kills", weight=8),
    Campaign("signals", "SIGINT, SIGTERM and SIGHUP at any moment", partial(_moments, signals=SIGNALS), _at_moment,
             "signals", weight=2),
    Campaign("pairs", "two commands in one folder at once", numbered(), _race, "pairs"),
)
# fmt: on
