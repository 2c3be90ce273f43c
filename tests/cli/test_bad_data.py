"""Images and labels that cannot be used, through the command line: exit code 2 and one sentence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import write_csv

from .test_bad_input import assert_sentence


def test_missing_root(holotype, tmp_path: Path) -> None:
    assert_sentence(holotype("train", "simgcd", "cub"), "cub", "root")
    gone = tmp_path / "gone"
    assert_sentence(holotype("train", "simgcd", "cub", "--root", gone), str(gone))
    assert_sentence(holotype("train", "simgcd", gone, "--k", 3), str(gone))
    assert_sentence(holotype("data", "check", "cub", "--root", gone), str(gone))


def test_a_root_without_the_data_set(holotype, tmp_path: Path) -> None:
    assert_sentence(holotype("train", "simgcd", "cub", "--root", tmp_path), "missing", "vision.caltech.edu")
    outcome = holotype("data", "check", "cub", "--root", tmp_path)
    assert outcome.code == 2
    assert "missing" in outcome.out


def test_empty_folder(holotype, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_sentence(holotype("train", "simgcd", tmp_path / "empty", "--k", 3), "no image", "empty")


def test_no_labelled_image_and_one_known_class(holotype, squares: Path, tiny_flags) -> None:
    shutil.rmtree(squares / "red")
    assert_sentence(holotype("train", "simgcd", squares, *tiny_flags), "green", "two")
    shutil.rmtree(squares / "green")
    assert_sentence(holotype("train", "simgcd", squares, *tiny_flags), "labelled")


def test_number_of_categories(holotype, squares_folder: Path, tiny_flags) -> None:
    outcome = holotype("train", "simgcd", squares_folder, *tiny_flags, "--k", 1)
    assert_sentence(outcome, "--k 1", "2 known classes")
    assert_sentence(holotype("train", "simgcd", squares_folder), "--k")


def test_labels_of_images_that_do_not_exist(
    holotype, squares_folder: Path, tmp_path: Path, tiny_flags
) -> None:
    labels = write_csv(
        tmp_path / "labels.csv", "path,label", [("red/red-00.png", "red"), ("red/red-99.png", "red")]
    )
    outcome = holotype("train", "simgcd", squares_folder, "--labels", labels, *tiny_flags)
    assert_sentence(outcome, "red-99.png", "1 of the 2")
    images = write_csv(tmp_path / "images.csv", "path,label", [("a.png", "red"), ("b.png", "")])
    assert_sentence(holotype("train", "simgcd", images, *tiny_flags), "a.png", "2 of the 2")


def test_duplicate_paths(holotype, squares_folder: Path, tmp_path: Path, tiny_flags) -> None:
    rows = [(str(squares_folder / "red" / "red-00.png"), label) for label in ("red", "red", "green")]
    twice = write_csv(tmp_path / "twice.csv", "path,label", rows)
    assert_sentence(holotype("train", "simgcd", twice, *tiny_flags), "red-00.png", "line 4: 'green'")
    outcome = holotype("train", "simgcd", squares_folder, "--labels", twice, *tiny_flags)
    assert_sentence(outcome, "red-00.png", "more than once")


def test_a_label_file_with_a_wrong_column(holotype, squares_folder: Path, tmp_path: Path, tiny_flags) -> None:
    labels = write_csv(tmp_path / "labels.csv", "path,class", [("red/red-00.png", "red")])
    outcome = holotype("train", "simgcd", squares_folder, "--labels", labels, *tiny_flags)
    assert_sentence(outcome, "'label'", "'class'")


def test_unreadable_images(holotype, squares: Path, tmp_path: Path, tiny_flags) -> None:
    """Some: the run goes on, and says which. All: there is nothing to train on."""
    broken = [squares / "red" / "red-03.png", squares / "unlabelled" / "blue-05.png"]
    for path in broken:
        path.write_bytes(b"not an image")
    outcome = holotype("train", "kmeans", squares, *tiny_flags, "--out", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    table = pd.read_csv(tmp_path / "run" / "assignments.csv", keep_default_na=False)
    assert sorted(table.path[table.problem != ""]) == sorted(str(path) for path in broken)
    assert (table.category[table.problem != ""] == "").all()
    assert (table.category[table.problem == ""] != "").all()
    for path in squares.rglob("*.png"):
        path.write_bytes(b"not an image")
    outcome = holotype("train", "kmeans", squares, *tiny_flags, "--out", tmp_path / "other")
    assert_sentence(outcome, "usable", "squares")


def test_a_batch_larger_than_the_data_set(holotype, squares_folder: Path, tmp_path: Path, tiny_flags) -> None:
    flags = [*tiny_flags, "--out", tmp_path / "run", "--train.batch_size", 65]
    assert_sentence(holotype("train", "simgcd", squares_folder, *flags), "65", "64", "--train.batch_size")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_label_file_that_may_not_be_read(
    holotype, squares_folder: Path, tmp_path: Path, tiny_flags
) -> None:
    labels = write_csv(tmp_path / "labels.csv", "path,label", [("red/red-00.png", "red")])
    labels.chmod(0)
    outcome = holotype("train", "simgcd", squares_folder, "--labels", labels, *tiny_flags)
    assert_sentence(outcome, "labels.csv", "Permission denied")
