"""`holotype report`: says what was applied and what could not be, and the page shows it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holotype.cli.report import command
from holotype.discovery.plan import RoundConfig
from holotype.discovery.rounds import replay_edits
from holotype.errors import InputError
from holotype.results.discovery import Discovery, write_features
from holotype.results.edits import Edit, edits_csv
from holotype.results.review_queue import QUEUE_FILE as QUEUE
from holotype.results.review_queue import write_queue
from holotype.utils.locks import lock_folder
from report.made import make_discovery


@pytest.fixture
def run(tmp_path):
    make_discovery(tmp_path, 40).save(tmp_path / "run")
    return tmp_path / "run"


def write(tmp_path, *edits: Edit):
    (tmp_path / "edits.csv").write_text(edits_csv(edits), encoding="utf-8")
    return str(tmp_path / "edits.csv")


def test_without_edits_it_builds_the_page(run, capsys):
    assert command([str(run), "--no-progress"]) == 0
    assert (run / "report.html").is_file()
    assert "No edits to apply." in capsys.readouterr().out


def test_answers_take_questions_off_the_queue(run, tmp_path):
    found = Discovery.load(run)
    write_features(run, np.random.default_rng(0).standard_normal((len(found.images), 8)))
    write_queue(run)
    first = pd.read_csv(run / QUEUE)["path"][0]
    edits = write(tmp_path, Edit("run-made-1", "t", "confirm", first, "", "Sandal"))
    assert command([str(run), "--edits", edits, "--no-progress"]) == 0
    left = pd.read_csv(run / QUEUE)["path"]
    assert len(left)
    assert first not in set(left)


def test_edits_reach_the_page_the_assignments_and_the_log(run, tmp_path, capsys):
    image = Discovery.load(run).images["path"].iloc[0]
    file = write(
        tmp_path,
        Edit("run-made-1", "t", "rename", "", "new-01", "=Hawk & <Owl>"),
        Edit("run-made-1", "t", "confirm", image, "", "Sandal"),
        Edit("run-made-1", "t", "merge", "", "new-07", "new-01"),
    )
    assert command([str(run), "--edits", file]) == 0
    said = capsys.readouterr().out
    assert "3 edits;" in said
    assert "2 edits applied." in said
    assert "Nothing learns from confirmed labels here" in said  # it is no discovery: there is no next round
    assert (
        "Merge of 'new-07' into 'new-01' was not applied: the category 'new-07' is not in this run." in said
    )
    assert Discovery.load(run).category("new-01").name == "=Hawk & <Owl>"
    assert set(pd.read_parquet(run / "assignments.parquet")["category"]) >= {"=Hawk & <Owl>"}
    assert len((run / "edits.csv").read_text().splitlines()) == 4
    assert "Hawk" in (run / "report" / "data.js").read_text()
    command([str(run), "--edits", file])
    said = capsys.readouterr().out
    assert "3 edits, applied already;" in said
    assert "No new edits to apply." in said
    assert "edits applied." not in said
    assert len((run / "edits.csv").read_text().splitlines()) == 4
    command([str(run)])
    assert "No new edits to apply; 2 edits of the log had been applied before." in capsys.readouterr().out


def test_a_file_without_an_edit_is_called_so(run, tmp_path, capsys):
    file = write(tmp_path)
    assert command([str(run), "--edits", file]) == 0
    said = capsys.readouterr().out
    assert f"{file}: there is no edit in it." in said
    assert "kept" not in said


def first_round(tmp_path) -> tuple[Path, Discovery]:
    """The folder of a discovery that has come to the end of its first round, and what it found."""
    run = tmp_path / "run"
    first = make_discovery(tmp_path, 40)
    first.facts = dataclasses.replace(first.facts, round=1)
    for folder in (run / "rounds" / "1", run):
        first.save(folder)
    RoundConfig({}, {}).save(run / "rounds" / "1")
    (run / "rounds" / "1" / "scores.json").write_text("{}")
    return run, first


def test_where_edits_label_everything_no_round_is_advised(tmp_path, capsys):
    """It would be refused: nothing is left to place."""
    run, first = first_round(tmp_path)
    images = first.images[(first.images["label"] == "") & (first.images["problem"] == "")]
    *rest, last = zip(images["path"], images["category_id"], strict=True)
    edits = [Edit("run-made-1", f"t{i}", "confirm", path, id, id or "x") for i, (path, id) in enumerate(rest)]
    assert command([str(run), "--edits", write(tmp_path, *edits)]) == 0
    assert "run the holotype discover command again" in capsys.readouterr().out
    assert command([str(run), "--edits", write(tmp_path, Edit("run-made-1", "t", "reject", *last))]) == 0
    said = capsys.readouterr().out
    assert "Every image is labelled or rejected now" in said
    assert "command again" not in said


def test_labels_are_said_to_count_in_the_next_round_where_they_do(tmp_path, capsys):
    """In a discovery, and only until a round was given them."""
    run, first = first_round(tmp_path)
    one, two, *_ = first.images["path"][first.images["category_id"] == "new-01"]
    file = write(
        tmp_path,
        Edit("run-made-1", "t", "confirm", one, "", "new-01"),
        Edit("run-made-1", "t", "reject", two, "new-01"),
        Edit("run-made-1", "t", "rename", "", "new-01", "Hawk"),
    )
    assert command([str(run), "--edits", file]) == 0
    assert "1 label and 1 rejected image count in the next round" in capsys.readouterr().out
    given = replay_edits(run).given
    RoundConfig({}, {}, labels=given.labels, rejected=sorted(given.rejected)).save(run / "rounds" / "1")
    assert command([str(run), "--edits", file]) == 0
    said = capsys.readouterr().out
    assert "3 edits, applied already;" in said
    assert "next round" not in said


def test_edits_of_another_run_are_one_sentence(run, tmp_path):
    with pytest.raises(InputError, match="made in the report of run 'other'"):
        command([str(run), "--edits", write(tmp_path, Edit("other", "t", "rename", "", "new-01", "x"))])


def test_what_is_no_run_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="holds no run"):
        command([str(tmp_path)])


def test_a_run_in_which_somebody_works_is_left_alone(run):
    with lock_folder(run), pytest.raises(InputError):
        command([str(run)])


def test_a_run_of_a_benchmark_is_one_like_any_other(holotype, tiny_flags, tmp_path):
    """Images inside a container: trained on, reported with a map, corrected, and new ones placed."""
    run = tmp_path / "run"
    assert holotype("train", "kmeans", "fashion-sample", *tiny_flags, "--k", 10, "--out", run).code == 0
    found = Discovery.load(run)
    assert "#" in found.images.path[0]
    assert found.images.x.isna().all()
    novel = next(category.id for category in found.categories if category.kind == "novel")
    file = write(tmp_path, Edit(found.run_id, "t", "rename", "", novel, "Hawk"))
    outcome = holotype("report", run, "--edits", file, "--device", "cpu", "--no-progress")
    assert outcome.code == 0, outcome.err
    assert "1 edit applied." in outcome.out
    again = Discovery.load(run)
    assert again.category(novel).name == "Hawk"
    assert np.isfinite(again.images[["x", "y"]]).all().all()
    page = (run / "report" / "data.js").read_text()
    assert '"scores":{"kmeans":{"all":' in page
    assert (run / "report" / "thumbs" / "00000.jpg").is_file()
    (tmp_path / "list.csv").write_text("path\n" + "\n".join(found.images.path[:4]) + "\n")
    outcome = holotype("assign", run, tmp_path / "list.csv", "--device", "cpu", "--no-progress")
    assert outcome.code == 0, outcome.err
    placed = pd.read_csv(run / "assigned" / "list.csv")
    assert len(placed) == 4
    assert set(placed.category) <= set(again.images.category)
