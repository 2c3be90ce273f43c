"""`python -m tools.torture --minutes N`: try to break it, say what was tried, what survived and what was lost.

Exit code 0 where nothing was lost, 1 otherwise. Each failure is said at once, and again at the end, with the one
command that repeats it. Several at once need other seeds and other records, which page.py puts together.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from tools.torture import crashes, files, inputs, studio
from tools.torture.harness import Budget, Campaign, Tally, run
from tools.torture.world import make_world

from holotype.utils.atomic import write_text

CAMPAIGNS = (
    *inputs.CAMPAIGNS[:1],
    *crashes.CAMPAIGNS,
    *files.CAMPAIGNS,
    *inputs.CAMPAIGNS[1:],
    studio.STUDIO,
)
"""Those that come to an end first, so that what they leave of the time goes to the others."""
SEED = 17
PACKAGES = ("torch", "timm", "numpy", "pandas", "pyarrow", "pillow", "safetensors", "pyyaml")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to go on (default: 5)")
    parser.add_argument("--only", default="", help="names of campaigns, with commas between them")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of what chance decides (default: {SEED})")
    parser.add_argument("--case", default="", help="the one case to try, as a failure names it")
    parser.add_argument("--short", action="store_true", help="the part that make test runs")
    parser.add_argument("--record", default="", metavar="FILE", help="also write what came of it as JSON")
    args = parser.parse_args(argv)
    chosen = [c for c in CAMPAIGNS if not args.only or c.name in args.only.split(",")]
    chosen = [c for c in chosen if c.short or not args.short]
    if not chosen:
        parser.error(f"there is no such campaign; there are {', '.join(c.name for c in CAMPAIGNS)}")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="holotype-torture-", ignore_cleanup_errors=True) as base:
        tallies = try_all(args, chosen, Path(base))
    print(table(tallies))
    if args.case and not any(tally.tried for tally in tallies):
        parser.error(f"there is no case {args.case!r} in {args.only or 'any campaign'}")
    for failure in (failure for tally in tallies for failure in tally.failures):
        print("\n  ".join([f"\n{failure.again}", *failure.problems[:8]]))
    return 1 if any(tally.lost for tally in tallies) else 0


def try_all(args: argparse.Namespace, chosen: Sequence[Campaign], base: Path) -> list[Tally]:
    """Try the campaigns one after the other; what is left of the time of one, the next ones have."""
    started, tallies = time.monotonic(), list[Tally]()
    world = make_world(base / "world", args.short)
    gc.collect()
    gc.freeze()  # else every child would copy what it only looks through
    for place, campaign in enumerate(chosen):
        left = started + 60 * args.minutes - time.monotonic()
        part = left * campaign.weight / sum(c.weight for c in chosen[place:])
        budget = Budget(max(part, 1.0))
        if args.short or args.case:
            budget = Budget(cases=campaign.short if args.short and not args.case else -1, only=args.case)
        tally = run(campaign, world, args.seed, budget)
        tallies.append(tally)
        told = f"{tally.campaign}: {tally.tried} tried, {tally.lost} lost in {tally.seconds:.0f} s"
        print(told, file=sys.stderr)
        if args.record:
            write_record(Path(args.record), args.seed, started, tallies, ended=len(tallies) == len(chosen))
    return tallies


def table(tallies: Sequence[Tally]) -> str:
    """Return what was tried and what was lost, in lines."""
    about = {campaign.name: campaign.about for campaign in CAMPAIGNS}
    rows = [(t.campaign, t.tried, t.lost, about[t.campaign] + "; all there are" * t.whole) for t in tallies]
    rows.append(("together", sum(t.tried for t in tallies), sum(t.lost for t in tallies), ""))
    lines = [f"{name:<11} {n:>7,} {n - lost:>9,} {lost:>5,}  {what}" for name, n, lost, what in rows]
    return "\n".join([f"{'campaign':<11} {'tried':>7} {'survived':>9} {'lost':>5}  what", *lines])


def write_record(file: Path, seed: int, started: float, tallies: Sequence[Tally], ended: bool) -> None:
    """Write what stands beside the table in docs/trust.md, after every campaign; ended: whether it was the last."""
    content = {
        "commit": commit(),
        "machine": f"{len(os.sched_getaffinity(0))} CPU cores",
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "seed": seed,
        "seconds": round(time.monotonic() - started),
        "ended": ended,
        "lost": sum(tally.lost for tally in tallies),
        "campaigns": [asdict(tally) for tally in tallies],
    }
    write_text(file, json.dumps(content, indent=1) + "\n")


def commit() -> str:
    """Return that of the tree that runs, with a + if it was changed."""

    def git(*words: str) -> str:
        here = Path(__file__).parent
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


if __name__ == "__main__":
    sys.exit(main())
