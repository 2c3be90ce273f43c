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
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from tools.torture.commands import edits_file
from tools.torture.disk import FULL, TORN
from tools.torture.edits import EDITS
from tools.torture.harness import Budget, Campaign, Tally, run
from tools.torture.images import BOMBS, DISGUISED, IMAGES
from tools.torture.kills import ASKED, KILLS
from tools.torture.leaks import LEAKS
from tools.torture.links import INSIDE, LINKS
from tools.torture.names import NAMES_CAMPAIGN
from tools.torture.pairs import ORPHANS, PAIRS, WRITE
from tools.torture.runfiles import FILES, ROT
from tools.torture.stops import FAULTS, STOPS
from tools.torture.studio import STUDIO
from tools.torture.tables import SETTINGS, TABLES
from tools.torture.words import WORDS
from tools.torture.world import make_world

from holotype.utils.atomic import write_text

CAMPAIGNS: tuple[Campaign, ...] = (
    *(DISGUISED, INSIDE, BOMBS, LEAKS, TORN, FULL, STOPS, FAULTS, LINKS, KILLS, ASKED, ORPHANS, PAIRS, WRITE),
    *(FILES, ROT, NAMES_CAMPAIGN, WORDS, IMAGES, TABLES, SETTINGS, EDITS, STUDIO),
)
"""Those that come to an end first, so that what they leave of the time goes to the others."""
SEED = 17
PACKAGES = ("torch", "timm", "numpy", "pandas", "pyarrow", "pillow", "safetensors", "pyyaml")


def main(words: Sequence[str] | None = None) -> int:
    args = make_parser().parse_args(words)
    chosen = [c for c in CAMPAIGNS if not args.only or c.name in args.only.split(",")]
    chosen = [c for c in chosen if c.short or not args.short]
    if not chosen:
        print(
            f"There is no such campaign; there are {', '.join(c.name for c in CAMPAIGNS)}.", file=sys.stderr
        )
        return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    base = Path(tempfile.mkdtemp(prefix="holotype-torture-"))
    try:
        tallies = try_all(args, chosen, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(table(tallies))
    if args.case and not any(tally.tried for tally in tallies):
        print(f"There is no case {args.case!r} in {args.only or 'any campaign'}.", file=sys.stderr)
        return 2
    for failure in (failure for tally in tallies for failure in tally.failures):
        print("\n  ".join([f"\n{failure.again}", *failure.problems[:8]]))
    return 1 if any(tally.lost for tally in tallies) else 0


def try_all(args: argparse.Namespace, chosen: Sequence[Campaign], base: Path) -> list[Tally]:
    """Try the campaigns one after the other; what is left of the time of one, the next ones have."""
    started, tallies = time.monotonic(), list[Tally]()
    world = make_world(base / "world", args.short)
    edits_file(world)  # here, since a child that made it would write elsewhere than it may
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
        print(
            f"{tally.campaign}: {tally.tried} tried, {tally.lost} lost in {tally.seconds:.0f} s",
            file=sys.stderr,
        )
        if args.record:
            write_record(Path(args.record), args.seed, started, tallies, ended=len(tallies) == len(chosen))
    return tallies


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to go on (default: 5)")
    parser.add_argument("--only", default="", help="names of campaigns, with commas between them")
    parser.add_argument(
        "--seed", type=int, default=SEED, help=f"of all that chance decides (default: {SEED})"
    )
    parser.add_argument("--case", default="", help="the one case to try, as a failure names it")
    parser.add_argument("--short", action="store_true", help="the part that make test runs")
    parser.add_argument("--record", default="", metavar="FILE", help="also write what came of it as JSON")
    return parser


def table(tallies: Sequence[Tally]) -> str:
    about = {campaign.name: campaign.about for campaign in CAMPAIGNS}
    lines = [f"{'campaign':<11} {'tried':>7} {'survived':>9} {'lost':>5}  what"]
    for tally in tallies:
        what = about[tally.campaign] + ("; all there are" if tally.whole else "")
        lines.append(f"{tally.campaign:<11} {tally.tried:>7,} {tally.survived:>9,} {tally.lost:>5,}  {what}")
    tried, lost = sum(t.tried for t in tallies), sum(t.lost for t in tallies)
    return "\n".join([*lines, f"{'together':<11} {tried:>7,} {tried - lost:>9,} {lost:>5,}"])


def write_record(file: Path, seed: int, started: float, tallies: Sequence[Tally], ended: bool) -> None:
    """Write what stands beside the table in docs/trust.md, after every campaign; ended: whether it was the last."""
    kinds: Counter[str] = Counter()
    for tally in tallies:
        kinds[tally.kind] += tally.tried
    content = {
        "commit": commit(),
        "machine": f"{len(os.sched_getaffinity(0))} CPU cores",
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "seed": seed,
        "seconds": round(time.monotonic() - started),
        "ended": ended,
        "tried": kinds,
        "lost": sum(tally.lost for tally in tallies),
        "campaigns": [asdict(tally) | {"survived": tally.survived} for tally in tallies],
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
