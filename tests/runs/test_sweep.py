"""What a sweep runs, and which records are whose: by what a row resolves to, whatever it is called."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holotype.clustering import estimate_k
from holotype.data.labels import write_sample_file
from holotype.data.load import load_table
from holotype.errors import InputError
from holotype.methods.rpc import RPC
from holotype.runs.parallel import RunsFailed, ScheduledRun, run_batches
from holotype.runs.record import Record, Records
from holotype.runs.resolve import resolve
from holotype.runs.resources import ResourceCache
from holotype.runs.study import Study, build_study
from holotype.runs.sweep import (
    SettingChange,
    Sweep,
    SweepRequest,
    changes_by_row,
    experiments,
    flags_study,
    resolve_row,
    select_records,
)
from holotype.runs.sweep import bench as sweep
from holotype.runs.tables import SEPARATE_COLUMNS, make_row
from holotype.training.divergence import Restart
from tests.cli.test_bad_input import pressed
from tests.made_study import made_identity, made_record

from .test_resources import counted as counted  # the fixture: how often things are made
from .test_resources import get
from .test_resources import tiny as tiny


def study(**content: Any) -> Study:
    rows = {
        "plain": {"method": "simgcd"},
        "rpc": {"method": "rpc"},
        "gone": {"method": "rpc", "record": "f" * 16},
    }
    told = {"question": "Q?", "datasets": ["cub"], "seeds": [0, 1], "cache_views": "16+8", "rows": rows}
    return build_study(told | content, "parts.yaml")


def recorded(
    row: str,
    seed: int = 0,
    changes: dict[str, Any] | None = None,
    dataset: str = "cub",
    of: Study | None = None,
) -> Record:
    of = of or study()
    experiment = resolve_row(of, of.rows[row], dataset)
    identity = made_identity(experiment, changes)
    return made_record(dataclasses.replace(identity, seed=seed), 60, 50)


# -- what is run ------------------------------------------------------------------------------------------


def test_methods_times_data_sets_times_seeds() -> None:
    changes = [SettingChange("train.epochs", 50), SettingChange("method.alpha", 0.1, "rpc")]
    changes += [SettingChange("method.alpha", 0.2, "rpc@reading")]
    asked = SweepRequest(changes=changes, root="data", progress=False)
    flags = flags_study(["rpc", "rpc@reading", "simgcd"], ["cub", "scars"], [0, 4])
    made = experiments(flags, asked, label=False)
    assert len(made) == 12
    assert {(e.method_name, e.preset, e.dataset, e.seed) for e in made} == {
        (method, preset, dataset, seed)
        for method, preset in (("rpc", "default"), ("rpc", "reading"), ("simgcd", "default"))
        for dataset in ("cub", "scars")
        for seed in (0, 4)
    }
    assert all(e.train.epochs == 50 and e.root == "data" and not e.progress for e in made)
    alpha = {e.preset: e.method.alpha for e in made if e.method_name == "rpc"}
    assert alpha == {"default": 0.1, "reading": 0.2}
    assert {e.method.memax_weight for e in made if e.dataset == "cub"} == {2.0}
    assert {e.label for e in made} == {None}
    assert {e.cache_views for e in made} == {"off"}


def test_seeds_share_no_settings() -> None:
    one, other = experiments(study(), SweepRequest(rows=["rpc"]))
    one.method.alpha = 0.9
    assert other.method.alpha != 0.9


def test_every_seed_is_looked_at_and_one_that_stands_twice_is_one_run() -> None:
    with pytest.raises(InputError, match=r"Row plain of .*: seed must be at least 0"):
        experiments(study(seeds=[0, -1]), SweepRequest())
    assert [made.seed for made in experiments(study(), SweepRequest(rows=["rpc"], seeds=[2, 0, 2]))] == [2, 0]


def test_what_is_asked_for_wins_over_the_study() -> None:
    asked = SweepRequest(
        rows=["rpc"], seeds=[7], changes=[SettingChange("train.lr", "0.5")], cache_views="off"
    )
    (made,) = experiments(study(settings={"train.lr": 0.2}), asked)
    assert (made.label, made.seed, made.train.lr, made.cache_views) == ("rpc", 7, 0.5, "off")


def test_a_row_that_names_its_records_is_passed_over_and_refused_where_it_is_asked_for() -> None:
    assert {made.label for made in experiments(study(), SweepRequest())} == {"plain", "rpc"}
    with pytest.raises(InputError, match=r"Row gone of parts\.yaml cannot be run by this version: "):
        experiments(study(), SweepRequest(rows=["gone", "rpc"]))
    with pytest.raises(InputError, match=r"belongs to commit abc"):
        experiments(study(commit="abc"), SweepRequest(rows=["gone"]))


def test_a_setting_that_is_gone_names_the_row_and_the_commit() -> None:
    rows = {"old": {"method": "rpc", "settings": {"method.temperature": 3}}}
    with pytest.raises(InputError, match=r"Row old of parts\.yaml: .*method\.temperature.*commit abc"):
        experiments(study(rows=rows, commit="abc"), SweepRequest())


def test_changes_reach_a_row_a_method_or_all() -> None:
    rows = list(study().rows.values())
    changes = [
        SettingChange("a", 1),
        SettingChange("b", 2, "rpc"),
        SettingChange("c", 3, "simgcd"),
        SettingChange("a", 4, "plain"),
    ]
    found = changes_by_row(changes, rows, study())
    assert found == {"plain": {"a": 4, "c": 3}, "rpc": {"a": 1, "b": 2}, "gone": {"a": 1}}
    for wrong, told in (
        (SettingChange("seed", 1), "holotype bench --help"),
        (SettingChange("a", 1, "x"), "'x'"),
    ):
        with pytest.raises(InputError, match=told):
            changes_by_row([wrong], rows, study())
    assert str(SettingChange("a", 1, "x")) == "x:a=1"
    assert str(SettingChange("a", 1)) == "a=1"


# -- whose a record is ------------------------------------------------------------------------------------


def test_a_row_selects_its_records_by_what_it_resolves_to() -> None:
    """Whatever they were called when they were made, in whichever study."""
    mine = [recorded("plain", seed) for seed in (1, 0, 5)]
    others = [
        recorded("rpc"),
        recorded("plain", changes={"train.lr": 9.0}),
        recorded("plain", changes={"views": "off"}),
    ]
    found = select_records(study(), study().rows["plain"], "cub", [*others, *mine])
    assert [record.key for record in found] == [mine[1].key, mine[0].key]  # by seed; 5 is none of the row's
    renamed = study(rows={"renamed": {"method": "simgcd", "settings": {"train.eval_every": 3}}})
    assert select_records(renamed, renamed.rows["renamed"], "cub", [*others, *mine]) == found


def test_a_row_finds_nothing_where_nothing_is_its() -> None:
    assert select_records(study(), study().rows["plain"], "cub", []) == []
    assert select_records(study(), study().rows["plain"], "cub", [recorded("rpc")]) == []
    there = study(datasets=["cub", "scars"])
    assert select_records(there, there.rows["rpc"], "scars", [recorded("rpc")]) == []
    (found,) = select_records(there, there.rows["rpc"], "scars", [recorded("rpc", dataset="scars", of=there)])
    assert found.identity.data["name"] == "scars"


@pytest.mark.parametrize("part", ["revision", "engine"])
def test_records_of_another_algorithm_are_not_selected(part: str, monkeypatch) -> None:
    old = recorded("rpc")
    assert select_records(study(), study().rows["rpc"], "cub", [old]) == [old]
    if part == "revision":
        monkeypatch.setattr(RPC, "revision", RPC.revision + 1)
    else:
        monkeypatch.setattr("holotype.runs.identity.ENGINE", 99)
    assert select_records(study(), study().rows["rpc"], "cub", [old]) == []
    assert select_records(study(), study().rows["rpc"], "cub", [old, recorded("rpc")]) == [recorded("rpc")]


def test_a_row_that_names_its_records_selects_them_and_no_others() -> None:
    old = recorded("rpc", changes={"method.settings.gone": 3, "method.revision": 1})
    rows = {"gone": {"method": "rpc", "record": old.identity.hash, "settings": {"method.gone": 3}}}
    named = study(rows=rows)
    assert select_records(named, named.rows["gone"], "cub", [old, recorded("rpc")]) == [old]
    assert select_records(named, named.rows["gone"], "scars", [old]) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data.table": "9"}, "data.table"),
        ({"backbone.digest": "9"}, "backbone.digest"),
        ({"train.precision": "bf16"}, "train.precision"),
    ],
)
def test_records_of_two_kinds_are_refused(changes: dict[str, Any], told: str) -> None:
    """Other images or weights under the same names: no table may mix them, nor choose."""
    records = [recorded("rpc", 0), recorded("rpc", 1, changes)]
    with pytest.raises(InputError, match=f"row rpc of parts has records of two kinds, .* differ in {told}; "):
        select_records(study(), study().rows["rpc"], "cub", records)


def test_what_was_changed_on_top_of_a_study_is_found_with_the_same_changes() -> None:
    other = recorded("rpc", changes={"train.lr": 0.5, "views": "4+2"})
    row, asked = study().rows["rpc"], SweepRequest(cache_views="4+2")
    assert select_records(study(), row, "cub", [other]) == []
    assert select_records(study(), row, "cub", [other], asked, {"train.lr": "0.5"}) == [other]


def test_a_data_set_that_is_a_path_is_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "birds.v2").mkdir()
    there = study(datasets=[str(tmp_path / "birds.v2")])
    mine = recorded("rpc", dataset=str(tmp_path / "birds.v2"), of=there)
    assert mine.identity.data["name"] == "birds.v2"
    assert select_records(there, there.rows["rpc"], "birds.v2", [mine]) == [mine]


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


ONCE = ["data", "backbone", "decode", "cache"]


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_sweep_decodes_once_and_caches_once(bench, counted, tmp_path: Path, parallel: int) -> None:
    words = ("--methods", "kmeans,simgcd,rpc", "--seeds", "0,1", "--cache-views", "4+2")
    outcome = bench(*words, "--parallel", parallel)
    assert outcome.code == 0, outcome.err
    assert counted == ONCE
    found = records_in(tmp_path / "results").values()
    assert len(found) == 6
    modes = {one.identity.method["name"]: one.made.mode for one in found}
    assert modes == {"kmeans": "exact", "simgcd": "cached 4+0", "rpc": "cached 4+2"}
    assert {one.made.parallel for one in found} == {parallel}
    assert ("3 runs at once: " in outcome.err) == (parallel == 3)
    # images and tokens are told of once; k-means has no use for the cache, and says so each time
    assert sum(line.startswith("64 images, ") for line in outcome.err.splitlines()) == 1
    assert outcome.err.count("Token cache: ") == 1
    assert outcome.err.count("kmeans does not train on tokens") == 2


def test_every_backbone_counts_categories_for_itself(tiny, counted, monkeypatch) -> None:
    """In a sweep over backbones a run has the number that it has alone, and images are decoded once for all."""
    counts: list[int] = []

    def estimate(*given, **named):
        counts.append(4 + len(counts))
        return dataclasses.replace(real(*given, **named), best=counts[-1], by="class sizes")

    real = estimate_k.estimate_count
    monkeypatch.setattr(estimate_k, "estimate_count", estimate)
    shelf = ResourceCache()
    first, second = (get(shelf, tiny(k="auto", backbone__train_blocks=blocks)) for blocks in (1, 2))
    assert (first.data.k, second.data.k) == (4, 5)
    assert second.images is first.images
    assert second.data.table is first.data.table
    assert counted.count("decode") == 1


def test_the_weights_of_a_sample_count_where_categories_are_counted(
    tiny, squares_folder, monkeypatch, tmp_path: Path
) -> None:
    """As `holotype estimate-k` counts them: the sizes of classes are those of the whole collection."""
    table = load_table(squares_folder / "squares.csv")
    weight = np.where(table.labelled, 1.0, 7.0)
    columns = {"path": list(table.path), "label": list(table.label), "weight": weight}
    write_sample_file(tmp_path / "some.parquet", columns, {})
    seen = []

    def estimate(*given, weight=None, **named):
        seen.append(weight)
        return real(*given, weight=weight, **named)

    real = estimate_k.estimate_count
    monkeypatch.setattr(estimate_k, "estimate_count", estimate)
    get(ResourceCache(), tiny(k="auto", dataset=str(tmp_path / "some.parquet")))
    assert np.array_equal(seen[0], weight)


def test_runs_made_at_once_score_what_they_score_alone(bench, tmp_path: Path) -> None:
    words = ("--methods", "simgcd,rpc", "--seeds", "0,1")
    assert bench(*words, "--results", tmp_path / "alone", "--out", tmp_path / "runs-alone").code == 0
    assert bench(*words, "--parallel", 4).code == 0
    together, alone = records_in(tmp_path / "results"), records_in(tmp_path / "alone")
    assert len(together) == 4
    assert together.keys() == alone.keys()
    for key, one in together.items():
        other = alone[key]
        assert one.made.mode == "exact"  # unless asked for otherwise
        assert (one.identity, one.scores, one.placed) == (other.identity, other.scores, other.placed)
        assert (one.made.parallel, other.made.parallel) == (4, 1)


def test_exact_and_cached_runs_are_never_averaged(bench, holotype, tmp_path: Path) -> None:
    bench("--methods", "simgcd", "--seeds", "0,1")
    bench("--methods", "simgcd", "--seeds", "0,1", "--cache-views", "4+2")
    outcome = holotype("bench", "--table-only", "--results", tmp_path / "results")
    rows = [line for line in outcome.out.splitlines() if line.startswith("| squares |")]
    assert len(rows) == 2
    assert "| cached 4+0 | 2 |" in rows[0] + rows[1]
    assert "| exact | 2 |" in rows[0] + rows[1]


def test_a_failed_run_among_several_at_once(bench, tmp_path: Path) -> None:
    words = ("--methods", "simgcd,kmeans", "--set", "simgcd:train.batch-size=65", "--parallel", 2)
    outcome = bench(*words)
    assert outcome.code == 2
    assert "1 of 2 runs failed" in outcome.err
    found = records_in(tmp_path / "results").values()
    assert [one.identity.method["name"] for one in found] == ["kmeans"]


def test_a_stopped_sweep_goes_on(bench, monkeypatch, tmp_path: Path) -> None:
    words = ("--methods", "simgcd,rpc", "--seeds", "0,1", "--cache-views", "4+2", "--parallel", 2)
    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        stopped = bench(*words)
    assert stopped.code == 130
    assert "simgcd s0: stage train" in stopped.err
    assert "simgcd s1: stage train" in stopped.err
    assert not list((tmp_path / "results").rglob("*.json"))
    assert bench(*words).code == 0
    assert len(records_in(tmp_path / "results")) == 4


def test_runs_that_cannot_share_the_device_run_by_themselves() -> None:
    """Several processes, a method that takes images, and other data each form a batch of their own."""
    made = [resolve(method, "cub", overrides={"seed": s}) for method in ("simgcd", "rpc") for s in (0, 1, 2)]
    made += [resolve("simgcd", "scars", overrides={"devices": 2})]
    made += [resolve("tests.training.stubs:OwnEncoder", "cub")]
    made += [resolve("simgcd", "cub", overrides={"train.matmul": "highest"})]
    planned = [
        ScheduledRun(experiment, ("", n), f"run {n}", Records("none"), None)
        for n, experiment in enumerate(made)
    ]
    said: list[str] = []
    found = [[run.name for run in batch] for batch in run_batches(planned, 4, said.append)]
    assert found == [
        ["run 7"],
        ["run 0", "run 1", "run 2", "run 3"],
        ["run 4", "run 5"],
        ["run 6"],
        ["run 8"],
    ]
    assert said == [
        "run 7 runs by itself: tests.training.stubs:OwnEncoder takes images instead of tokens",
        "run 6 runs by itself: it takes 2 processes",
    ]
    one_by_one = [[run.name for run in batch] for batch in run_batches(planned, 1, said.append)]
    assert one_by_one == [[run.name] for run in planned]
    assert len(said) == 2
