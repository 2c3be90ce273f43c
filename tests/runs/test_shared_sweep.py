"""A sweep shares what its runs have in common, and trains several of them at once where it is asked to."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from holotype.clustering import estimate_k
from holotype.data.labels import write_sample_file
from holotype.data.load import load_table
from holotype.runs.parallel import ScheduledRun, run_batches
from holotype.runs.record import Records
from holotype.runs.resolve import resolve
from holotype.runs.resources import ResourceCache
from tests.cli.test_bad_input import pressed

from .test_resources import counted as counted  # the fixture: how often things are made
from .test_resources import get
from .test_resources import tiny as tiny
from .test_sweep_bench import bench as bench  # the fixture: the command on coloured squares
from .test_sweep_bench import records_in
from .test_sweep_bench import tiny_settings as tiny_settings

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
    write_sample_file(
        tmp_path / "some.parquet", list(table.path), list(table.label), weight, np.zeros(len(table)), {}
    )
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
