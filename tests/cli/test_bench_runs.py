"""`holotype bench --study` runs each row once, whatever it is called, and takes nothing for a record that is none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from holotype.methods.kmeans import KMeans
from holotype.runs.experiment import Experiment
from holotype.runs.record import Records
from holotype.runs.resources import ResourceCache
from holotype.runs.sweep import ScheduledRun, plan_runs, run_batches
from holotype.utils.serialization import read_json
from tests.runs.test_study import experiments
from tests.runs.test_study import written as written  # the fixture: a study file with a given text
from tests.runs.test_sweep import records_in

from .test_bad_input import assert_sentence


@pytest.fixture
def tiny(written, squares_folder, tiny_backbone_file):
    """A study of coloured squares with these rows."""

    def write(rows: str, name: str = "tiny") -> Path:
        common = (
            f"backbone.name: {tiny_backbone_file}, k: 4, train.batch_size: 16, train.epochs: 1, device: cpu"
        )
        data = f"datasets: [{squares_folder / 'squares.csv'}]\nseeds: [0, 1]\n"
        return written(f"question: Q?\n{data}settings: {{{common}}}\nrows: {{{rows}}}", name)

    return write


ROWS = "b: {method: simgcd, asks: as it is}, a: {method: simgcd, settings: {train.lr: 0.2, train.epochs: 2}}"


def test_a_study_is_run_once_and_its_rows_stand_in_the_table(holotype, tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("bench", "--study", tiny(ROWS), "--no-progress", "--parallel", 4)
    first = holotype(*words)
    assert first.code == 0, first.err
    assert "tiny: Q?\n  b: as it is\n  a\n" in first.err
    assert re.search(
        r"4 runs at once: squares-simgcd-b-s0-\w+, \S+-b-s1-\w+, \S+-a-s0-\w+, \S+-a-s1-", first.err
    )
    found = records_in(Path("results"))
    assert sorted((r.made.variant, r.identity.seed, r.made.epochs) for r in found.values()) == [
        ("a", 0, 2),
        ("a", 1, 2),
        ("b", 0, 1),
        ("b", 1, 1),
    ]
    for (hash, seed), record in found.items():
        name = f"squares-simgcd-{record.made.variant}-s{seed}-{hash[:8]}"
        assert (Path("runs/tiny") / name / "scores.json").exists()
    assert [line.split(" | ")[2] for line in first.out.splitlines() if "squares" in line] == ["b", "a"]
    assert Path("results/tiny.md").read_text() == first.out
    assert len(Path("results/tiny.csv").read_text().splitlines()) == 3
    config = next(Path("runs/tiny").glob("*-a-s1-*/config.yaml"))
    again = holotype("train", "--config", config, "--out", "repeated")
    assert again.code == 0, again.err
    assert (Path("repeated") / "assignments.csv").read_bytes() == (
        config.parent / "assignments.csv"
    ).read_bytes()
    assert holotype("bench", "--study", tiny(ROWS), "--table-only").out == first.out


def test_a_benchmark_in_a_study(holotype, written, tiny_backbone_file, tmp_path) -> None:
    common = f"settings: {{backbone.name: {tiny_backbone_file}, device: cpu, method.n_init: 1}}\n"
    file = written(
        "question: Q?\ndatasets: [fashion-sample]\nseeds: [2]\n" + common + "rows: {one: {method: kmeans}}"
    )
    places = ("--results", tmp_path / "results", "--out", tmp_path / "runs")
    outcome = holotype("bench", "--study", file, *places, "--no-progress")
    assert outcome.code == 0, outcome.err
    (made,) = records_in(tmp_path / "results").values()
    assert (made.identity.data["name"], made.made.variant, made.identity.seed) == ("fashion-sample", "one", 2)
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        *("parts.csv", "parts.md", "runs")
    ]


def test_a_row_that_was_renamed_is_done(holotype, tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert holotype("bench", "--study", tiny("old: {method: kmeans}"), "--no-progress").code == 0
    again = holotype("bench", "--study", tiny("new: {method: kmeans}"), "--no-progress")
    assert again.code == 0, again.err
    assert again.err.count("done before") == 2
    assert {made.made.variant for made in records_in(Path("results")).values()} == {"old"}
    assert "| new |" in again.out  # the table calls it what the study calls it now
    assert "| old |" not in again.out


def test_a_run_of_another_folder_is_taken_over_and_called_as_here(
    holotype, tiny, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert holotype("bench", "--study", tiny("old: {method: kmeans}"), "--no-progress").code == 0
    Path("results/speed.json").write_text("{}")  # not a result, and no reason to stop
    words = ("--study", tiny("new: {method: kmeans}"), "--no-progress", "--results", "second")
    again = holotype("bench", *words, "--reuse", "results")
    assert again.code == 0, again.err
    assert again.err.count("done before") == 2
    assert "| new |" in again.out
    mine, theirs = (records_in(Path(name)) for name in ("second", "results"))
    assert mine == theirs
    assert len(mine) == 2
    assert_sentence(holotype("bench", *words, "--reuse", "nowhere"), "--reuse nowhere is not a folder")


def assert_refused(outcome, *words: str) -> None:
    """One sentence, and before it at most the question of the study."""
    told = outcome.err.removeprefix("tiny: Q?\n  one\n")
    assert outcome.code == 2, (outcome.out, outcome.err)
    assert len(told.splitlines()) == 1, told
    assert all(word in told for word in words), told


def test_a_conflicting_record_of_another_folder_is_refused(holotype, tiny, tmp_path, monkeypatch) -> None:
    """Same settings, same seed, other scores: one of them is wrong, and nobody may choose for the user."""
    monkeypatch.chdir(tmp_path)
    words = ("bench", "--study", tiny("one: {method: kmeans}"), "--no-progress")
    assert holotype(*words).code == 0
    for path in Path("results/runs").iterdir():
        content = read_json(path)
        content["scores"] |= {"all": 0.5, "old": 0.5, "new": 0.5}
        (Path("theirs/runs") / path.name).parent.mkdir(parents=True, exist_ok=True)
        (Path("theirs/runs") / path.name).write_text(json.dumps(content))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert_refused(holotype(*words, "--reuse", "theirs"), "contradicts another record", "scores.all")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    monkeypatch.setattr(KMeans, "revision", 2)
    Path("results").rename("away")
    again = holotype(*words, "--reuse", "theirs")  # whose records are of the older revision
    assert again.code == 0, again.err
    assert "done before" not in again.err
    assert not records_in(Path("results")).keys() & records_in(Path("theirs")).keys()


@pytest.mark.parametrize("fault", ["renamed", "edited"])
def test_a_record_that_was_changed_by_hand_is_refused(holotype, tiny, tmp_path, monkeypatch, fault) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("bench", "--study", tiny("one: {method: kmeans}"), "--no-progress", "--seeds", 0)
    assert holotype(*words).code == 0
    (path,) = Path("results/runs").iterdir()
    if fault == "renamed":
        path.rename(path.with_name("my-best-run.json"))
    else:
        path.write_text(path.read_text().replace('"n_init": 10', '"n_init": 11'))
    told = {
        "renamed": "my-best-run.json holds the record of run",
        "edited": "does not bear the hash of its own identity",
    }[fault]
    for more in ((), ("--table-only",), ("--results", "new", "--reuse", "results")):
        assert_refused(holotype(*words, *more), told)
    assert not Path("new").exists()


def test_other_processes_than_the_first_write_nothing(holotype, tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = tiny("one: {method: kmeans}")
    assert holotype("bench", "--study", study, "--no-progress", "--results", "theirs").code == 0
    for module in ("sweep", "run"):
        monkeypatch.setattr(f"holotype.runs.{module}.rank", lambda: 1)
    monkeypatch.setattr("holotype.cli.bench.is_rank0_output", lambda: False)
    outcome = holotype("bench", "--study", study, "--no-progress", "--reuse", "theirs")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert not Path("results").exists()


def test_a_table_of_what_was_set_on_top_of_the_study(holotype, tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("bench", "--study", tiny("one: {method: kmeans}"), "--no-progress", "--set", "method.n_init=2")
    made = holotype(*words)
    assert made.code == 0, made.err
    assert holotype(*words, "--table-only").out == made.out
    assert_sentence(holotype(*words[:-2], "--table-only"), "There is no record of tiny in")


def test_of_several_studies_a_run_that_two_name_is_made_once(holotype, tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = tiny("old: {method: kmeans}")
    two = tiny("new: {method: kmeans}, more: {method: simgcd}", "other")
    outcome = holotype("bench", "--study", one, two, "--no-progress")
    assert outcome.code == 0, outcome.err
    found = records_in(Path("results")).values()
    assert sorted((r.made.variant, r.identity.seed) for r in found) == [
        ("more", 0),
        ("more", 1),
        ("old", 0),
        ("old", 1),
    ]
    first, second = (Path("results", name).read_text() for name in ("tiny.md", "other.md"))
    assert first + second == outcome.out
    assert ("| old |" in first, "| new |" in first) == (True, False)
    assert ("| old |" in second, "| new |" in second, "| more |" in second) == (False, True, True)
    assert len(list(Path("runs").glob("*/*kmeans*"))) == 2
    assert outcome.out.count("| squares |") == 3
    assert_sentence(holotype("bench", "--study", one, two, "--rows", "new"), "--rows picks rows of one study")
    assert_sentence(holotype("bench", "--study", one, one), "same name")


def plan(runs: list[Experiment], folder: Path) -> list[ScheduledRun]:
    return plan_runs(runs, Records(folder / "none"), folder, ResourceCache())


def test_the_hash_knows_no_label(tiny, tmp_path) -> None:
    def hashes(rows: str) -> list[str]:
        return [run.key[0] for run in plan(experiments(tiny(rows)), tmp_path)]

    assert hashes("one: {method: simgcd}") == hashes("two: {method: simgcd}")
    assert len(set(hashes(ROWS))) == 2


def test_rows_that_are_the_same_experiment_are_refused(holotype, tiny, tmp_path, monkeypatch) -> None:
    """How often a run is scored decides nothing about it."""
    monkeypatch.chdir(tmp_path)
    rows = "one: {method: simgcd}, two: {method: simgcd, settings: {train.eval_every: 7}}, three: {method: kmeans}"
    outcome = holotype("bench", "--study", tiny(rows))
    assert outcome.code == 2
    sentence = outcome.err.splitlines()[-1]
    assert sentence.startswith("one and two are the same experiment")
    assert "seed 0" in sentence
    assert not Path("runs").exists()


def test_rows_with_equal_data_train_together_in_the_order_of_the_file(tiny, tmp_path) -> None:
    rows = (
        "z: {method: rpc, settings: {method.pairing.filter: none}}, y: {method: simgcd}, "
        "w: {method: rpc, settings: {backbone.train_blocks: 2}}, x: {method: debgcd, settings: {train.epochs: 5}}"
    )
    planned = plan(experiments(tiny(rows)), tmp_path)
    found = [
        [f"{run.experiment.label}{run.experiment.seed}" for run in b] for b in run_batches(planned, 6, print)
    ]
    assert found == [["z0", "z1", "y0", "y1", "x0", "x1"], ["w0", "w1"]]


def test_exact_mode_on_a_cpu_is_told_to_be_slow(holotype, tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    word = "--cache-views 4+2 trains many times faster"
    study = tiny("a: {method: simgcd}")
    assert word not in holotype("bench", "--study", study, "--no-progress", "--cache-views", "off").err
    assert (
        word in holotype("bench", "--study", study, "--no-progress").err
    )  # recorded already: nothing is trained
    assert word not in holotype("bench", "--study", tiny("b: {method: kmeans}", "flat"), "--no-progress").err
