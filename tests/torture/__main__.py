"""`python -m tests.torture --minutes N`: try to break it, say what was tried, what survived and what was lost.

Exit code 0 where nothing was lost, 1 otherwise. Each failure is said at once, and again at the end, with the one
command that repeats it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from holotype.utils.atomic import write_text
from tests.torture.campaigns import CAMPAIGNS
from tests.torture.shares import gather, share
from tests.torture.tally import Tally

SEED = 17
PACKAGES = ("torch", "timm", "numpy", "pandas", "pyarrow", "pillow", "safetensors", "pyyaml")
OFTEN = 2.0
"""Seconds between two writes of the record, where nothing was lost in between."""
NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 6: "six", 8: "eight", 12: "twelve", 16: "sixteen"}


def main(words: Sequence[str] | None = None) -> int:
    given = parser().parse_args(words)
    chosen = [c for c in CAMPAIGNS if not given.only or c.name in given.only.split(",")]
    if given.short:
        chosen = [c for c in chosen if c.short]
    if not chosen:
        print(
            f"There is no such campaign; there are {', '.join(c.name for c in CAMPAIGNS)}.", file=sys.stderr
        )
        return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    jobs = 1 if given.case or given.short else given.jobs
    keeper = Keeper(Path(given.record) if given.record else None, given.seed)
    tallies, ended = gather([share(given, chosen, n, jobs) for n in range(jobs)], chosen, keeper)
    keeper.write(tallies, ended)
    print(table(tallies))
    if given.case and ended and not any(tally.tried for tally in tallies):
        print(f"There is no case {given.case!r} in {given.only or 'any campaign'}.", file=sys.stderr)
        return 2
    for tally in tallies:
        for failure in tally.failures:
            print(f"\n{failure.again}")
            for problem in failure.problems[:8]:
                print(f"  {problem}")
    if not ended:
        print("\nThe campaign did not come to its end; see above.", file=sys.stderr)
    return 1 if not ended or any(tally.lost for tally in tallies) else 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    made.add_argument("--minutes", type=float, default=5.0, help="how long to go on (default: 5)")
    made.add_argument("--only", default="", help="names of campaigns, with commas between them")
    made.add_argument(
        "--seed", type=int, default=SEED, help=f"of everything that chance decides (default: {SEED})"
    )
    made.add_argument("--case", default="", help="the one case to try, as a failure names it")
    made.add_argument("--short", action="store_true", help="the part that make test runs")
    made.add_argument("--record", default="", metavar="FILE", help="also write what came of it as JSON")
    made.add_argument(
        "--jobs", type=int, default=min(2, os.cpu_count() or 1), help="processes at once (default: at most 2)"
    )
    return made


# -- what came of it ------------------------------------------------------------------------------------------


def table(tallies: Sequence[Tally]) -> str:
    about = {campaign.name: campaign.about for campaign in CAMPAIGNS}
    lines = [f"{'campaign':<11} {'tried':>7} {'survived':>9} {'lost':>5}  what"]
    for tally in tallies:
        told = f"skipped: {tally.skipped}" if tally.skipped else about[tally.campaign]
        told += "; all there are" if tally.whole and not tally.skipped else ""
        lines.append(f"{tally.campaign:<11} {tally.tried:>7,} {tally.survived:>9,} {tally.lost:>5,}  {told}")
    tried, lost = sum(t.tried for t in tallies), sum(t.lost for t in tallies)
    lines.append(f"{'together':<11} {tried:>7,} {tried - lost:>9,} {lost:>5,}")
    return "\n".join(lines)


class Keeper:
    """Writes what stands beside the table in docs/trust.md, while the campaign goes on as well: a kill in its middle
    leaves the record of what was tried until then, whole."""

    def __init__(self, file: Path | None, seed: int) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.file, self.started, self.written = file, time.monotonic(), -OFTEN
        self.about = {
            "commit": commit() if file else "",
            "machine": f"{NUMBERS.get(cores, cores)} CPU core{'' if cores == 1 else 's'}",
            "system": platform.system(),
            "python": platform.python_version(),
            "versions": {name: version(name) for name in PACKAGES},
            "seed": seed,
        }
        self.lost = 0

    def __call__(self, tallies: Sequence[Tally]) -> None:
        """Now and then, and whenever something was lost."""
        lost = sum(tally.lost for tally in tallies)
        if lost > self.lost or time.monotonic() - self.written > OFTEN:
            self.write(tallies, ended=False)
        self.lost = lost

    def write(self, tallies: Sequence[Tally], ended: bool) -> None:
        """ended: whether the campaign came to its end."""
        self.written = time.monotonic()
        if self.file is None:
            return
        kinds: dict[str, int] = {}
        for tally in tallies:
            kinds[tally.kind] = kinds.get(tally.kind, 0) + tally.tried
        content = self.about | {
            "seconds": round(self.written - self.started),
            "ended": ended,
            "tried": kinds,
            "lost": sum(tally.lost for tally in tallies),
            "campaigns": [asdict(tally) | {"survived": tally.survived} for tally in tallies],
        }
        write_text(self.file, json.dumps(content, indent=1) + "\n")


def commit() -> str:
    """Of the tree that runs, with a + if it was changed."""

    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


if __name__ == "__main__":
    sys.exit(main())
