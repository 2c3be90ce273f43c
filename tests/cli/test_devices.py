"""Several processes through the command line, as a user starts them."""

import subprocess
import sys

import pandas as pd
import pytest

NARROW = (
    "import sys; from tests.narrow import narrow; narrow(); from holotype.cli import main\nsys.exit(main())"
)
"""What is started: `holotype` with heads as small as here."""


@pytest.fixture
def words(squares_folder, tiny_flags) -> list[str]:
    return ["train", "rpc", str(squares_folder / "squares.csv"), *tiny_flags, "--train.precision", "fp64"]


@pytest.mark.processes
@pytest.mark.xdist_group("processes")
def test_two_processes_place_every_image_as_one_does(words, holotype, tmp_path):
    """--devices starts them as torchrun does."""
    alone = holotype(*words, "--devices", "1", "--out", tmp_path / "alone")
    assert alone.code == 0, alone.err
    command = [sys.executable, "-c", NARROW, *words, "--devices", "2", "--out", str(tmp_path / "both")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("All") == alone.out.count("All") == 1  # one process speaks
    both, one = (pd.read_csv(tmp_path / name / "assignments.csv") for name in ("both", "alone"))
    pd.testing.assert_frame_equal(both, one)


@pytest.mark.xdist_group("processes")
def test_what_processes_cannot_share_is_refused(words, tmp_path, monkeypatch, holotype):
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.batches.world_size", lambda: 3)
        refused = holotype(*words, "--out", tmp_path / "run")
    assert (refused.code, "cannot be shared evenly by 3 processes" in refused.err) == (2, True)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused = holotype(*words, "--devices", "3")
    assert (refused.code, "--devices 3 contradicts the launcher" in refused.err) == (2, True)
