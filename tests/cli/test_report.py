"""`holotype report`: says what was applied and what could not be, and the page shows it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holotype.results.discovery import Discovery, write_features
from holotype.results.edits import Edit, edits_csv
from holotype.results.review_queue import QUEUE_FILE, write_queue
from holotype.utils.locks import lock_folder
from report.made import make_discovery

from .conftest import assert_sentence

RUN = "run-made-1"


@pytest.fixture
def run(tmp_path):
    make_discovery(tmp_path, 40).save(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def report(holotype, tmp_path):
    """Build the report of a run, with edits: of the run, of one moment, unless they say otherwise."""

    def call(run: Path, *edits: tuple[str, str, str, str] | Edit):
        made = [edit if isinstance(edit, Edit) else Edit(RUN, f"t{i}", *edit) for i, edit in enumerate(edits)]
        (tmp_path / "edits.csv").write_text(edits_csv(made), encoding="utf-8")
        words = ("--edits", tmp_path / "edits.csv") if edits else ()
        return holotype("report", run, *words, "--no-progress")

    return call


def test_answers_take_questions_off_the_queue(run, report):
    write_features(run, np.random.default_rng(0).standard_normal((len(Discovery.load(run).images), 8)))
    write_queue(run)
    first = pd.read_csv(run / QUEUE_FILE)["path"][0]
    assert report(run, ("confirm", first, "", "Sandal")).code == 0
    left = set(pd.read_csv(run / QUEUE_FILE)["path"])
    assert left
    assert first not in left


def test_edits_reach_the_page_the_assignments_and_the_log(run, report, holotype):
    assert "edits" not in report(run).out.partition("Report:")[0]
    assert (run / "report.html").is_file()
    image = Discovery.load(run).images["path"].iloc[0]
    edits = [("rename", "", "new-01", "=Hawk & <Owl>"), ("confirm", image, "", "Sandal")]
    edits.append(("merge", "", "new-07", "new-01"))
    said = report(run, *edits).out
    for part in ("3 edits;", "2 edits applied.", "Nothing learns from confirmed", "was not applied"):
        assert part in said
    assert Discovery.load(run).category("new-01").name == "=Hawk & <Owl>"
    assert set(pd.read_parquet(run / "assignments.parquet")["category"]) >= {"=Hawk & <Owl>"}
    assert "Hawk" in (run / "report" / "data.js").read_text()
    said = report(run, *edits).out
    assert "3 edits, applied already;" in said
    assert "No new edits to apply" in said
    assert "2 edits had been applied before." in report(run).out
    (run.parent / "none.csv").write_text(edits_csv([]))
    assert "there is no edit in it." in holotype("report", run, "--edits", run.parent / "none.csv").out


def test_what_cannot_be_is_one_sentence(run, report, tmp_path):
    other = Edit("other", "t", "rename", "", "new-01", "x")
    assert_sentence(report(run, other), "made in the report of run 'other'")
    assert_sentence(report(tmp_path), "holds no run")
    with lock_folder(run):
        assert_sentence(report(run), str(run))


def test_a_run_of_a_benchmark_is_one_like_any_other(holotype, report, tiny_flags, tmp_path):
    """Images inside a container: trained on, reported with a map, corrected, and new ones placed."""
    run = tmp_path / "trained"
    assert holotype("train", "kmeans", "fashion-sample", *tiny_flags, "--k", 10, "--out", run).code == 0
    found = Discovery.load(run)
    assert "#" in found.images.path[0]
    assert found.images.x.isna().all()
    novel = next(category.id for category in found.categories if category.kind == "novel")
    outcome = report(run, Edit(found.run_id, "t", "rename", "", novel, "Hawk"))
    assert "1 edit applied." in outcome.out, outcome.err
    again = Discovery.load(run)
    assert again.category(novel).name == "Hawk"
    assert np.isfinite(again.images[["x", "y"]]).all().all()
    assert '"scores":{"kmeans":{"all":' in (run / "report" / "data.js").read_text()
    assert (run / "report" / "thumbs" / "00000.jpg").is_file()
    (tmp_path / "list.csv").write_text("path\n" + "\n".join(found.images.path[:4]) + "\n")
    outcome = holotype("assign", run, tmp_path / "list.csv", "--device", "cpu", "--no-progress")
    assert outcome.code == 0, outcome.err
    placed = pd.read_csv(run / "assigned" / "list.csv")
    assert len(placed) == 4
    assert set(placed.category) <= set(again.images.category)
