"""What a campaign is made of: cases that can be repeated one by one, and the count of what came of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.torture.world import World


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
    skip: Callable[[], str] = lambda: ""
    """Why it cannot be run on this machine; "" = it can."""


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
    skipped: str = ""
    failures: list[Failure] = field(default_factory=list)

    @property
    def survived(self) -> int:
        return self.tried - self.lost

    def add(self, other: Tally) -> None:
        """Put together what several processes have tried of one campaign."""
        self.tried += other.tried
        self.lost += other.lost
        self.seconds += other.seconds
        self.cpu += other.cpu
        self.whole = self.whole and other.whole
        self.failures += other.failures


@dataclass(frozen=True)
class Budget:
    """How much is tried."""

    seconds: float = float("inf")
    cases: int = -1
    """-1 = as many as there are."""
    share: int = 0
    """Of several processes that share a campaign, which one this is ..."""
    of: int = 1
    """... and how many they are."""
    only: str = ""
    """Key of the one case to try."""


def run(
    campaign: Campaign,
    world: World,
    seed: int,
    budget: Budget,
    tell: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Try the cases of a campaign until they, or the budget, are at an end. tell: hears of every case."""
    started, used = time.monotonic(), sum(os.times()[:4])
    tally = Tally(campaign.name, campaign.kind, skipped=campaign.skip())
    if tally.skipped:
        return tally
    number = -1
    for number, case in enumerate(campaign.cases(world, seed)):
        if budget.cases >= 0 and number >= budget.cases:
            break
        if time.monotonic() - started > budget.seconds:
            break
        if number % budget.of != budget.share or budget.only not in ("", case.key):
            continue
        _try(campaign, world, seed, case, tally)
        tally.seconds, tally.cpu = time.monotonic() - started, sum(os.times()[:4]) - used
        tell(tally)
        if budget.only == case.key:
            break
    else:
        tally.whole = True
    tally.seconds, tally.cpu = time.monotonic() - started, sum(os.times()[:4]) - used
    return tally


def _try(campaign: Campaign, world: World, seed: int, case: Case, tally: Tally) -> None:
    problems = campaign.check(world, case)
    tally.tried += case.counts
    if problems:
        tally.lost += min(case.counts, len(problems))
        again = f"python -m tests.torture --only {campaign.name} --seed {seed} --case '{case.key}'"
        tally.failures.append(Failure(campaign.name, case.key, problems, again))
