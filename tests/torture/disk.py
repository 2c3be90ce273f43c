"""Disks that fill up: a write is cut off in the middle of a file, and the command is killed there or told so.

The system's own limit on the size of files does it, so that libraries which write by themselves meet it as well.
"""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Iterator
from itertools import pairwise

from tests.torture.child import Ended, holotype, in_child
from tests.torture.commands import BY_NAME, COMMANDS, Command, baseline, goes_on
from tests.torture.tally import Campaign, Case
from tests.torture.world import World

QUICK = ("edits",)


def _limits(world: World, seed: int) -> Iterator[Case]:
    """For each command limits at which another file is the first that does not fit, cut anywhere."""
    dice, cases = random.Random(seed), []
    commands = [BY_NAME[name] for name in QUICK] if world.short else COMMANDS
    for command in commands:
        baseline(world, command)
        for low, high in pairwise([0, *world.sizes[command.name]]):
            limit = dice.randrange(low, high)
            cases.append(Case(f"{command.name} {limit}", (command.name, limit)))
    dice.shuffle(cases)
    yield from cases


def _limited(world: World, command: Command, limit: int, killed: bool) -> Ended:
    """The command where no file can be larger than `limit`; killed: at the first byte too many."""
    work = holotype(*command.words(world))

    def starved() -> int:
        world.settle()
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if killed else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        return work()

    return in_child(starved)


def _torn(world: World, case: Case) -> list[str]:
    name, limit = case.what
    command = BY_NAME[name]
    if problems := baseline(world, command):
        return problems
    world.fresh(*command.kept)
    _limited(world, command, limit, killed=True)
    return problems + goes_on(world, command)


def _full(world: World, case: Case) -> list[str]:
    name, limit = case.what
    command = BY_NAME[name]
    if problems := baseline(world, command):
        return problems
    world.fresh(*command.kept)
    problems += _limited(world, command, limit, killed=False).troubles()
    return problems + goes_on(world, command)


TORN = Campaign("torn", "killed in the middle of a write", _limits, _torn, kind="kills", short=6, weight=1.5)
FULL = Campaign(
    "full", "the disk is full in the middle of a write", _limits, _full, kind="faults", short=3, weight=1.5
)
