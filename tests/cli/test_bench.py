"""`holotype bench --study`: rows become experiments as the file says, flags win over it, and each is run once."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from holotype.cli.settings import read_request, read_words
from holotype.errors import InputError
from holotype.methods.kmeans import KMeans
from holotype.runs.experiment import Experiment
from holotype.runs.planned import Planned, batches, plan_runs
from holotype.runs.prepared import Shelf
from holotype.runs.records import Records
from tests.runs.test_bench import records_in
from tests.runs.test_study import PARTS, SMALL, experiments
from tests.runs.test_study import written as written  # the fixture: a study file with a given text

from .test_bad_input import assert_sentence

# -- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("train.epoch: 3", ("'train.epoch'", "did you mean train.epochs?")),
        ("train.epochs: many", ("train.epochs must be a whole number, not 'many'",)),
        ("train.epochs: 2.5", ("train.epochs must be a whole number",)),
        ("train.epochs: [1, 2]", ("train.epochs must be a whole number",)),
        ("train.epochs: null", ("train.epochs must be a whole number",)),
        ("train.epochs: 0", ("train.epochs must be at least 1",)),
        ("progress: 3", ("progress must be true or false",)),
        ("method.n_init: 3", ("'method.n_init'",)),
    ],
)
def test_settings_are_checked_as_on_the_command_line(written, settings: str, words: tuple[str, ...]) -> None:
    file = written(SMALL + f"rows: {{good: {{method: rpc}}, bad: {{method: rpc, settings: {{{settings}}}}}}}")
    with pytest.raises(InputError) as refused:
        experiments(file)
    for word in (f"Row bad of {file}: ", *words):
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--methods rpc", ("--methods cannot be given with --study",)),
        ("--datasets cub", ("--datasets cannot be given with --study",)),
        ("--rows simgcd,nobody", ("'nobody'", "simgcd, no-new, reading")),
        ("--rows ,", ("--rows names no row", "simgcd, no-new, reading")),
        ("--seeds ,", ("--seeds names no seed",)),
        ("--seeds 0,x", ("--seeds", "'x'")),
        ("--set seed=3", ("seed=3",)),
        ("--set label=x", ("label=x",)),
        ("--set epochs", ("--set epochs", "SETTING=VALUE")),
        ("--set nobody:train.lr=1", ("'nobody'", "simgcd, no-new, reading")),
        ("--rows simgcd --set no-new:train.lr=1", ("'no-new'", "rows are simgcd.")),
        ("--cache-views 16", ("Row simgcd of", "'16'", "16+8")),
    ],
)
def test_flags_that_do_not_fit_the_study(holotype, written, words: str, told: tuple[str, ...]) -> None:
    assert_sentence(holotype("bench", "--study", written(PARTS), *words.split()), *told)


def test_rows_without_a_study_and_other_faults_of_the_row(holotype, written) -> None:
    assert_sentence(
        holotype("bench", "--methods", "rpc", "--datasets", "cub", "--rows", "a"), "--rows", "--study"
    )
    for row, word in (
        ("{method: rcp}", "'rcp'"),
        ("{method: rpc, preset: literal}", "'literal'"),
        ("{method: rpc, datasets: [cup]}", "'cup'"),
    ):
        assert_sentence(
            holotype("bench", "--study", written(SMALL + f"rows: {{a: {row}}}")), word, "Row a of"
        )


# -- from a study to experiments ----------------------------------------------------------------------


def test_every_row_on_its_data_sets_with_its_seeds(written) -> None:
    made = experiments(written(PARTS), "--root", "data", "--no-progress")
    assert [(e.label, e.method_name, e.preset, e.dataset, e.seed) for e in made] == [
        ("simgcd", "simgcd", "default", "cub", 0),
        ("simgcd", "simgcd", "default", "cub", 1),
        ("no-new", "rpc", "default", "cub", 0),
        ("no-new", "rpc", "default", "cub", 1),
        ("reading", "rpc", "reading", "cub", 4),
        ("reading", "rpc", "reading", "scars", 4),
    ]
    assert {(e.cache_views, e.root, e.progress) for e in made} == {("16+8", "data", False)}
    assert [made[n].train.epochs for n in (0, 2, 4)] == [100, 50, 20]
    assert {e.train.lr for e in made} == {0.001}
    assert {e.method.lambda_2 for e in made[2:]} == {0}


def test_flags_win_over_the_file(written) -> None:
    words = "--rows no-new,simgcd --seeds 7 --cache-views 4+2 --set train.epochs=3 --set no-new:train.lr=0.5"
    simgcd, no_new = experiments(written(PARTS), *words.split())
    assert [(e.label, e.seed, e.cache_views) for e in (simgcd, no_new)] == [
        ("simgcd", 7, "4+2"),
        ("no-new", 7, "4+2"),
    ]
    assert (simgcd.train.epochs, simgcd.train.lr) == (3, 0.001)
    assert (no_new.train.epochs, no_new.train.lr) == (3, 0.5)
    exact = experiments(written(PARTS), "--cache-views", "off")
    assert {e.cache_views for e in exact} == {"off"}


def test_set_reaches_a_row_or_else_the_rows_of_a_method(written) -> None:
    rows = "simgcd: {method: simgcd}, other: {method: simgcd}, x=0.1: {method: rpc}, r: {method: rpc, preset: reading}"
    file = written(SMALL + f"rows: {{{rows}}}")

    def reached(where: str) -> list[str | None]:
        return [e.label for e in experiments(file, "--set", f"{where}train.lr=0.7") if e.train.lr == 0.7]

    assert reached("") == ["simgcd", "other", "x=0.1", "r"]
    assert reached("simgcd:") == ["simgcd"]  # the row that is called so, and not the other of that method
    assert reached("simgcd@default:") == ["simgcd", "other"]
    assert reached("x=0.1:") == ["x=0.1"]
    assert reached("rpc:") == ["x=0.1", "r"]
    assert reached("rpc@reading:") == ["r"]


@pytest.mark.parametrize("label", ["no-new", "lambda_1=0.2", "off", "3-blocks", "a.b", "y"])
def test_the_label_survives_config_yaml(written, tmp_path: Path, label: str) -> None:
    (made,) = experiments(written(SMALL + f"rows: {{{label}: {{method: rpc}}}}"))
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(made.as_dict(), sort_keys=False, allow_unicode=True))
    assert made.label == label
    assert read_request(read_words(["--config", str(config)])).resolve() == made


# -- runs ---------------------------------------------------------------------------------------------


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
        *("classes", "parts.csv", "parts.md", "runs")
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
        content = json.loads(path.read_text())
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
    told = {"renamed": "my-best-run.json holds the record of run", "edited": "it was changed by hand"}[fault]
    for more in ((), ("--table-only",), ("--results", "new", "--reuse", "results")):
        assert_refused(holotype(*words, *more), told)
    assert not Path("new").exists()


def test_other_processes_than_the_first_write_nothing(holotype, tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = tiny("one: {method: kmeans}")
    assert holotype("bench", "--study", study, "--no-progress", "--results", "theirs").code == 0
    for module in ("planned", "run"):
        monkeypatch.setattr(f"holotype.runs.{module}.rank", lambda: 1)
    monkeypatch.setattr("holotype.cli.bench.speaks", lambda: False)
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


def plan(runs: list[Experiment], folder: Path) -> list[Planned]:
    return plan_runs(runs, Records(folder / "none"), folder, Shelf())


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
        "z: {method: rpc, settings: {method.ova.arch: debgcd}}, y: {method: simgcd}, "
        "w: {method: rpc, settings: {backbone.train_blocks: 2}}, x: {method: debgcd, settings: {train.epochs: 5}}"
    )
    planned = plan(experiments(tiny(rows)), tmp_path)
    found = [
        [f"{run.experiment.label}{run.experiment.seed}" for run in b] for b in batches(planned, 6, print)
    ]
    assert found == [["z0", "z1", "y0", "y1", "x0", "x1"], ["w0", "w1"]]
