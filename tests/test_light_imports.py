"""Training begins soon: what the first step does not need is not imported before it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LATER = ("matplotlib", "transformers", "torchmetrics", "sklearn", "pandas", "scipy.optimize")

CHILD = f"""
import os, sys
from holotype.training import step

def first(self, drawn):
    print("BEFORE", [name for name in {LATER!r} if name in sys.modules], flush=True)
    os._exit(0)

step.Step.__call__ = first
from holotype.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_nothing_heavy_is_imported_before_the_first_step(
    kind: str, squares_folder: Path, tiny_flags: list[str], tmp_path: Path
) -> None:
    data = squares_folder / "squares.csv" if kind == "file" else squares_folder
    words = ["train", "rpc", str(data), *tiny_flags, "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("BEFORE")] == ["BEFORE []"], (
        done.stderr
    )
