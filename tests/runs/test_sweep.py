"""Sweeps: each run once, one by one or several at once, with the end it has alone; what fails costs itself alone."""

import dataclasses
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from holotype.clustering import estimate_k
from holotype.data.labels import write_sample_file
from holotype.data.load import load_table
from holotype.errors import InputError, Stopped
from holotype.models.backbone import load_backbone
from holotype.models.token_cache import CacheViews
from holotype.runs import sweep as module
from holotype.runs.experiment import Experiment, resolve
from holotype.runs.record import Record, Records
from holotype.runs.resources import VIEWS_SCHEMA, ResourceCache
from holotype.runs.run import run_experiment
from holotype.runs.sweep import RunsFailed, ScheduledRun, Sweep, run_together
from holotype.runs.sweep import bench as sweep
from holotype.runs.tables import make_row
from holotype.training.divergence import Restart
from holotype.training.loop import Loop
from holotype.utils.serialization import read_json
from tests.made_study import made_identity, made_record

from .test_run import assert_same_run, timeless

EXPLODES = "tests.training.explodes:Explodes"
"""With --set method.limit the rate from which on its loss is no number."""


def records_in(folder: Path) -> dict[Any, Record]:
    return Records(folder).by_key


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def lines(table: str) -> list[str]:
    return [line for line in table.splitlines() if line.startswith("| squares |")]


@pytest.fixture
def plan(tmp_path: Path) -> Callable[..., list[ScheduledRun]]:
    """The plan of experiments, with records in `results` and in another folder."""

    def make(*runs: Experiment, results: str = "results", reuse: str | None = None) -> list[ScheduledRun]:
        elsewhere = Records(tmp_path / reuse) if reuse else None
        records = Records(tmp_path / results)
        return module.plan_runs(runs, records, tmp_path / "runs", ResourceCache(), elsewhere)

    return make


def run(planned: list[ScheduledRun]) -> dict[Any, Record]:
    return module.run_scheduled(planned, lambda line: None, ResourceCache())


def test_a_run_is_done_when_a_record_of_its_identity_is_there(tiny, plan, tmp_path: Path, monkeypatch):
    first = plan(tiny("kmeans"), tiny("kmeans", seed=1))
    assert [one.done for one in first] == [None, None]
    assert [one.key for one in first] == [(first[0].key[0], 0), (first[0].key[0], 1)]
    found = run(first)
    assert found == records_in(tmp_path / "results")
    before = files(tmp_path)
    again = plan(tiny("kmeans", label="renamed"), tiny("kmeans", seed=2))
    assert files(tmp_path) == before  # planning writes nothing
    assert [one.done for one in again] == [found[first[0].key], None]
    assert again[0].name == f"squares-kmeans-renamed-s0-{first[0].key[0][:8]}"
    assert again[0].experiment.folder == tmp_path / "runs" / again[0].name
    # a record of elsewhere counts, and is taken over once; that of another algorithm does not
    with monkeypatch.context() as patch:
        patch.setattr("holotype.runs.identity.ENGINE", 99)
        assert plan(tiny("kmeans"), reuse="results")[0].done is None
    monkeypatch.setattr("holotype.runs.sweep.run_experiment", lambda *_: pytest.fail("it is done"))
    (other,) = plan(tiny("kmeans"), results="second", reuse="results")
    run([other])
    assert files(tmp_path / "second").items() <= files(tmp_path / "results").items()


def test_a_conflicting_twin_is_refused_and_nothing_is_written(tiny, plan, tmp_path: Path) -> None:
    (mine,) = run(plan(tiny("kmeans"))).values()
    r, old = mine.scores.share_old or 0.0, mine.scores.old or 0.0
    scores = dataclasses.replace(mine.scores, new=0.125, all=r * old + (1 - r) * 0.125)
    Records(tmp_path / "theirs").add(dataclasses.replace(mine, scores=scores))
    before = files(tmp_path)
    with pytest.raises(InputError, match=r"contradicts another record .* revision was not raised"):
        plan(tiny(), tiny("kmeans"), reuse="theirs")
    assert files(tmp_path) == before
    assert plan(tiny(), reuse="theirs")[0].done is None  # who does not ask for it is not troubled
    path = Records(tmp_path / "results").path(mine.key)
    path.write_text(json.dumps(read_json(path) | {"hash": "0" * 16}))  # nor is one that was tampered with
    with pytest.raises(InputError, match="hash of its own identity"):
        plan(tiny("kmeans"))


def test_what_is_one_run(tiny, plan, tmp_path: Path) -> None:
    def keys(method: str, *changes: dict[str, Any]) -> set[Any]:
        return {plan(tiny(method, **one))[0].key for one in ({}, *changes)}

    same = [{"train__eval_every": 7}, {"train__eager": True}, {"root": "elsewhere"}, {"store": "disk"}]
    other = [{"k": 5}, {"cache_views": "4+2"}, {"backbone__train_blocks": 2}, {"backbone__image_size": 64}]
    other += [{"train__precision": "fp64"}, {"train__lr": 0.7}, {"method__alpha": 0.9}, {"seed": 9}]
    assert len(keys("rpc", *same)) == 1
    assert len(keys("rpc", *other)) == 1 + len(other)
    training = [{"train__epochs": 7}, {"train__batch_size": 32}, {"train__lr": 0.7}, {"cache_views": "4+2"}]
    assert (len(keys("kmeans", *training)), len(keys("simgcd", *training))) == (1, 5)
    views = [{"cache_views": "16+8"}, {"cache_views": "16+0"}]
    assert (len(keys("simgcd", *views)), len(keys("rpc", *views))) == (2, 3)  # the first is off
    with pytest.raises(InputError, match="one and two are the same experiment"):
        plan(tiny("kmeans", label="one"), tiny("kmeans", label="two", train__epochs=9))
    # of several plans, a run that two name is made once
    planned = [*plan(tiny("kmeans", label="a"), tiny()), *plan(tiny("kmeans", label="b"), results="second")]
    found = run(planned)
    assert (len(found), list(records_in(tmp_path / "second"))) == (2, [planned[0].key])
    assert not (tmp_path / "runs" / planned[2].name).exists()
    runs = [tiny(), tiny(k=5), tiny(seed=1)]  # those that share data stand together; tables keep the order
    assert [(one.experiment, one.asked) for one in plan(*runs)] == [(runs[i], i) for i in (0, 2, 1)]


def test_bench_runs_each_once_and_writes_the_table(bench, holotype, tmp_path: Path) -> None:
    first, results = bench("--methods", "kmeans,simgcd", "--seeds", "0,1"), tmp_path / "results"
    assert first.code == 0, first.err
    found = records_in(results)
    assert (len(found), len({hash for hash, _ in found})) == (4, 2)  # the seed is no part of it
    assert (results / "table.md").read_text() == first.out
    assert len(lines(first.out)) == len((results / "table.csv").read_text().splitlines()) - 1 == 2
    before = files(results / "runs")
    again = bench("--methods", "simgcd", "--seeds", "0,1,2")
    assert again.err.count("done before") == 2
    assert files(results / "runs").items() > before.items()
    (line,) = lines(again.out)  # what was asked for, and no more
    assert "| 3 |" in line
    exact = bench("--methods", "simgcd", "--seeds", "0", "--cache-views", "off")
    assert len(lines(exact.out)) == 1
    rebuilt = holotype("bench", "--table-only", "--results", results)
    assert rebuilt.out == (results / "table.md").read_text()
    assert len(lines(rebuilt.out)) == 3  # exact and cached runs are never averaged
    assert "| cached 4+0 | 3 |" in rebuilt.out
    assert lines(bench("--methods", "simgcd", "--seeds", "0,1,2", "--table-only").out) == [line]
    outcome = bench("--methods", "uno", "--table-only")
    assert (outcome.code, "There is no record" in outcome.err) == (2, True)
    assert holotype("bench", "--table-only", "--results", tmp_path / "nothing").code == 2


def test_a_loss_that_is_no_number_costs_one_run_and_not_the_others(bench, tmp_path: Path) -> None:
    words = ("--methods", f"{EXPLODES},simgcd", "--seeds", "0,1", "--parallel", 3)
    outcome = bench(*words, "--set", f"{EXPLODES}:train.momentum=0")
    assert outcome.code == 2
    sentence = outcome.err.splitlines()[-1]
    assert sentence.startswith("2 of 4 runs failed, squares-tests.training.explodes.Explodes-default-s0-")
    assert "because the loss became {'cls': nan" in sentence
    found = records_in(tmp_path / "results").values()
    assert [(r.identity.method["name"], r.restarts) for r in found] == [("simgcd", ()), ("simgcd", ())]
    (line,) = lines(outcome.out)  # the table of those that came through is there
    assert "| simgcd |" in line
    again = bench(*words, "--set", f"{EXPLODES}:train.momentum=0", "--set", f"{EXPLODES}:method.limit=0.06")
    assert (again.code, again.err.count("done before"), len(lines(again.out))) == (0, 2, 2)
    restarts = [r.restarts for r in records_in(tmp_path / "results").values() if r.restarts]
    assert restarts == [(Restart("train", 0, 0, 0.05),)] * 2


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_sweep_decodes_once_and_caches_once(bench, counted, tmp_path: Path, parallel: int) -> None:
    words = ("--methods", "kmeans,simgcd,rpc", "--seeds", "0,1", "--cache-views", "4+2")
    outcome = bench(*words, "--parallel", parallel)
    assert outcome.code == 0, outcome.err
    assert counted == ["data", "backbone", "decode", "cache"]
    found = records_in(tmp_path / "results").values()
    modes = {one.identity.method["name"]: one.made.mode for one in found}
    assert modes == {"kmeans": "exact", "simgcd": "cached 4+0", "rpc": "cached 4+2"}
    assert (len(found), {one.made.parallel for one in found}) == (6, {parallel})
    assert ("3 runs at once: " in outcome.err) == (parallel == 3)
    # images and tokens are told of once; k-means has no use for the cache, and says so each time
    assert sum(line.startswith("64 images, ") for line in outcome.err.splitlines()) == 1
    assert outcome.err.count("Token cache: ") == 1
    assert outcome.err.count("kmeans does not train on tokens") == 2


def test_each_backbone_counts_with_a_sample_s_weights(tiny, counted, squares_folder, monkeypatch, tmp_path):
    """In a sweep over backbones a run has the number that it has alone, and images are decoded once for all."""
    table = load_table(squares_folder / "squares.csv")
    weight, seen, real = np.where(table.labelled, 1.0, 7.0), [], estimate_k.estimate_count
    some = tmp_path / "some.parquet"
    columns = {"path": list(table.path), "label": list(table.label), "weight": weight}
    write_sample_file(some, columns, {})

    def estimate(*given, weight=None, **named):
        seen.append(weight)
        return dataclasses.replace(real(*given, weight=weight, **named), best=3 + len(seen), by="class sizes")

    monkeypatch.setattr(estimate_k, "estimate_count", estimate)
    shelf = ResourceCache()
    first, second = (shelf.get(tiny(k="auto", dataset=some, backbone__train_blocks=n)) for n in (1, 2))
    assert (first.data.k, second.data.k) == (4, 5)
    assert second.images is first.images
    assert second.data.table is first.data.table
    assert counted.count("decode") == 1
    assert np.array_equal(seen[0], weight)


def test_runs_that_cannot_share_the_device_run_by_themselves() -> None:
    """Several processes, a method that takes images, and other data each form a batch of their own."""
    made = [resolve(method, "cub", overrides={"seed": s}) for method in ("simgcd", "rpc") for s in (0, 1, 2)]
    made += [resolve("simgcd", "scars", overrides={"devices": 2})]
    made += [resolve("tests.training.stubs:OwnEncoder", "cub")]
    made += [resolve("simgcd", "cub", overrides={"train.matmul": "highest"})]
    planned = [ScheduledRun(one, ("", n), str(n), Records("none"), None) for n, one in enumerate(made)]
    said: list[str] = []
    found = [[run.name for run in batch] for batch in module.run_batches(planned, 4, said.append)]
    assert found == [["7"], ["0", "1", "2", "3"], ["4", "5"], ["6"], ["8"]]
    assert [line[:17] for line in said] == ["7 runs by itself:", "6 runs by itself:"]
    assert list(module.run_batches(planned, 1, said.append)) == [[run] for run in planned]
    with pytest.raises(InputError, match="--parallel must be at least 1"):
        module.run_scheduled(planned, said.append, ResourceCache(), parallel=0)


def test_methods_or_a_study_from_python(squares_folder, tiny_settings, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = [str(squares_folder / "squares.csv")]
    asked: dict[str, Any] = {"datasets": data, "seeds": [0, 1], "settings": tiny_settings, "progress": False}
    asked |= {"cache_views": "off"}  # as a study has it
    first = sweep(methods=["kmeans", "simgcd"], **asked)
    assert [row.facts["method"] for row in first.rows] == ["kmeans", "simgcd"]
    assert {record.key for record in first.records} == set(records_in(Path("results")))
    assert not list(Path("results").glob("*.md"))  # who calls it gets the table, and writes it where he likes
    frame = first.to_frame()
    assert list(frame.columns) == first.to_csv().splitlines()[0].split(",")
    assert set(frame["config_hash"]) == {hash for hash, _ in records_in(Path("results"))}
    assert (list(frame["n"]), list(frame["seeds"]), list(frame["epochs"])) == ([2, 2], ["0 1", "0 1"], [0, 1])
    assert frame["all_mean"].between(0, 100).all()
    assert len(lines(first.to_markdown())) == 2
    monkeypatch.setattr("holotype.runs.sweep.run_experiment", lambda *_: pytest.fail("it is done"))
    assert sweep(methods=["kmeans", "simgcd"], **asked) == first
    changed = asked | {"settings": tiny_settings | {"kmeans:train.epochs": 9}}  # k-means does not train
    assert sweep(methods=["kmeans", "simgcd"], **changed) == first
    rows = {"floor": {"method": "kmeans"}, "plain": {"method": "simgcd", "asks": "as it is"}}
    study = {"question": "Q?", "datasets": data, "seeds": [0, 1], "settings": tiny_settings, "rows": rows}
    found = sweep(study, progress=False)
    assert found.records == first.records
    assert [row.facts["variant"] for row in found.rows] == ["floor", "plain"]
    Path("named.yaml").write_text(yaml.safe_dump(study))  # records lie beside the file
    part = sweep(Path("named.yaml"), rows=["plain"], seeds=[1], progress=False)
    assert [(row.facts["variant"], row.seeds) for row in part.rows] == [("plain", (1,))]
    # a frame holds what records say: a hash of digits, a row called NA
    row = make_row([made_record(made_identity(resolve("simgcd", "cub")), 50, 50)], "NA")
    row = dataclasses.replace(row, facts=row.facts | {"config_hash": "1234567890"}, commits=("12",))
    frame = Sweep([row], []).to_frame()
    assert frame[["config_hash", "commits", "variant"]].to_numpy().tolist() == [["1234567890", "12", "NA"]]
    assert list(frame["published_all"].notna()) == [True]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        *((asked, "needs a study, or methods and datasets") for asked in ({}, {"methods": ["rpc"]})),
        ({"study": {}, "methods": ["rpc"]}, "give one of the two"),
        ({"study": "none.yaml"}, "none.yaml cannot be read"),
        ({"methods": ["rpc"], "datasets": ["cup"]}, "'cup'"),
        ({"methods": ["rpc"], "datasets": ["cub"], "settings": {"train.epoch": 3}}, "train.epoch"),
        ({"methods": ["rpc"], "datasets": ["cub"], "settings": {"simgcd:train.lr": 3}}, "'simgcd'"),
        ({"methods": ["rpc"], "datasets": ["cub"], "seeds": []}, "no seed"),
        ({"methods": "simgcd", "datasets": ["cub"]}, "takes a list of methods"),
        ({"methods": ["simgcd"], "datasets": ["cub"], "seeds": 3}, "takes a list of seeds"),
        ({"methods": [("simgcd",)], "datasets": ["cub"]}, "no method with its preset"),
        ({"methods": [("simgcd", None)], "datasets": ["cub"]}, "no method with its preset"),
        ({"methods": ["simgcd"], "datasets": ["cub"], "settings": [1]}, "settings is [1]"),
        ({"methods": ["simgcd"], "datasets": ["cub"], "settings": {1: 2}}, "give them by name"),
        ({"methods": ["simgcd"], "datasets": ["cub"], "settings": {"train.lr": []}}, "empty list"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence(asked: dict[str, Any], told: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        sweep(**asked)
    assert told in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_runs_made_together_are_the_runs_made_alone(tiny) -> None:
    """SimGCD draws no strong views; that RPC beside it does makes no other run of it."""
    plans = [("kmeans", 0), ("simgcd", 0), ("simgcd", 1), ("rpc", 0)]
    runs = [tiny(method, f"{method}{seed}", seed=seed, cache_views="4+2") for method, seed in plans]
    together = run_together(runs, ResourceCache())
    assert {record.made.parallel for record in together} == {4}
    for experiment, record in zip(runs, together, strict=True):
        alone = dataclasses.replace(experiment, out=f"{experiment.out}-alone")
        assert timeless(run_experiment(alone)) == timeless(record)
        if record.made.epochs:
            assert_same_run(experiment.folder, alone.folder)
    assert [record.made.mode for record in together] == ["exact", "cached 4+0", "cached 4+0", "cached 4+2"]


def test_finished_failed_and_linked_runs_keep_nobody_from_running(tiny, tmp_path, monkeypatch, plan) -> None:
    done = run_experiment(tiny(out="done"))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "rest").symlink_to(tmp_path, target_is_directory=True)
    runs = [tiny(out="done"), tiny(out="too-large", train__batch_size=65), tiny(out="other", seed=1)]
    runs += [tiny(out="diverges", train__lr=1e30), tiny(out="linked")]
    first, large, other, diverged, linked = run_together(runs)
    assert first == done
    assert "65" in str(large)
    assert "the loss became" in str(diverged)
    assert "linked/rest is a link to another folder" in str(linked)  # nothing is written through it
    assert (other.identity.seed, other.made.parallel, other.made.mode) == (1, 2, "exact")
    with pytest.raises(RunsFailed, match=r"1 of 2 runs failed, squares\S+; the first because") as caught:
        run(plan(tiny("kmeans"), tiny(train__batch_size=65)))
    assert caught.value.found == records_in(tmp_path / "results")  # the others are at hand
    monkeypatch.setattr(Loop, "training", lambda *_: pytest.fail("a finished run was trained again"))
    assert run_together([runs[0], runs[2]]) == [first, other]


def test_a_stop_lets_every_run_save_and_the_sweep_goes_on(tiny, stopping, bench, tmp_path) -> None:
    def make(part: str) -> list[Experiment]:
        return [tiny("kmeans", f"{part}-k"), *(tiny(out=f"{part}-{seed}", seed=seed) for seed in (0, 1))]

    words = ("--methods", "simgcd", "--seeds", "0,1", "--cache-views", "4+2", "--parallel", 2)
    with stopping():
        with pytest.raises(Stopped) as stopped:
            run_together(make("stopped"))
        command = bench(*words)
    assert str(stopped.value).count("epoch 1 of 1, step 1") == 2
    assert "stopped-0: " in str(stopped.value)
    finished = [(run.folder / "scores.json").exists() for run in make("stopped")]
    assert finished == [True, False, False]  # k-means had come to its end
    for part in ("stopped", "whole"):
        run_together(make(part))
    for mine, theirs in list(zip(make("stopped"), make("whole"), strict=True))[1:]:
        assert_same_run(mine.folder, theirs.folder)
    assert (command.code, command.err.count(": stage train")) == (130, 2)
    assert not list((tmp_path / "results").rglob("*.json"))
    assert (bench(*words).code, len(records_in(tmp_path / "results"))) == (0, 2)


def test_the_record_says_which_views_were_drawn(tiny, caplog) -> None:
    caplog.set_level(logging.INFO, "holotype")
    cached, exact = (run_experiment(tiny("rpc", views, cache_views=views)) for views in ("4+2", "off"))
    assert (cached.made.mode, exact.made.mode) == ("cached 4+2", "exact")
    assert (cached.identity.views, exact.identity.views, exact.made.cache_seconds) == ("4+2", "off", 0)
    assert VIEWS_SCHEMA.read(tiny(out="4+2").folder / "cache.json") == {"views": "4+2"}
    assert not (tiny(out="off").folder / "cache.json").exists()
    assert read_json(tiny(out="4+2").folder / "provenance.json")["images"].startswith("64 images, ")
    for content in ('{"views": "many"}', "{}", "[]", "3"):
        (tiny().folder / "cache.json").parent.mkdir(exist_ok=True)
        (tiny().folder / "cache.json").write_text(content)
        with pytest.raises(InputError, match=r"cache\.json cannot be read \(it "):
            run_experiment(tiny(cache_views="4+2"))
    for asked, said in (("4+2", 1), ("auto", 0)):  # one that has no use for it says so where it was asked to
        caplog.clear()
        assert run_experiment(tiny("kmeans", f"kmeans {asked}", cache_views=asked)).made.mode == "exact"
        assert caplog.text.count("runs without the token cache") == said


@pytest.mark.parametrize("first", ["roomy", "small"])
def test_a_resumed_run_draws_from_the_views_it_began_with(tiny, stopping, first) -> None:
    """20+10 views fit at first and not any more: the cache moves to a file. Or they shrank at first, and stay."""
    network = load_backbone(tiny().backbone)
    per_view = 64 * 2 * (1 + (network.image_size // 16) ** 2 + 1) * network.dim / 1e9
    budgets = {"roomy": {}, "small": {"memory__host_gb": 12 * per_view}}
    views = {"cache_views": "20+10", "store": "disk"}
    with stopping(), pytest.raises(Stopped):
        run_experiment(tiny("rpc", "stopped", **views, **budgets.pop(first)))
    ((_, later),) = budgets.items()
    resumed = run_experiment(tiny("rpc", "stopped", **views, **later))
    began = {"memory__host_gb": 12 * per_view} if first == "small" else {}
    whole = run_experiment(tiny("rpc", "whole", **views, **began))
    assert timeless(resumed) == timeless(whole)
    assert_same_run(tiny(out="stopped").folder, tiny(out="whole").folder)
    kept = CacheViews.parse(resumed.identity.views)
    assert (kept.weak == 20) == (first == "roomy")
    assert resumed.made.mode == f"cached {kept}"
    # asked for the same, got something else: another identity, never averaged with its brothers
    brother = run_experiment(tiny("rpc", "brother", seed=1, **views))
    assert (brother.identity.hash == resumed.identity.hash) == (first == "roomy")
    assert dataclasses.replace(brother.identity, views=str(kept)).hash == resumed.identity.hash
    # and the folder goes on being that of what was asked for
    assert run_experiment(tiny("rpc", "stopped", **views)) == resumed
