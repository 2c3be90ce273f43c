"""Disks that fill up: a write is cut off in the middle of a file, and the command is killed there or told so.

The system's own limit on the size of files does it, so that libraries which write by themselves meet it as well.
"""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Iterator
from itertools import pairwise

from tools.torture.child import Ended, holotype, in_child
from tools.torture.commands import BY_NAME, COMMANDS, Command, baseline, goes_on
from tools.torture.harness import Campaign, Case
from tools.torture.world import World

QUICK = ("edits",)


def _limits(world: World, seed: int) -> Iterator[Case]:
    """For each command limits at which another file is the first that does not fit, cut anywhere.

    A case is named by the file's rank and the share of it that fits: its bytes differ by a few from world to world, and
    the name of a failure must repeat it in another.
    """
    cases = []
    commands = [BY_NAME[name] for name in QUICK] if world.short else COMMANDS
    for command in commands:
        baseline(world, command)
        for rank, (low, high) in enumerate(pairwise([0, *world.sizes[command.name]])):
            share = random.Random(f"{seed} {command.name} {rank}").random()
            limit = low + int(share * (high - low))
            cases.append(Case(f"{command.name} {rank} {share:.3f}", (command.name, limit)))
    random.Random(seed).shuffle(cases)
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
    problems += _limited(world, command, limit, killed=False).troubles(*command.ends)
    return problems + goes_on(world, command)


TORN = Campaign("torn", "killed in the middle of a write", _limits, _torn, kind="kills", short=6, weight=1.5)
FULL = Campaign(
    "full", "the disk is full in the middle of a write", _limits, _full, kind="faults", short=3, weight=1.5
)
