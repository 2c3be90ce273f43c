"""Several processes through the command line, as a user starts them."""

import contextlib
import io
import subprocess
import sys

import pandas as pd
import pytest

from holotype.cli import main

PUBLISHED_HEADS = True  # as in the processes that are started here


@pytest.fixture(scope="module")
def words(squares_folder, tiny_flags) -> list[str]:
    return ["train", "rpc", str(squares_folder / "squares.csv"), *tiny_flags, "--train.precision", "fp64"]


@pytest.fixture(scope="module")
def alone(words, published_heads, tmp_path_factory) -> pd.DataFrame:
    """Where one process places the images."""
    out = tmp_path_factory.mktemp("alone") / "run"
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main([*words, "--devices", "1", "--out", str(out)]) == 0
    assert said.getvalue().count("All") == 1
    return pd.read_csv(out / "assignments.csv")


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize(
    ("start", "flags"),
    [
        (["-m", "holotype"], ["--devices", "2"]),
        (["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "holotype"], []),
    ],
    ids=["devices", "torchrun"],
)
def test_two_processes_place_every_image_as_one_does(alone, words, start, flags, tmp_path):
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, *start, *words, *flags, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("All") == 1  # one process speaks
    pd.testing.assert_frame_equal(pd.read_csv(out / "assignments.csv"), alone)


def test_a_batch_that_processes_cannot_share_is_refused(
    squares_folder, tiny_flags, tmp_path, monkeypatch, holotype
):
    monkeypatch.setattr("holotype.training.batches.world_size", lambda: 3)
    refused = holotype(
        "train", "simgcd", squares_folder / "squares.csv", *tiny_flags, "--out", tmp_path / "run"
    )
    assert refused.code == 2
    assert "cannot be shared evenly by 3 processes" in refused.err


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_a_number_of_devices_that_the_launcher_contradicts_is_refused(
    monkeypatch, holotype, squares_folder, tiny_flags
):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused = holotype("train", "rpc", squares_folder / "squares.csv", *tiny_flags, "--devices", "3")
    assert refused.code == 2
    assert "--devices 3 contradicts the launcher's 2 processes" in refused.err
