"""examples/ray_train.py as one starts it: two workers of Ray Train place every image as one process does."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("ray", reason="the extra `ray` is not installed")

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "ray_train.py"
PUBLISHED_HEADS = True  # as in the processes that are started here
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@pytest.mark.ray
def test_two_ray_workers_place_every_image_as_one_process_does(
    holotype, squares_folder: Path, tiny_flags: list[str], tmp_path: Path
) -> None:
    words = ["rpc", str(squares_folder / "squares.csv")]
    flags = [*tiny_flags[:-1], "--train.precision", "fp64"]
    outcome = holotype("train", *words, *flags, "--no-progress", "--out", tmp_path / "one")
    assert outcome.code == 0, outcome.err
    told = [f"{name[2:]}={value}" for name, value in zip(flags[::2], flags[1::2], strict=True)]
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path / "two"), *words, *told, "progress=false"]
    how = {"env": os.environ | QUIET, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(command, **how, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    placed = [pd.read_csv(tmp_path / name / "assignments.csv") for name in ("one", "two")]
    pd.testing.assert_frame_equal(*placed)
    assert '"processes": 2' in (tmp_path / "two" / "scores.json").read_text(encoding="utf-8")
