"""A truth that comes with the images is scored, whenever it comes: on the terminal, in the record and in the report."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from holotype.data.load import load_table
from holotype.discovery.pipeline import discover_table
from holotype.report.page_data import read_scores
from holotype.runs.record import PER_CLASS_FILE, RunFolder
from tests.conftest import write_csv


@pytest.fixture
def lists(squares_folder: Path, tmp_path: Path) -> dict[str, Path]:
    """Lists of the squares: without a truth, with that of every second image, with all of it."""
    with (squares_folder / "squares.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    half = [(*row[:2], row[2] if number % 2 else "") for number, row in enumerate(rows)]
    return {
        "none": write_csv(tmp_path / "labels.csv", "path,label", [tuple(row[:2]) for row in rows]),
        "half": write_csv(tmp_path / "half.csv", ",".join(header), half),
        "all": write_csv(tmp_path / "truth.csv", ",".join(header), [tuple(row) for row in rows]),
    }


def test_a_truth_that_comes_after_the_training_is_scored(
    squares_folder, small, lists, tmp_path, monkeypatch
) -> None:
    run, config = tmp_path / "run", small(method="kmeans")
    discover_table(load_table(squares_folder, lists["all"]), config, tmp_path / "at once", progress=False)
    at_once = RunFolder(tmp_path / "at once").finished()
    discover_table(load_table(squares_folder, lists["none"]), config, run, progress=False)
    assert read_scores(run) == {}
    monkeypatch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained again"))
    discover_table(load_table(squares_folder, lists["half"]), config, run, progress=False)
    half = RunFolder(run).finished()
    discover_table(load_table(squares_folder, lists["all"]), config, run, progress=False)
    whole = RunFolder(run).finished()
    assert at_once is not None
    assert half is not None
    assert whole is not None
    assert (half.scores.n, whole.scores.n) == (24, 48)
    assert whole.scores == at_once.scores
    assert read_scores(run)["kmeans"]["all"] == at_once.scores.all
    assert (run / "rounds" / "1" / PER_CLASS_FILE).is_file()
    discover_table(load_table(squares_folder, lists["none"]), config, run, progress=False)
    assert RunFolder(run).finished() == whole  # nobody has said that it was wrong


def test_the_terminal_tells_the_scores(
    holotype, run, squares_folder, tiny_backbone_file, lists, tmp_path
) -> None:
    settings = ("--k", 4, "--steps", 12, "--backbone", tiny_backbone_file, "--device", "cpu", "--no-progress")
    for_run = ("--out", run, *settings)
    record = RunFolder(run).finished()
    assert record is not None
    assert record.scores.all is not None
    outcome = holotype("discover", squares_folder, "--labels", lists["all"], *for_run)
    assert outcome.code == 0, outcome.err
    (line,) = [line for line in outcome.out.splitlines() if line.split()[:1] == ["unlabelled"]]
    wanted = (record.scores.all, record.scores.old, record.scores.new)
    assert [float(word) for word in line.split()[1:]] == [round(100 * share, 1) for share in wanted]
    plain = holotype(
        "discover", squares_folder, "--labels", lists["none"], "--method", "kmeans", *settings, "--out", tmp_path / "r"
    )  # fmt: skip
    assert plain.code == 0, plain.err
    assert "unlabelled  " not in plain.out
