"""`holotype cut`: at another number of categories, in a folder of its own."""

import pytest

from holotype.report.build import read_data
from holotype.results.discovery import Discovery, write_features
from tests.discovery.made_round import edits_file
from tests.results.test_hierarchy import collection

from .conftest import assert_sentence


@pytest.fixture
def made_run(tmp_path):
    found, features = collection({"new-03": 40})
    run = tmp_path / "run"
    run.mkdir()
    found.save(run)
    write_features(run, features)
    return run


@pytest.fixture
def cut(holotype, made_run):
    """Cut the run, or another one."""
    return lambda *words, of=made_run: holotype("cut", of, *words, "--no-progress")


def test_it_says_what_would_happen(cut, made_run) -> None:
    told = cut()
    assert told.code == 0
    assert "5 categories; they can be cut at 2 to " in told.out
    assert "     6  10 images of new-03 become new-04." in told.out
    assert not (made_run / "cuts").exists()
    (made_run / "features.npy").unlink()
    assert cut().out == told.out  # the tree is kept
    (made_run / "tree.json").unlink()
    assert_sentence(cut(), "model.json")


def test_a_cut_can_be_looked_at_and_taken_over(holotype, cut, made_run) -> None:
    told = cut("--k", 4)
    assert told.code == 0, told
    own = made_run / "cuts" / "4"
    assert len(Discovery.load(own).categories) == 4
    assert len(Discovery.load(made_run).categories) == 5  # as it was
    assert [k for k, _ in read_data(own)["around"]["steps"]][:1] == [2]
    assert f"holotype report {made_run} --edits {own / 'cut.csv'}" in told.out
    assert holotype("report", made_run, "--edits", own / "cut.csv", "--no-progress").code == 0
    assert len(Discovery.load(made_run).categories) == 4
    assert "4 categories; they can be cut" in cut().out


def test_a_cut_that_was_corrected_is_not_written_over(holotype, cut, made_run) -> None:
    """It is a folder that holotype report takes. Its ids may mean something else once the run was corrected."""
    assert [cut("--k", 6).code, cut("--k", 6).code] == [0, 0]  # nobody has said anything of it yet
    own = made_run / "cuts" / "6"
    edits = edits_file(own, ("rename", "", "new-04", "kites"))
    assert holotype("report", own, "--edits", edits, "--no-progress").code == 0
    assert_sentence(cut("--k", 6), "a cut that was corrected")
    assert Discovery.load(own).category("new-04").name == "kites"
    assert len(Discovery.load(own).categories) == 6
    words = ("--k", 6, "--out", made_run.parent / "other")
    assert [cut(*words).code, cut(*words).code, cut(*words, "--overwrite").code] == [0, 2, 0]


def test_the_number_that_there_is_already_changes_nothing_and_says_so(cut) -> None:
    told = cut("--k", 5)
    assert told.code == 0, told
    assert "The run has 5 categories already" in told.out
    assert "To keep the cut" not in told.out


def test_what_cannot_be_is_one_sentence(cut, made_run, tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "assignments.csv").write_text("mine")
    assert_sentence(cut("--k", 6, "--out", tmp_path / "mine", "--overwrite"), "holds other files")
    assert (tmp_path / "mine" / "assignments.csv").read_text() == "mine"
    assert_sentence(cut("--k", "many"), "--k must be")
    assert_sentence(cut("--k", 1), "can be cut at 2 to")
    assert_sentence(cut("--k", 4, "--out", made_run), "holds a run")
    assert_sentence(cut(of=tmp_path / "nowhere"), "There is no folder")
