"""A sweep shares what its runs have in common, and trains several of them at once where it is asked to."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.runs.bench import Planned, batches
from holotype.runs.results import read_results
from tests.cli.test_bad_input import pressed

from .test_bench import bench as bench  # the fixture: the command on coloured squares
from .test_bench import experiments
from .test_prepared import counted as counted  # the fixture: how often things are made

ONCE = ["data", "backbone", "decode", "cache"]


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_sweep_decodes_once_and_caches_once(bench, counted, tmp_path: Path, parallel: int) -> None:
    words = (
        "--methods",
        "kmeans,simgcd,rpc",
        "--seeds",
        "0,1",
        "--cache-views",
        "4+2",
        "--parallel",
        parallel,
    )
    outcome = bench(*words)
    assert outcome.code == 0, outcome.err
    assert counted == ONCE
    found = read_results(tmp_path / "results").values()
    assert len(found) == 6
    modes = {made["method"]: made["mode"] for made in found}
    assert modes == {"kmeans": "exact", "simgcd": "cached 4+0", "rpc": "cached 4+2"}
    assert {made["parallel"] for made in found} == {parallel}
    assert ("3 runs at once: " in outcome.err) == (parallel == 3)
    # images and tokens are told of once; k-means has no use for the cache, and says so each time
    assert sum(line.startswith("64 images, ") for line in outcome.err.splitlines()) == 1
    assert outcome.err.count("Token cache: ") == 1
    assert outcome.err.count("kmeans does not train on tokens") == 2


def test_runs_made_at_once_score_what_they_score_alone(bench, tmp_path: Path) -> None:
    words = ("--methods", "simgcd,rpc", "--seeds", "0,1")
    assert bench(*words, "--results", tmp_path / "alone", "--out", tmp_path / "runs-alone").code == 0
    assert bench(*words, "--parallel", 4).code == 0
    together, alone = read_results(tmp_path / "results"), read_results(tmp_path / "alone")
    clocks = ("seconds", "wall_seconds", "decode_seconds", "cache_seconds", "parallel")
    for one, other in zip(together.items(), alone.items(), strict=True):
        assert one[0].name == other[0].name
        assert one[1]["mode"] == "exact"  # unless asked for otherwise
        assert {k: v for k, v in one[1].items() if k not in clocks} == {
            k: v for k, v in other[1].items() if k not in clocks
        }


def test_exact_and_cached_runs_are_never_averaged(bench, tmp_path: Path) -> None:
    bench("--methods", "simgcd", "--seeds", "0,1")
    outcome = bench("--methods", "simgcd", "--seeds", "0,1", "--cache-views", "4+2")
    rows = [line for line in outcome.out.splitlines() if line.startswith("| squares |")]
    assert len(rows) == 2
    assert "| cached 4+0 | 2 |" in rows[0] + rows[1]
    assert "| exact | 2 |" in rows[0] + rows[1]


def test_a_failed_run_among_several_at_once(bench, tmp_path: Path) -> None:
    words = ("--methods", "simgcd,kmeans", "--set", "simgcd:train.batch-size=65", "--parallel", 2)
    outcome = bench(*words)
    assert outcome.code == 2
    assert "1 of 2 runs failed" in outcome.err
    assert [made["method"] for made in read_results(tmp_path / "results").values()] == ["kmeans"]


def test_a_stopped_sweep_goes_on(bench, monkeypatch, tmp_path: Path) -> None:
    words = ("--methods", "simgcd,rpc", "--seeds", "0,1", "--cache-views", "4+2", "--parallel", 2)
    with monkeypatch.context() as patch:
        patch.setattr("holotype.train.progress.StopRequest.__enter__", pressed)
        stopped = bench(*words)
    assert stopped.code == 130
    assert "simgcd s0: stage train" in stopped.err
    assert "simgcd s1: stage train" in stopped.err
    assert not list((tmp_path / "results").glob("*.json"))
    assert bench(*words).code == 0
    assert len(read_results(tmp_path / "results")) == 4


def test_runs_that_cannot_share_the_device_run_by_themselves() -> None:
    """Several processes, a method that takes images, and other data each form a batch of their own."""
    made = experiments("--methods", "simgcd,rpc", "--datasets", "cub", "--seeds", "0,1,2", "--root", "data")
    made += experiments("--methods", "simgcd", "--datasets", "scars", "--root", "data", "--set", "devices=2")
    made += experiments("--methods", "tests.train.stubs:OwnEncoder", "--datasets", "cub", "--root", "data")
    made += experiments(
        "--methods", "simgcd", "--datasets", "cub", "--root", "data", "--set", "train.matmul=highest"
    )
    planned = [
        Planned(experiment, f"run {n}", Path(), {}, ("", n), None) for n, experiment in enumerate(made)
    ]
    said: list[str] = []
    found = [[run.name for run in batch] for batch in batches(planned, 4, said.append)]
    assert found == [
        ["run 7"],
        ["run 0", "run 1", "run 2", "run 3"],
        ["run 4", "run 5"],
        ["run 6"],
        ["run 8"],
    ]
    assert said == [
        "run 7 runs by itself: tests.train.stubs:OwnEncoder takes images instead of tokens",
        "run 6 runs by itself: it takes 2 processes",
    ]
    one_by_one = [[run.name for run in batch] for batch in batches(planned, 1, said.append)]
    assert one_by_one == [[run.name] for run in planned]
    assert len(said) == 2
