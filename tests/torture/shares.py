"""Processes that share the work of a campaign: each tells at once what came of it, and the first one keeps it."""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path

from tests.torture.commands import edits_file
from tests.torture.tally import Budget, Campaign, Tally, run
from tests.torture.world import make_world

OFTEN = 1.0
"""Seconds between two messages of a process to the first one, where nothing was lost in between."""


def share(
    given: argparse.Namespace, chosen: list[Campaign], number: int, jobs: int
) -> tuple[int, Connection]:
    """Start one of the processes; returns its number and the end of a pipe from which its tallies come."""
    reads, writes = Pipe(duplex=False)
    if child := os.fork():
        writes.close()
        return child, reads
    code = 1
    try:
        reads.close()
        work(given, chosen, number, jobs, writes)
        code = 0
    except (KeyboardInterrupt, BrokenPipeError):  # the first one is gone
        code = 130
    finally:
        sys.stdout.flush()
        if code == 1:
            import traceback

            traceback.print_exc()
        os._exit(code)


def work(
    given: argparse.Namespace, chosen: list[Campaign], number: int, jobs: int, writes: Connection
) -> None:
    """Every campaign, with a share of the time that fits its weight; what one leaves over, the next ones have."""
    base = Path(tempfile.mkdtemp(prefix="holotype-torture-"))
    try:
        until = time.monotonic() + 60 * given.minutes
        world = make_world(base / "world", given.short)
        edits_file(world)  # here, since a child that made it would write elsewhere than it may
        gc.collect()
        gc.freeze()  # else every child would copy what it only looks through
        for place, campaign in enumerate(chosen):
            left = until - time.monotonic()
            part = left * campaign.weight / sum(c.weight for c in chosen[place:])
            budget = Budget(max(part, 1.0), share=number, of=jobs, only=given.case)
            if given.short or given.case:
                budget = Budget(
                    cases=campaign.short if given.short and not given.case else -1, only=given.case
                )
            tally = run(campaign, world, given.seed, budget, Teller(number, writes))
            writes.send(tally)
            say(tally, number)
    finally:
        shutil.rmtree(base, ignore_errors=True)


class Teller:
    """Says what was lost as soon as it was, and tells the first process how far it is."""

    def __init__(self, number: int, writes: Connection) -> None:
        self.number, self.writes = number, writes
        self.failures, self.sent = 0, time.monotonic()

    def __call__(self, tally: Tally) -> None:
        new = tally.failures[self.failures :]
        self.failures = len(tally.failures)
        for failure in new:
            said = " ".join(failure.problems[0].split())[:300]
            print(f"[{self.number + 1}] LOST: {failure.again}  # {said}", file=sys.stderr, flush=True)
        if new or time.monotonic() - self.sent > OFTEN:
            self.writes.send(tally)
            self.sent = time.monotonic()


def say(tally: Tally, number: int) -> None:
    told = (
        tally.skipped
        or f"{tally.tried} tried, {tally.lost} lost in {tally.seconds:.0f} s ({tally.cpu:.0f} s CPU)"
    )
    print(f"[{number + 1}] {tally.campaign}: {told}", file=sys.stderr, flush=True)


def gather(
    started: Sequence[tuple[int, Connection]], chosen: list[Campaign], keep: Callable[[list[Tally]], None]
) -> tuple[list[Tally], bool]:
    """What all processes have tried, and whether each came to its end. keep: what is done with it on the way."""
    latest: list[dict[str, Tally]] = [{} for _ in started]
    pipes = {reads: of_one for (_, reads), of_one in zip(started, latest, strict=True)}
    try:
        while pipes:
            for reads in wait(list(pipes)):
                assert isinstance(reads, Connection)
                try:
                    tally = reads.recv()
                except EOFError:
                    del pipes[reads]
                    continue
                pipes[reads][tally.campaign] = tally
                keep(together(latest, chosen))
    except KeyboardInterrupt:  # they end with the case at hand, when nobody hears them any more
        for reads in pipes:
            reads.close()
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 for child, _ in started]
    return together(latest, chosen), all(ended)


def together(latest: list[dict[str, Tally]], chosen: list[Campaign]) -> list[Tally]:
    """The sum of what the processes have told so far; a campaign that has not begun has tried nothing."""
    whole = []
    for campaign in chosen:
        parts = [of_one[campaign.name] for of_one in latest if campaign.name in of_one]
        tally = Tally(campaign.name, campaign.kind, whole=len(parts) == len(latest))
        for part in parts:
            tally.add(part)
            tally.skipped = part.skipped
        whole.append(tally)
    return whole
