"""examples/ray_train.py as one starts it: two workers of Ray Train place every image as one process does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("ray", reason="the extra `ray` is not installed")

TOP = Path(__file__).resolve().parents[2]
SCRIPT = TOP / "examples" / "ray_train.py"


@pytest.mark.ray
@pytest.mark.processes
def test_two_ray_workers_place_every_image_as_one_process_does(
    squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path
) -> None:
    settings = {
        "backbone.name": tiny_backbone_file,
        "k": 4,
        "train.epochs": 1,
        "train.batch_size": 16,
        "train.precision": "fp64",
        "device": "cpu",
    }
    words = ["rpc", str(squares_folder / "squares.csv")]
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    told = [f"{name}={value}" for name, value in settings.items()]
    commands = {
        "one": ["-m", "holotype", "train", *words, *flags, "--no-progress", "--out", str(tmp_path / "one")],
        "two": [str(SCRIPT), "--out", str(tmp_path / "two"), *words, *told, "progress=false"],
    }
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    for name, command in commands.items():
        done = subprocess.run(
            [sys.executable, *command],
            env=os.environ | quiet,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, (name, done.stderr[-3000:])
    placed = [pd.read_csv(tmp_path / name / "assignments.csv") for name in commands]
    pd.testing.assert_frame_equal(*placed)
    assert '"processes": 2' in (tmp_path / "two" / "scores.json").read_text(encoding="utf-8")
