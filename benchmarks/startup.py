"""Seconds from the command to the first training step, on the embedded sample with a warm disk.

    python benchmarks/startup.py [--repeats 5]

Each repeat is a process of its own: `holotype train simgcd fashion-sample`, ended when its first step begins. The token
cache is there already, as on any second run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

CHILD = """
import os, sys, time
from holotype.machine.imports import importing
with importing():  # as the command line does
    from holotype.training import step
def first(self, drawn):
    busy = os.times()
    print(f"FIRST {time.time() - float(os.environ['STARTED']):.3f} {busy.user + busy.system:.3f}", flush=True)
    os._exit(0)
step.Step.__call__ = first
from holotype.cli import main
sys.exit(main(sys.argv[1:]))
"""


def once(cache: Path) -> tuple[float, float]:
    """Seconds of one start in a folder of its own, by the clock and of the processor."""
    with tempfile.TemporaryDirectory() as out:
        words = [
            "train",
            "simgcd",
            "fashion-sample",
            "--out",
            f"{out}/run",
            "--no-progress",
            "--device",
            "cpu",
        ]
        environment = os.environ | {"STARTED": str(time.time()), "XDG_CACHE_HOME": str(cache)}
        made = subprocess.run(
            [sys.executable, "-c", CHILD, *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    found = [line for line in made.stdout.splitlines() if line.startswith("FIRST")]
    if not found:
        raise SystemExit(f"The run did not reach its first step: {made.stderr[-2000:]}")
    elapsed, busy = (float(word) for word in found[0].split()[1:])
    return elapsed, busy


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as cache:
        cold, _ = once(Path(cache))
        warm, busy = zip(*(once(Path(cache)) for _ in range(given.repeats)), strict=True)
    print(
        f"cold {cold:.2f} s; warm, {given.repeats} times: median {statistics.median(warm):.2f} s, "
        f"{min(warm):.2f} to {max(warm):.2f} s; of the processor {statistics.median(busy):.2f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
