"""From experiments to records: what is done, what is made now, once each, one by one or several at once."""

from __future__ import annotations

import dataclasses
import gc
import json
import weakref
from pathlib import Path
from typing import Any

import pytest

from holotype.errors import InputError
from holotype.methods.rpc import RPC
from holotype.runs.experiment import Experiment
from holotype.runs.parallel import ScheduledRun, plan_runs, run_batch, run_scheduled
from holotype.runs.record import Record, Records
from holotype.runs.resolve import resolve
from holotype.runs.resources import ResourceCache
from holotype.training.loop import Loop
from holotype.utils.serialization import read_json

from .test_resources import counted as counted  # the fixture: how often things are made
from .test_sweep import bench as bench  # the fixture: the command on coloured squares
from .test_sweep import records_in
from .test_sweep import tiny_settings as tiny_settings

ONCE = ["data", "backbone", "decode", "cache"]


@pytest.fixture
def tiny(squares_folder, tiny_backbone_file):
    """A run of a second on 64 squares of 4 classes, 2 of them known."""

    def make(method: str = "kmeans", label: str | None = None, **settings: Any) -> Experiment:
        overrides: dict[str, Any] = {"k": 4, "device": "cpu", "progress": False, "label": label}
        overrides |= {"backbone.name": str(tiny_backbone_file), "train.epochs": 1, "train.batch_size": 16}
        overrides |= {"cache_views": "off", "seed": 0}
        overrides |= {key.replace("__", "."): value for key, value in settings.items()}
        return resolve(method, str(squares_folder / "squares.csv"), overrides=overrides)

    return make


@pytest.fixture
def plan(tmp_path):
    """The plan of experiments, with records in `results` and in another folder."""

    def make(*runs: Experiment, results: str = "results", reuse: str | None = None) -> list[ScheduledRun]:
        elsewhere = Records(tmp_path / reuse) if reuse else None
        return plan_runs(runs, Records(tmp_path / results), tmp_path / "runs", ResourceCache(), elsewhere)

    return make


def run(planned: list[ScheduledRun]) -> dict[Any, Record]:
    return run_scheduled(planned, lambda line: None, ResourceCache())


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def changed(record: Record, new: float) -> Record:
    """The same run with other scores that obey the law."""
    r, old = record.scores.share_old or 0.0, record.scores.old or 0.0
    scores = dataclasses.replace(record.scores, new=new, all=r * old + (1 - r) * new)
    return dataclasses.replace(record, scores=scores)


# -- what is done -----------------------------------------------------------------------------------------


def test_a_run_is_done_when_a_record_of_its_identity_is_there(tiny, plan, tmp_path: Path) -> None:
    first = plan(tiny(), tiny(seed=1))
    assert [one.done for one in first] == [None, None]
    assert [one.key[1] for one in first] == [0, 1]
    assert first[0].key[0] == first[1].key[0]
    found = run(first)
    assert found == {one.key: Records(tmp_path / "results").by_key[one.key] for one in first}
    again = plan(tiny(label="renamed"), tiny(seed=2))
    assert [one.done for one in again] == [found[first[0].key], None]
    assert again[0].name == f"squares-kmeans-renamed-s0-{first[0].key[0][:8]}"
    assert again[0].experiment.folder == tmp_path / "runs" / again[0].name


def test_a_record_of_elsewhere_counts_and_is_taken_over_once(tiny, plan, tmp_path: Path, monkeypatch) -> None:
    run(plan(tiny(), results="theirs"))
    monkeypatch.setattr("holotype.runs.parallel.run_experiment", lambda *_: pytest.fail("it is done"))
    (again,) = plan(tiny(), reuse="theirs")
    assert again.done is not None
    assert again.done.made.variant == "default"
    run([again])
    (path,) = (tmp_path / "results" / "runs").iterdir()
    assert path.read_bytes() == (tmp_path / "theirs" / "runs" / path.name).read_bytes()


@pytest.mark.parametrize("part", ["revision", "engine"])
def test_a_changed_algorithm_is_not_done_and_not_taken_over(
    tiny, plan, tmp_path: Path, monkeypatch, part: str
) -> None:
    """Records of an older revision stay what they are: nothing takes them for results of this one."""
    old = run(plan(tiny("rpc"), results="theirs"))
    run(plan(tiny("rpc"), reuse="theirs"))
    before = files(tmp_path / "results")
    if part == "revision":
        monkeypatch.setattr(RPC, "revision", RPC.revision + 1)
    else:
        monkeypatch.setattr("holotype.runs.identity.ENGINE", 99)
    (changed,) = plan(tiny("rpc"), reuse="theirs")
    assert changed.done is None
    assert changed.key not in old
    assert files(tmp_path / "results") == before
    made = run([changed])[changed.key]
    assert made.key == changed.key
    assert {**before, f"runs/{made.identity.name}.json": b""}.keys() <= files(tmp_path / "results").keys()
    assert {name: files(tmp_path / "results")[name] for name in before} == before


def test_a_conflicting_twin_is_refused_and_nothing_is_written(tiny, plan, tmp_path: Path) -> None:
    (mine,) = run(plan(tiny())).values()
    Records(tmp_path / "theirs").add(changed(mine, 0.125))
    before = files(tmp_path)
    with pytest.raises(InputError) as refused:
        plan(tiny("simgcd"), tiny(), reuse="theirs")
    sentence = str(refused.value)
    assert "contradicts another record of the same settings and seed" in sentence
    assert "revision was not raised" in sentence
    assert len(sentence.splitlines()) == 1
    assert files(tmp_path) == before
    assert plan(tiny("simgcd"), reuse="theirs")[0].done is None  # who does not ask for it is not troubled


@pytest.mark.parametrize("fault", ["renamed", "edited", "unlawful"])
@pytest.mark.parametrize("folder", ["results", "theirs"])
def test_a_record_that_was_tampered_with_stops_the_sweep(
    tiny, plan, tmp_path: Path, folder: str, fault: str
) -> None:
    (mine,) = run(plan(tiny(), results=folder)).values()
    path = Records(tmp_path / folder).path(mine.key)
    content = read_json(path)
    if fault == "edited":
        content["identity"]["method"]["settings"]["n_init"] = 77
    if fault == "unlawful":
        content["scores"]["all"] = 0.999
    path.write_text(json.dumps(content))
    if fault == "renamed":
        path.rename(path.with_name(f"{mine.identity.hash}-s7.json"))
    before = files(tmp_path)
    told = {
        "renamed": "holds the record of run",
        "edited": "hash of its own identity",
        "unlawful": "says All",
    }
    with pytest.raises(InputError, match=told[fault]):
        plan(tiny(), reuse="theirs")
    assert files(tmp_path) == before


# -- who writes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_planning_writes_nothing(
    tiny, plan, tmp_path: Path, cache_home: Path, monkeypatch, rank: int
) -> None:
    run(plan(tiny(), results="theirs"))
    before = files(tmp_path), files(cache_home)
    monkeypatch.setattr("holotype.runs.parallel.rank", lambda: rank)
    runs = [tiny(), tiny("rpc", cache_views="4+2"), tiny("simgcd", seed=3), tiny("debgcd")]
    planned = plan(*runs, reuse="theirs")
    assert [one.done is not None for one in planned] == [True, False, False, False]
    assert (files(tmp_path), files(cache_home)) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "theirs"]


def test_only_the_first_process_writes_records(tiny, plan, tmp_path: Path, monkeypatch) -> None:
    run(plan(tiny(), results="theirs"))
    for module in ("parallel", "run"):
        monkeypatch.setattr(f"holotype.runs.{module}.rank", lambda: 1)
    planned = plan(tiny(), tiny(seed=1), reuse="theirs")
    found = run(planned)
    assert set(found) == {one.key for one in planned}  # which every process needs
    assert not (tmp_path / "results").exists()
    assert not (planned[1].experiment.folder / "scores.json").exists()


# -- what is one run --------------------------------------------------------------------------------------

SAME: dict[str, Any] = {
    "train.eval_every": 7,
    "train.save_seconds": 1.0,
    "train.eager": True,
    "root": "elsewhere",
    "progress": True,
    "store": "disk",
    "memory.host_gb": 1.0,
}
OTHER: dict[str, Any] = {
    "k": 5,
    "cache_views": "4+2",
    "backbone.train_blocks": 2,
    "backbone.image_size": 64,
    "train.precision": "fp64",
    "train.lr": 0.7,
    "method.alpha": 0.9,
}


def test_settings_that_do_not_decide_give_the_same_key_and_others_another(tiny, plan) -> None:
    def key(**settings: Any) -> tuple[str, int]:
        return plan(tiny("rpc", **settings))[0].key

    before = key()
    for name, value in SAME.items():
        assert key(**{name.replace(".", "__"): value}) == before, name
    found = {key(**{name.replace(".", "__"): value}) for name, value in OTHER.items()}
    assert len(found | {before}) == 1 + len(OTHER)
    assert key(seed=9) == (before[0], 9)


def test_k_means_is_one_run_whatever_training_is_set_to(tiny, plan) -> None:
    changes: list[dict[str, Any]] = [
        *({}, {"train__epochs": 7}, {"train__batch_size": 32}, {"train__lr": 0.7}, {"cache_views": "4+2"})
    ]
    assert len({plan(tiny(**one))[0].key for one in changes}) == 1
    assert len({plan(tiny("simgcd", **one))[0].key for one in changes}) == len(changes)


def test_views_that_a_method_does_not_draw_make_no_other_run(tiny, plan) -> None:
    def keys(method: str) -> set[Any]:
        return {plan(tiny(method, cache_views=views))[0].key for views in ("16+8", "16+0")}

    assert len(keys("simgcd")) == 1
    assert len(keys("rpc")) == 2


def test_two_names_for_one_run_are_refused(tiny, plan) -> None:
    with pytest.raises(InputError, match=r"one and two are the same experiment on .* with seed 0"):
        plan(tiny(label="one"), tiny(label="two", train__epochs=9))


def test_of_several_plans_a_run_that_two_name_is_made_once(tiny, plan, tmp_path: Path) -> None:
    planned = [*plan(tiny(label="a"), tiny("simgcd")), *plan(tiny(label="b"), results="second")]
    found = run(planned)
    assert len(found) == 2
    assert sorted(records_in(tmp_path / "results")) == sorted(found)
    assert list(records_in(tmp_path / "second")) == [planned[0].key]
    assert not (tmp_path / "runs" / planned[2].name).exists()


def test_the_places_of_runs_are_those_they_were_asked_for_in(tiny, plan) -> None:
    """Runs that share data stand together; tables keep the order of the study."""
    runs = [tiny("simgcd"), tiny("simgcd", k=5), tiny("simgcd", seed=1)]
    planned = plan(*runs)
    assert [one.experiment for one in planned] == [runs[0], runs[2], runs[1]]
    assert [one.asked for one in planned] == [0, 2, 1]


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_run_that_failed_keeps_nothing_in_memory(tiny, plan, monkeypatch, at_once: int) -> None:
    """The others need the room: of an error, a sweep remembers the sentence alone."""
    loops: weakref.WeakSet[Loop] = weakref.WeakSet()
    make = Loop.__init__

    def noted(self: Loop, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        loops.add(self)

    monkeypatch.setattr(Loop, "__init__", noted)
    planned = plan(*(tiny("simgcd", seed=seed, train__lr=1e30) for seed in range(at_once)))
    failed = run_batch(planned, ResourceCache())
    assert ["the loss became" in str(error) for error in failed] == [True] * at_once
    gc.collect()
    assert not list(loops)
