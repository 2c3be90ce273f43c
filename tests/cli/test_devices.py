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
    monkeypatch.setattr("holotype.training.rows.world_size", lambda: 3)
    refused = holotype(
        "train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--out", tmp_path / "run"
    )
    assert refused.code == 2
    assert "cannot be shared evenly by 3 processes" in refused.err


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_torchrun_starts_a_run_as_devices_does(squares_folder, tiny_flags, tmp_path):
    words = ["train", "rpc", squares_folder / "squares.csv", *tiny_flags, "--train.precision", "fp64"]
    placed = []
    for name, start in (
        ("one", ["-m", "holotype"]),
        ("two", ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "holotype"]),
    ):
        out = tmp_path / name
        done = subprocess.run(
            [sys.executable, *start, *map(str, words), "--out", str(out)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("All") == 1
        placed.append(pd.read_csv(out / "assignments.csv"))
    pd.testing.assert_frame_equal(*placed)


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_a_number_of_devices_that_the_launcher_contradicts_is_refused(
    monkeypatch, holotype, squares_folder, tiny_flags
):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused = holotype("train", "rpc", squares_folder / "squares.csv", *tiny_flags, "--devices", "3")
    assert refused.code == 2
    assert "--devices 3 contradicts the launcher, which started 2 processes" in refused.err
