"""examples/ray_train.py as one starts it: two workers of Ray Train place every image as one process does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Outcome

pytest.importorskip("ray", reason="the extra `ray` is not installed")

TOP = Path(__file__).resolve().parents[2]
SCRIPT = TOP / "examples" / "ray_train.py"
PUBLISHED_HEADS = True  # as in the processes that are started here
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@pytest.mark.ray
@pytest.mark.processes
def test_two_ray_workers_place_every_image_as_one_process_does(
    holotype: Callable[..., Outcome], squares_folder: Path, tiny_backbone_file: Path, tmp_path: Path
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
    outcome = holotype("train", *words, *flags, "--no-progress", "--out", tmp_path / "one")
    assert outcome.code == 0, outcome.err
    told = [f"{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--out", str(tmp_path / "two"), *words, *told, "progress=false"],
        env=os.environ | QUIET,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    placed = [pd.read_csv(tmp_path / name / "assignments.csv") for name in ("one", "two")]
    pd.testing.assert_frame_equal(*placed)
    assert '"processes": 2' in (tmp_path / "two" / "scores.json").read_text(encoding="utf-8")
