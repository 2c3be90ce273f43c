"""`bench`, from Python and as a command: every run once, and a table of what was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holotype.errors import InputError
from holotype.runs.parallel import RunsFailed
from holotype.runs.record import Record, Records
from holotype.runs.resolve import resolve
from holotype.runs.sweep import Sweep
from holotype.runs.sweep import bench as sweep
from holotype.runs.tables import SEPARATE_COLUMNS, make_row
from holotype.training.divergence import Restart
from tests.made_study import made_identity, made_record

SCORES = [f"{name}_{kind}" for name in ("all", "old", "new") for kind in ("mean", "std")]
COLUMNS = [
    *(*SEPARATE_COLUMNS, "n", "seeds", *SCORES, "published_all", "published_old", "published_new"),
    *("published_lawful", "seconds", "commits", "hardware"),
]


def records_in(folder: Path) -> dict[Any, Record]:
    return Records(folder).by_key


@pytest.fixture
def tiny_settings(tiny_backbone_file) -> dict[str, Any]:
    network = {"backbone.name": str(tiny_backbone_file), "k": 4, "device": "cpu"}
    return {**network, "train.batch_size": 16, "train.epochs": 1}


@pytest.fixture
def bench(holotype, squares_folder, tiny_settings, tmp_path):
    """`holotype bench` on the coloured squares, tiny."""

    def call(*words: object):
        flags = [word for key, value in tiny_settings.items() for word in ("--set", f"{key}={value}")]
        places = ("--results", tmp_path / "results", "--out", tmp_path / "runs")
        data = ("--datasets", squares_folder / "squares.csv")
        return holotype("bench", *data, *places, "--no-progress", *flags, *words)

    return call


def lines(table: str) -> list[str]:
    return [line for line in table.splitlines() if line.startswith("| squares |")]


# -- the command ------------------------------------------------------------------------------------------


def test_bench_runs_each_once_and_writes_the_table(bench, holotype, tmp_path: Path) -> None:
    first = bench("--methods", "kmeans,simgcd", "--seeds", "0,1")
    assert first.code == 0, first.err
    results = tmp_path / "results"
    found = records_in(results)
    assert len(found) == 4
    for (hash, seed), record in found.items():
        assert (results / "runs" / f"{hash}-s{seed}.json").is_file()
        assert (results / "classes" / f"{hash}-s{seed}.json").is_file()
        name = f"squares-{record.identity.method['name']}-default-s{seed}-{hash[:8]}"
        assert (tmp_path / "runs" / name / "scores.json").exists()
    assert len({hash for hash, _ in found}) == 2  # the seed is no part of it
    assert (results / "table.md").read_text() == first.out
    assert len(lines(first.out)) == 2
    assert len((results / "table.csv").read_text().splitlines()) == 3

    stamps = {path: path.stat().st_mtime_ns for path in (results / "runs").iterdir()}
    again = bench("--methods", "simgcd", "--seeds", "0,1,2")
    assert again.code == 0, again.err
    assert again.err.count("done before") == 2
    assert len(records_in(results)) == 5
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    (line,) = lines(again.out)  # what was asked for, and no more
    assert "| 3 |" in line
    (results / "table.md").unlink()
    rebuilt = holotype("bench", "--table-only", "--results", results)
    assert rebuilt.code == 0
    assert rebuilt.out == (results / "table.md").read_text()
    assert len(lines(rebuilt.out)) == 2
    asked = bench("--methods", "simgcd", "--seeds", "0,1,2", "--table-only")
    assert lines(asked.out) == [line]


def test_a_run_that_fails_does_not_keep_the_others_from_running(bench, tmp_path: Path) -> None:
    outcome = bench("--methods", "simgcd,kmeans", "--set", "simgcd:train.batch_size=65")
    assert outcome.code == 2
    assert "1 of 2 runs failed" in outcome.err
    found = records_in(tmp_path / "results").values()
    assert [record.identity.method["name"] for record in found] == ["kmeans"]


EXPLODES = "tests.training.explodes:Explodes"
"""With --set method.limit the rate from which on its loss is no number."""


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_loss_that_is_no_number_costs_one_run_and_not_the_others(bench, tmp_path: Path, parallel) -> None:
    words = ("--methods", f"{EXPLODES},simgcd", "--seeds", "0,1", "--parallel", parallel)
    outcome = bench(*words, "--set", f"{EXPLODES}:train.momentum=0")
    assert outcome.code == 2
    sentence = outcome.err.splitlines()[-1]
    assert sentence.startswith("2 of 4 runs failed, squares-tests.training.explodes.Explodes-default-s0-")
    assert ", squares-tests.training.explodes.Explodes-default-s1-" in sentence
    assert "because the loss became {'cls': nan" in sentence
    assert "Traceback" not in outcome.err
    found = records_in(tmp_path / "results").values()
    assert [(r.identity.method["name"], r.identity.seed, r.restarts) for r in found] == [
        *(("simgcd", 0, ()), ("simgcd", 1, ()))
    ]
    (line,) = lines(outcome.out)  # the table of those that came through is there
    assert "| simgcd |" in line
    assert (tmp_path / "results" / "table.md").read_text() == outcome.out
    again = bench(*words, "--set", f"{EXPLODES}:train.momentum=0", "--set", f"{EXPLODES}:method.limit=0.06")
    assert again.code == 0, again.err
    assert again.err.count("done before") == 2
    assert len(lines(again.out)) == 2
    restarts = [r.restarts for r in records_in(tmp_path / "results").values() if r.restarts]
    assert restarts == [(Restart("train", 0, 0, 0.05),)] * 2
    assert again.err.count("the loss left its course in epoch 1 of stage train") == 2


def test_from_python_the_failed_runs_are_named_and_the_others_are_at_hand(
    squares_folder, tiny_settings, tmp_path: Path
) -> None:
    settings = {**tiny_settings, f"{EXPLODES}:train.momentum": 0, "progress": False}
    with pytest.raises(
        RunsFailed, match=r"1 of 2 runs failed, squares-tests\S+; the first because"
    ) as caught:
        sweep(
            methods=[EXPLODES, "kmeans"],
            datasets=[str(squares_folder / "squares.csv")],
            settings=settings,
            results=tmp_path / "results",
            out=tmp_path / "runs",
            progress=False,
        )
    assert caught.value.found == records_in(tmp_path / "results")
    assert len(caught.value.found) == 1


def test_changed_settings_are_another_row(bench, holotype, tmp_path: Path) -> None:
    before = bench("--methods", "kmeans")
    changed = bench("--methods", "kmeans", "--set", "method.n_init=2")
    assert lines(before.out) != lines(changed.out)
    assert len(lines(holotype("bench", "--table-only", "--results", tmp_path / "results").out)) == 2
    again = bench("--methods", "kmeans", "--set", "method.n_init=2", "--table-only")
    assert lines(again.out) == lines(changed.out)


def test_a_folder_without_records_has_no_table(bench, holotype, tmp_path: Path) -> None:
    for outcome in (
        holotype("bench", "--table-only", "--results", tmp_path / "nothing"),
        bench("--methods", "kmeans", "--table-only"),
    ):
        assert outcome.code == 2
        assert "There is no record" in outcome.err
    assert not (tmp_path / "results").exists()


# -- from Python ------------------------------------------------------------------------------------------


def check_frame(frame: Any, hashes: set[str]) -> None:
    assert list(frame.columns) == COLUMNS
    assert list(frame["dataset"]) == ["squares", "squares"]
    assert set(frame["config_hash"]) == hashes
    assert list(frame["n"]) == [2, 2]
    assert list(frame["seeds"]) == ["0 1", "0 1"]
    assert frame["all_mean"].between(0, 100).all()
    assert frame["all_std"].notna().all()
    assert list(frame["epochs"]) == [0, 1]


def test_a_frame_holds_what_the_records_say_whatever_it_looks_like() -> None:
    """A hash of digits, a row called NA, and published numbers for one of two data sets."""
    rows = [
        make_row([made_record(made_identity(resolve("simgcd", name)), 0.5, 0.5)], "NA")
        for name in ("cub", "fashion-sample")
    ]
    facts = {"config_hash": "1234567890123456"}
    rows = [replace(row, facts=row.facts | facts, commits=("123456789012",)) for row in rows]
    frame = Sweep(rows, []).to_frame()
    assert list(frame["config_hash"]) == ["1234567890123456"] * 2
    assert list(frame["commits"]) == ["123456789012"] * 2
    assert list(frame["variant"]) == ["NA", "NA"]
    assert list(frame["seeds"]) == ["0", "0"]
    assert list(frame["published_all"].notna()) == [True, False]
    assert frame["published_lawful"][0] in (True, False)


def test_methods_on_data_sets_with_seeds(squares_folder, tiny_settings, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked: dict[str, Any] = {"datasets": [squares_folder / "squares.csv"], "seeds": [0, 1]}
    asked |= {"methods": ["kmeans", "simgcd"], "settings": tiny_settings, "progress": False}
    first = sweep(**asked)
    assert [(row.facts["method"], row.facts["variant"]) for row in first.rows] == [
        ("kmeans", "default"),
        ("simgcd", "default"),
    ]
    assert {record.key for record in first.records} == set(records_in(Path("results")))
    check_frame(first.to_frame(), {hash for hash, _ in records_in(Path("results"))})
    assert len(lines(first.to_markdown())) == 2
    assert not list(Path("results").glob("*.md"))  # who calls it gets the table, and writes it where he likes
    monkeypatch.setattr("holotype.runs.parallel.run_experiment", lambda *_: pytest.fail("it is done"))
    again = sweep(**asked)
    assert again == first
    one = sweep(**asked | {"settings": tiny_settings | {"kmeans:train.epochs": 9}})
    assert one == first  # k-means does not train


def test_a_study_in_memory_and_the_same_in_a_file(
    squares_folder, tiny_settings, tmp_path: Path, monkeypatch
) -> None:
    import yaml

    monkeypatch.chdir(tmp_path)
    study: dict[str, Any] = {
        "question": "Is training worth it?",
        "datasets": [str(squares_folder / "squares.csv")],
        "seeds": [0, 1],
        "settings": tiny_settings,
        "rows": {"floor": {"method": "kmeans"}, "plain": {"method": "simgcd", "asks": "as it is"}},
    }
    before = yaml.safe_dump(study)
    first = sweep(study, progress=False)
    assert yaml.safe_dump(study) == before
    assert [row.facts["variant"] for row in first.rows] == ["floor", "plain"]
    check_frame(first.to_frame(), {hash for hash, _ in records_in(Path("results"))})
    assert len(list(Path("runs/study").iterdir())) == 4

    monkeypatch.setattr("holotype.runs.parallel.run_experiment", lambda *_: pytest.fail("it is done"))
    assert sweep(study, progress=False) == first
    Path("named.yaml").write_text(before)
    assert sweep("named.yaml", progress=False).to_csv() == first.to_csv()  # records lie beside the file
    part = sweep(Path("named.yaml"), rows=["plain"], seeds=[1], progress=False)
    assert [(row.facts["variant"], row.seeds) for row in part.rows] == [("plain", (1,))]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, "needs methods and datasets, or a study"),
        ({"methods": ["rpc"]}, "needs methods and datasets"),
        ({"study": {}, "methods": ["rpc"]}, "takes a study, or methods and datasets"),
        ({"study": {"question": "Q?"}}, "study has no rows"),
        ({"study": "none.yaml"}, "none.yaml cannot be read"),
        ({"methods": ["rcp"], "datasets": ["cub"]}, "'rcp'"),
        ({"methods": ["rpc"], "datasets": ["cup"]}, "'cup'"),
        ({"methods": ["rpc"], "datasets": ["cub"], "settings": {"train.epoch": 3}}, "train.epoch"),
        ({"methods": ["rpc"], "datasets": ["cub"], "settings": {"simgcd:train.lr": 3}}, "'simgcd'"),
        ({"methods": ["rpc"], "datasets": ["cub"], "seeds": []}, "The list of seeds is empty"),
        ({"methods": ["rpc"], "datasets": ["cub"], "seeds": [0, -1]}, "seed must be at least 0"),
        ({"methods": ["rpc"], "datasets": ["cub"], "seeds": [0, 1.5]}, "seed must be a whole number"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(
    asked: dict[str, Any], told: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        sweep(**asked)
    assert told in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_row_of_a_study_in_memory_is_named_where_it_is_wrong() -> None:
    rows = {"good": {"method": "rpc"}, "bad": {"method": "rpc", "settings": {"train.epoch": 3}}}
    study = {"question": "Q?", "datasets": ["cub"], "seeds": [0], "rows": rows}
    with pytest.raises(InputError, match=r"Row bad of study: .*train\.epoch"):
        sweep(study)


@pytest.mark.parametrize("wrong", [{"methods": "simgcd"}, {"datasets": "cub"}, {"seeds": 3}])
def test_lists_are_asked_for(wrong) -> None:
    asked = {"methods": ["simgcd"], "datasets": ["cub"], "seeds": [0]} | wrong
    with pytest.raises(InputError, match=r"bench takes a list of .* put it into brackets"):
        sweep(**asked)
