"""`holotype cut`: at another number of categories, in a folder of its own."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.report.build import read_data
from holotype.results.discovery import Discovery, read_features, write_features
from small_run import train_small
from tests.discovery.made_round import edits_file
from tests.results.test_hierarchy import collection


@pytest.fixture
def made_run(tmp_path):
    found, features = collection({"new-03": 40})
    run = tmp_path / "run"
    run.mkdir()
    found.save(run)
    write_features(run, features)
    return run


def test_it_says_what_would_happen(holotype, made_run) -> None:
    told = holotype("cut", made_run)
    assert told.code == 0
    assert "5 categories; they can be cut at 2 to " in told.out
    assert "     6  10 images of new-03 become new-04." in told.out
    assert (made_run / "tree.json").is_file()
    assert not (made_run / "cuts").exists()


def test_a_cut_can_be_looked_at_and_taken_over(holotype, made_run) -> None:
    told = holotype("cut", made_run, "--k", 4, "--no-progress")
    assert told.code == 0, told
    own = made_run / "cuts" / "4"
    assert len(Discovery.load(own).categories) == 4
    assert len(Discovery.load(made_run).categories) == 5  # as it was
    assert (own / "report.html").is_file()
    assert [k for k, _ in read_data(own)["around"]["steps"]][:1] == [2]
    assert f"holotype report {made_run} --edits {own / 'cut.csv'}" in told.out
    kept = holotype("report", made_run, "--edits", own / "cut.csv", "--no-progress")
    assert kept.code == 0, kept
    assert len(Discovery.load(made_run).categories) == 4
    assert "4 categories; they can be cut" in holotype("cut", made_run).out


def test_a_cut_is_corrected_by_itself(holotype, made_run) -> None:
    """Its folder is one that holotype report takes; the run's log of edits is not its own."""
    assert holotype("cut", made_run, "--k", 6, "--no-progress").code == 0
    own = made_run / "cuts" / "6"
    again = holotype("report", own, "--no-progress")
    assert again.code == 0, again
    assert "No edits to apply." in again.out or "had been applied before" in again.out
    assert len(Discovery.load(own).categories) == 6


def test_a_cut_that_was_corrected_is_not_written_over(holotype, made_run) -> None:
    """Its ids may mean something else once the run itself was corrected."""
    assert holotype("cut", made_run, "--k", 6, "--no-progress").code == 0
    assert (
        holotype("cut", made_run, "--k", 6, "--no-progress").code == 0
    )  # nobody has said anything of it yet
    own = made_run / "cuts" / "6"
    edits = edits_file(own, ("rename", "", "new-04", "kites"))
    assert holotype("report", own, "--edits", edits, "--no-progress").code == 0
    again = holotype("cut", made_run, "--k", 6, "--no-progress")
    assert (again.code, "a cut that was corrected" in again.err) == (2, True)
    assert Discovery.load(own).category("new-04").name == "kites"
    other = made_run.parent / "other"
    words = ("cut", made_run, "--k", 6, "--out", other, "--no-progress")
    assert [holotype(*words).code, holotype(*words).code, holotype(*words, "--overwrite").code] == [0, 2, 0]


def test_a_folder_of_somebody_else_is_not_written_into(holotype, made_run, tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "assignments.csv").write_text("mine")
    words = ("cut", made_run, "--k", 6, "--out", tmp_path / "mine", "--no-progress", "--overwrite")
    assert holotype(*words).code == 2
    assert (tmp_path / "mine" / "assignments.csv").read_text() == "mine"


def test_the_number_that_there_is_already_changes_nothing_and_says_so(holotype, made_run) -> None:
    told = holotype("cut", made_run, "--k", 5, "--no-progress")
    assert told.code == 0, told
    assert "The run has 5 categories already" in told.out
    assert "To keep the cut" not in told.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--k", "many"), "--k must be"),
        (("--k", 1), "can be cut at 2 to"),
        (("--k", 4, "--out", "{run}"), "holds a run; choose another folder with --out"),
    ],
)
def test_what_cannot_be_is_one_sentence(holotype, made_run, words, says) -> None:
    told = holotype("cut", made_run, *(str(word).format(run=made_run) for word in words))
    assert told.code == 2
    assert says in told.err
    assert told.err.count("\n") == 1


def test_a_run_without_features_and_model_is_one_sentence(holotype, made_run, tmp_path) -> None:
    (made_run / "features.npy").unlink()
    told = holotype("cut", made_run)
    assert (told.code, "model.json" in told.err, told.err.count("\n")) == (2, True, 1)
    assert "There is no folder" in holotype("cut", tmp_path / "nowhere").err


def test_a_tree_that_is_kept_needs_no_features(holotype, made_run) -> None:
    before = holotype("cut", made_run).out
    (made_run / "features.npy").unlink()
    assert holotype("cut", made_run).out == before


def test_features_that_were_deleted_are_made_again(
    holotype, tmp_path, squares_folder, tiny_backbone_file
) -> None:
    """Also after a report, which needs them for its first map alone."""
    run = tmp_path / "run"
    train_small(run, squares_folder, tiny_backbone_file, epochs=1)
    assert holotype("report", run, "--no-progress").code == 0
    before = read_features(run, 64)
    (run / "features.npy").unlink()
    (run / "tree.json").unlink()
    told = holotype("cut", run, "--no-progress")
    assert told.code == 0, told.err
    assert "they can be cut at" in told.out
    assert np.allclose(read_features(run, 64), before, equal_nan=True)
