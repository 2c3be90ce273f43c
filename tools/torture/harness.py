"""The harness of all campaigns: cases that can be repeated one by one, many of them in one child, and their count."""

from __future__ import annotations

import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.torture.child import in_child
from tools.torture.hooks import Watch

if TYPE_CHECKING:
    from tools.torture.world import World


@dataclass(frozen=True)
class Case:
    """One thing that is tried. The same seed gives the same cases under the same keys."""

    key: str
    what: Any = None
    """Whatever the campaign needs to try it."""
    counts: int = 1
    """How many inputs it stands for: a batch of images is one case and many inputs."""


@dataclass(frozen=True)
class Campaign:
    """A way to break things. `cases` may go on for ever; the budget ends it."""

    name: str
    """One word, for the table and for --only."""
    about: str
    """What is tried, for the table."""
    cases: Callable[[World, int], Iterator[Case]]
    """(world, seed) -> what is tried, in the order in which it is."""
    check: Callable[[World, Case], list[str]]
    """Try one; a sentence for everything that was lost. [] = it survived."""
    kind: str = "inputs"
    """kills, stop points, faults, inputs, command lines, names, ...: the column of the record that it counts in."""
    short: int = 0
    """Cases in the short form, which `make test` runs; 0 = none, -1 = all."""
    weight: float = 1.0
    """Share of the time of the long form."""


@dataclass
class Failure:
    """Something that was lost, and the command that shows it again."""

    campaign: str
    case: str
    problems: list[str]
    again: str


@dataclass
class Tally:
    """What came of a campaign."""

    campaign: str
    kind: str
    tried: int = 0
    lost: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    """Seconds of the processor, with those of the children."""
    whole: bool = False
    """Whether every case there is was tried."""
    failures: list[Failure] = field(default_factory=list)

    @property
    def survived(self) -> int:
        return self.tried - self.lost


@dataclass(frozen=True)
class Budget:
    """How much is tried."""

    seconds: float = float("inf")
    cases: int = -1
    """-1 = as many as there are."""
    only: str = ""
    """Key of the one case to try."""


def run(campaign: Campaign, world: World, seed: int, budget: Budget) -> Tally:
    """Try the cases of a campaign until they, or the budget, are at an end; a failure is said at once."""
    started, used = time.monotonic(), sum(os.times()[:4])
    tally = Tally(campaign.name, campaign.kind)
    for number, case in enumerate(campaign.cases(world, seed)):
        if number == budget.cases or time.monotonic() - started > budget.seconds:
            break
        if budget.only not in ("", case.key):
            continue
        problems = campaign.check(world, case)
        tally.tried += case.counts
        if problems:
            tally.lost += min(case.counts, len(problems))
            again = f"python -m tools.torture --only {campaign.name} --seed {seed} --case '{case.key}'"
            tally.failures.append(Failure(campaign.name, case.key, problems, again))
            print(f"LOST: {again}  # {' '.join(problems[0].split())[:300]}", file=sys.stderr, flush=True)
        if budget.only == case.key:
            break
    else:
        tally.whole = True
    tally.seconds, tally.cpu = time.monotonic() - started, sum(os.times()[:4]) - used
    return tally


# -- many small inputs in one child: what it does not live through is looked for one by one ---------------

MOST_BYTES = 1_000_000_000
"""That one input may take on top of what the child had."""


def survive(tries: Sequence[tuple[str, Callable[[], list[str]]]], *, watched: str = "/nowhere") -> list[str]:
    """Try each in a child; a sentence for each that was lost. A try gives its own sentences.

    watched: the folder in which it may write.
    """
    ended = in_child(lambda: _all(tries, watched))
    if isinstance(ended.value, list):
        return ended.value
    if len(tries) == 1:
        return [f"{tries[0][0]}: {trouble}" for trouble in ended.troubles() or ["it gave nothing"]]
    half = len(tries) // 2  # the child died: on which?
    found = survive(tries[:half], watched=watched) + survive(tries[half:], watched=watched)
    return found or [f"{tries[0][0]} to {tries[-1][0]}, only together: {' '.join(ended.troubles())}"]


def _all(tries: Sequence[tuple[str, Callable[[], list[str]]]], watched: str) -> list[str]:
    problems, watch = [], Watch().install_in(watched)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, work in tries:
        before = reset_peak()
        try:
            found = work()
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found = [
                f"{type(error).__name__} in {where.name} ({where.filename}:{where.lineno}): {error!s:.200}"
            ]
        taken = peak() - before
        if taken > MOST_BYTES:
            found.append(f"took {taken / 1e9:.1f} GB")
        for seen, told in (
            (watch.started, "started a program"),
            (watch.outside, "wrote elsewhere"),
            (watch.talked, "called"),
        ):
            found += [f"{told}: {one:.200}" for one in seen]
            seen.clear()
        problems += [f"{name}: {problem}" for problem in found]
    return problems


def reset_peak() -> int:
    """Bytes in memory now; the largest number begins here again."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> int:
    """The largest number of bytes in memory since `reset_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def expect(kinds: tuple[type[BaseException], ...], work: Callable[[], Any]) -> Any:
    """What the work gives; None where it raised one of these errors, whose text must be a sentence."""
    try:
        return work()
    except kinds as error:
        said = str(error)
        if not said.strip() or "Traceback" in said:
            raise AssertionError(f"{type(error).__name__} says {said!r}") from error
        return None


def numbered(at_once: int) -> Callable[[World, int], Iterator[Case]]:
    """Return cases without end, each of which stands for `at_once` inputs that its seed and number decide."""
    return lambda world, seed: (Case(str(n), (seed, n), at_once) for n in count())
