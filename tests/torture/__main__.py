"""`python -m tests.torture --minutes N`: try to break it, say what was tried, what survived and what was lost.

Exit code 0 where nothing was lost, 1 otherwise. For each failure stands the one command that repeats it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from tests.torture.campaigns import CAMPAIGNS
from tests.torture.tally import Budget, Campaign, Tally, run
from tests.torture.world import make_world

SEED = 17
PACKAGES = ("torch", "timm", "numpy", "pandas", "pyarrow", "pillow", "safetensors", "pyyaml")
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
    started = time.monotonic()
    tallies = together([share(given, chosen, n, jobs) for n in range(jobs)], chosen)
    print(table(tallies))
    for tally in tallies:
        for failure in tally.failures:
            print(f"\n{failure.again}")
            for problem in failure.problems[:8]:
                print(f"  {problem}")
    if given.record:
        content = record(tallies, given.seed, time.monotonic() - started)
        Path(given.record).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 1 if any(tally.lost for tally in tallies) else 0


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


# -- processes that share the work --------------------------------------------------------------------------


def share(given: argparse.Namespace, chosen: list[Campaign], number: int, jobs: int) -> int:
    """Start one of the processes; returns the end of a pipe from which its tallies come."""
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        return read
    code = 1
    try:
        os.close(read)
        tallies = work(given, chosen, number, jobs)
        with os.fdopen(write, "wb") as stream:
            stream.write(pickle.dumps(tallies))
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        sys.stdout.flush()
        if code == 1:
            import traceback

            traceback.print_exc()
        os._exit(code)


def work(given: argparse.Namespace, chosen: list[Campaign], number: int, jobs: int) -> list[Tally]:
    """Every campaign, with a share of the time that fits its weight; what one leaves over, the next ones have."""
    base = Path(tempfile.mkdtemp(prefix="holotype-torture-"))
    try:
        until = time.monotonic() + 60 * given.minutes
        world = make_world(base / "world", given.short)
        gc.collect()
        gc.freeze()  # else every child would copy what it only looks through
        tallies = []
        for place, campaign in enumerate(chosen):
            left = until - time.monotonic()
            part = left * campaign.weight / sum(c.weight for c in chosen[place:])
            budget = Budget(max(part, 1.0), share=number, of=jobs, only=given.case)
            if given.short or given.case:
                budget = Budget(
                    cases=campaign.short if given.short and not given.case else -1, only=given.case
                )
            tallies.append(run(campaign, world, given.seed, budget))
            say(tallies[-1], number)
        return tallies
    finally:
        shutil.rmtree(base, ignore_errors=True)


def say(tally: Tally, number: int) -> None:
    told = (
        tally.skipped
        or f"{tally.tried} tried, {tally.lost} lost in {tally.seconds:.0f} s ({tally.cpu:.0f} s CPU)"
    )
    print(f"[{number + 1}] {tally.campaign}: {told}", file=sys.stderr, flush=True)


def together(pipes: list[int], chosen: list[Campaign]) -> list[Tally]:
    """What all processes have tried."""
    whole = [Tally(campaign.name, campaign.kind, whole=True) for campaign in chosen]
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as stream:
            content = stream.read()
        if not content:
            raise SystemExit("one of the processes of the campaign failed; see above")
        for tally, other in zip(whole, pickle.loads(content), strict=True):
            tally.add(other)
            tally.skipped = other.skipped
    for _ in pipes:
        os.wait()
    return whole


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


def record(tallies: Sequence[Tally], seed: int, seconds: float) -> dict[str, object]:
    """What stands beside the table in docs/trust.md."""
    kinds: dict[str, int] = {}
    for tally in tallies:
        kinds[tally.kind] = kinds.get(tally.kind, 0) + tally.tried
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "commit": commit(),
        "machine": f"{NUMBERS.get(cores, cores)} CPU core{'' if cores == 1 else 's'}",
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "seed": seed,
        "seconds": round(seconds),
        "tried": kinds,
        "lost": sum(tally.lost for tally in tallies),
        "campaigns": [asdict(tally) | {"survived": tally.survived} for tally in tallies],
    }


def commit() -> str:
    """Of the tree that runs, with a + if it was changed."""

    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


if __name__ == "__main__":
    sys.exit(main())
