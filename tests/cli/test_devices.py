"""Several processes through the command line, as a user starts them."""

import subprocess
import sys

import pandas as pd
import pytest


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_two_processes_place_every_image_as_one_does(squares_folder, tiny_flags, tmp_path):
    placed = []
    for devices in ("1", "2"):
        out = tmp_path / devices
        command = [
            "train",
            "rpc",
            squares_folder / "squares.csv",
            *tiny_flags,
            "--devices",
            devices,
            "--out",
            out,
        ]
        done = subprocess.run(
            [sys.executable, "-m", "holotype", *map(str, command), "--train.precision", "fp64"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("All") == 1  # one process speaks
        placed.append(pd.read_csv(out / "assignments.csv"))
    pd.testing.assert_frame_equal(*placed)


def test_a_batch_that_processes_cannot_share_is_refused(
    squares_folder, tiny_flags, tmp_path, monkeypatch, holotype
):
    monkeypatch.setattr("holotype.train.rows.world_size", lambda: 3)
    refused = holotype(
        "train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--out", tmp_path / "run"
    )
    assert refused.code == 2
    assert "cannot be shared evenly by 3 processes" in refused.err
