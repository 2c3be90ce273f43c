"""Killed, or asked to stop, at any moment: training, discovery and whatever takes long go on to the same bits."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator

from tools.torture.child import Strike, survivors
from tools.torture.commands import BY_NAME, baseline, goes_on, tried
from tools.torture.harness import Campaign, Case
from tools.torture.world import World

LONG = ("train", "discover", "round", "bench")
"""Commands in which people wait, and in which chance has many moments."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED = tuple(128 + sign for sign in SIGNALS)
"""Exit codes of a command that was asked to stop."""


def _moments(world: World, seed: int, signals: tuple[int, ...]) -> Iterator[Case]:
    """For ever: a command, a signal, a part of the time that it takes, and how often it is struck."""
    dice, number = random.Random(seed), 0
    while True:
        name = LONG[number % len(LONG)]
        when = (number // len(LONG) % 16 + dice.random()) / 16  # every phase has its turn
        sign = signals[number // 3 % len(signals)]
        yield Case(f"{number}", (name, sign, when, dice.choice((1, 1, 2))))
        number += 1


def _check(world: World, case: Case) -> list[str]:
    name, sign, when, times = case.what
    command = BY_NAME[name]
    if problems := baseline(world, command):
        return problems
    world.fresh(*command.kept)
    for _ in range(times if sign == signal.SIGKILL else 1):
        after = 0.02 + when * world.seconds[name]
        ended = tried(
            world, command, strike=Strike(after, sign, times=1 if sign == signal.SIGKILL else times)
        )
        if sign != signal.SIGKILL and not (ended.signal == sign and sign != signal.SIGINT):
            problems += [f"{signal.Signals(sign).name}: {problem}" for problem in ended.troubles(0, *STOPPED)]
        problems += survivors(ended.session)
    return problems + [f"{name}: {problem}" for problem in goes_on(world, command)]


KILLS = Campaign(
    "kills",
    "killed at any moment of train, discover, a further round and bench",
    lambda world, seed: _moments(world, seed, (signal.SIGKILL,)),
    _check,
    kind="kills",
    weight=8,
)
ASKED = Campaign(
    "signals",
    "SIGINT, SIGTERM and SIGHUP at any moment",
    lambda world, seed: _moments(world, seed, SIGNALS),
    _check,
    kind="signals",
    weight=2,
)
