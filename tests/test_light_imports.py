"""Training begins soon: what the first step does not need is not imported before it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LATER = ("matplotlib", "transformers", "torchmetrics", "sklearn", "pandas", "scipy.optimize")

CHILD = f"""
import sys
from holotype.training import step

class Enough(BaseException):
    pass

def first(self, drawn):
    print("BEFORE", [name for name in {LATER!r} if name in sys.modules], flush=True)
    raise Enough

step.Step.__call__ = first
from holotype.cli import main
for number, data in enumerate(sys.argv[1:3]):
    try:
        main(["train", "rpc", data, *sys.argv[4:], "--out", f"{{sys.argv[3]}}/{{number}}"])
    except Enough:
        pass
"""


def test_nothing_heavy_is_imported_before_the_first_step(
    squares_folder: Path, tiny_flags: list[str], tmp_path: Path
) -> None:
    """Neither of a file nor of a folder."""
    words = [squares_folder / "squares.csv", squares_folder, tmp_path, *tiny_flags]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = [line for line in done.stdout.splitlines() if line.startswith("BEFORE")]
    assert told == ["BEFORE []"] * 2, done.stderr
