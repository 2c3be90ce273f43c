"""Killed before each change of a file, or refused it: the same command must go on as if nothing had happened."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

from tools.torture.commands import BY_NAME, COMMANDS, Command, baseline, goes_on, tried
from tools.torture.harness import Campaign, Case
from tools.torture.hooks import Watch
from tools.torture.world import World

QUICK = ("report", "edits")
"""Commands of the short form."""
FOR_EVER = 1 << 30


def _commands(world: World) -> list[Command]:
    return [BY_NAME[name] for name in QUICK] if world.short else list(COMMANDS)


def _points(world: World, seed: int, errors: tuple[int, ...]) -> Iterator[Case]:
    """Every change of every command, in an order of chance, so that a part of them tells of all."""
    cases = []
    for command in _commands(world):
        problems = baseline(world, command)
        if problems:
            cases.append(Case(f"{command.name} undisturbed", problems))
            continue
        for error in errors:
            told = errno.errorcode.get(error, "kill")
            cases += [
                Case(f"{command.name} {told} {n}", (command.name, error, n)) for n in _numbers(world, command)
            ]
    random.Random(seed).shuffle(cases)
    yield from cases


def _numbers(world: World, command: Command) -> list[int]:
    """Numbers of the changes; in the short form not every time that one and the same file is opened."""
    seen: set[str] = set()
    numbers = []
    for number, change in enumerate(world.events[command.name]):
        if not (world.short and change.startswith("open ") and change in seen):
            numbers.append(number)
        seen.add(change)
    return numbers


def _check(world: World, case: Case) -> list[str]:
    if isinstance(case.what, list):
        return case.what
    name, error, number = case.what
    command = BY_NAME[name]
    if problems := baseline(world, command):
        return problems
    world.fresh(*command.kept)
    ended = tried(
        world, command, Watch(at=number, error=error, last=FOR_EVER if error == errno.ENOSPC else 1)
    )
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


STOPS = Campaign(
    "stops",
    "killed before a change of a file",
    lambda world, seed: _points(world, seed, (0,)),
    _check,
    kind="stop points",
    short=-1,
    weight=6,
)
FAULTS = Campaign(
    "faults",
    "the disk is full from a change on, or fails once",
    lambda world, seed: _points(world, seed, (errno.ENOSPC, errno.EIO)),
    _check,
    kind="faults",
    short=6,
    weight=6,
)
