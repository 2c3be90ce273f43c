"""Methods x data sets x seeds: every run once, only like averaged with like, published numbers apart."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from holotype.cli.bench import make_experiments, make_parser
from holotype.errors import InputError
from holotype.runs.results import (
    APART,
    RECORDED,
    mean_and_std,
    read_results,
    summarise,
    to_csv,
    to_markdown,
    write_result,
    write_table,
)


def record(seed: int = 0, **changes: object) -> dict:
    """A result of SimGCD on CUB; `all` follows from `old` and `new` unless it is given."""
    made = {"method": "simgcd", "dataset": "cub", "variant": "default", "seed": seed, "mode": "exact"}
    made |= {"epochs": 200, "backbone": "embedded", "train_blocks": 1, "config_hash": "0123456789abcdef"}
    made |= {"old": 0.6, "new": 0.5, "share_old": 1499 / 4496, "n": 4496, "seconds": 12.5}
    made |= {"commit": "abc", "hardware": "2 CPU cores", "caveat": "Not DINO."} | changes
    if "all" not in made:
        made["all"] = made["share_old"] * made["old"] + (1 - made["share_old"]) * made["new"]
    return made


# -- the table ----------------------------------------------------------------------------------------


def test_mean_and_deviation_over_seeds() -> None:
    new = [0.50, 0.53, 0.55]
    (row,) = summarise([record(seed, new=value) for seed, value in enumerate(new)])
    assert row.seeds == (0, 1, 2)
    expected = f"{100 * np.mean(new):.1f} ± {100 * np.std(new, ddof=1):.1f}"
    assert mean_and_std(row.scores["new"]) == expected
    (cells,) = csv.DictReader(to_csv([row]).splitlines())
    assert float(cells["new_std"]) == pytest.approx(100 * np.std(new, ddof=1), abs=1e-9)
    assert float(cells["all_mean"]) == pytest.approx(
        100 * np.mean([1499 / 4496 * 0.6 + 2997 / 4496 * value for value in new]), abs=1e-9
    )
    assert (cells["n"], cells["seeds"]) == ("3", "0 1 2")
    assert f"| 3 | {mean_and_std(row.scores['all'])} | 60.0 ± 0.0 | {expected} |" in to_markdown([row], {})


def test_one_seed_has_no_deviation() -> None:
    (row,) = summarise([record()])
    text = to_markdown([row], {})
    assert "| 1 | 53.3 | 60.0 | 50.0 |" in text
    (cells,) = csv.DictReader(to_csv([row]).splitlines())
    assert cells["all_std"] == ""


@pytest.mark.parametrize("key", APART)
def test_what_differs_is_never_averaged(key: str) -> None:
    other = {"epochs": 50, "train_blocks": 2}.get(key, "other")
    rows = summarise([record(0), record(1), record(2, **{key: other})])
    assert sorted(len(row.seeds) for row in rows) == [1, 2]


def test_a_run_whose_cache_shrank_is_no_brother_of_the_others() -> None:
    """The same was asked for, so that the configuration is the same; what was drawn from is not."""
    rows = summarise([record(s, mode="cached 16+8") for s in (0, 1)] + [record(2, mode="cached 9+5")])
    assert sorted((row.facts["mode"], len(row.seeds)) for row in rows) == [
        ("cached 16+8", 2),
        ("cached 9+5", 1),
    ]


def test_published_numbers_stand_apart_and_unlawful_ones_are_marked() -> None:
    rows = summarise([record(method="rpc"), record(method="simgcd"), record(method="my.module:Own")])
    text = to_markdown(rows, {"embedded": "Not DINO.", "public": ""})
    assert [row.facts["method"] for row in rows] == ["simgcd", "rpc", "my.module:Own"]
    assert "| 60.3 | 65.6 | 57.7 |" in text
    assert r"| 67.1\* | 73.2\* | 64.8\* |" in text
    assert text.count("cannot be right as printed") == 1
    assert "Backbone embedded: Not DINO." in text
    assert "Backbone public" not in text
    assert "unlabelled training images, one global assignment, last epoch" in text
    lawful = to_markdown(summarise([record()]), {})
    assert "\\*" not in lawful
    assert "Published:" in lawful
    assert "Published:" not in to_markdown(summarise([record(dataset="own")]), {})


def test_scores_that_do_not_exist() -> None:
    only_old = record(share_old=1.0, new=None, all=0.6, dataset="own")
    assert "| 60.0 | 60.0 | none |" in to_markdown(summarise([only_old]), {})
    unknown = record(share_old=None, all=None, old=None, new=None)
    assert "| none | none | none |" in to_markdown(summarise([unknown]), {})


def test_our_own_results_obey_the_law(tmp_path: Path) -> None:
    write_result(tmp_path, record())
    assert len(read_results(tmp_path)) == 1
    write_result(tmp_path, record(1, all=0.54))
    with pytest.raises(InputError, match=r"s1-01234567\.json says All = 0\.54"):
        read_results(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "3", '{"method": "rpc"}', json.dumps(record())[:-9]])
def test_a_file_that_is_no_result(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(InputError, match=r"x\.json"):
        read_results(tmp_path)


def test_the_same_run_twice(tmp_path: Path) -> None:
    path = write_result(tmp_path, record())
    (tmp_path / "copy.json").write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=r"copy\.json"):
        write_table(tmp_path)


def test_results_of_earlier_versions_give_the_table_they_gave(tmp_path: Path) -> None:
    """The results that lie in the repository, made before there was a token cache among them."""
    kept = Path(__file__).resolve().parents[2] / "results"
    for file in kept.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    write_table(tmp_path)
    for name in ("table.md", "table.csv"):
        assert (tmp_path / name).read_text() == (kept / name).read_text(), name


# -- what to run --------------------------------------------------------------------------------------


def experiments(*words: str) -> list:
    return make_experiments(make_parser().parse_args(words))


def test_methods_times_data_sets_times_seeds() -> None:
    words = (
        "--methods rpc,rpc@reading,simgcd --datasets cub,scars --seeds 0,4 --root data --set train.epochs=50"
    )
    made = experiments(
        *words.split(), "--set", "rpc:method.alpha=0.1", "--set", "rpc@reading:method.alpha=0.2"
    )
    assert len(made) == 12
    assert {(e.method_name, e.preset, e.dataset, e.seed) for e in made} == {
        (method, preset, dataset, seed)
        for method, preset in (("rpc", "default"), ("rpc", "reading"), ("simgcd", "default"))
        for dataset in ("cub", "scars")
        for seed in (0, 4)
    }
    assert all(e.train.epochs == 50 and e.root == "data" for e in made)
    alpha = {e.preset: e.method.alpha for e in made if e.method_name == "rpc"}
    assert alpha == {"default": 0.1, "reading": 0.2}
    assert {e.method.memax_weight for e in made if e.dataset == "cub"} == {2.0}


# -- runs ---------------------------------------------------------------------------------------------


@pytest.fixture
def bench(holotype, squares_folder, tiny_backbone_file, tmp_path):
    """`holotype bench` on the coloured squares, tiny."""

    def call(*words: object):
        tiny = [
            f"backbone.name={tiny_backbone_file}",
            "k=4",
            "train.batch_size=16",
            "train.epochs=1",
            "device=cpu",
        ]
        flags = [word for setting in tiny for word in ("--set", setting)]
        places = (
            "--datasets",
            squares_folder / "squares.csv",
            "--results",
            tmp_path / "results",
            "--out",
            tmp_path / "runs",
        )
        return holotype("bench", *places, "--no-progress", *flags, *words)

    return call


def test_bench_runs_each_once_and_writes_the_table(bench, holotype, tmp_path: Path) -> None:
    first = bench("--methods", "kmeans,simgcd", "--seeds", "0,1")
    assert first.code == 0, first.err
    results = tmp_path / "results"
    found = read_results(results)
    assert len(found) == 4
    for path, made in found.items():
        assert set(RECORDED) <= set(made)
        assert path.stem == f"squares-{made['method']}-default-s{made['seed']}-{made['config_hash'][:8]}"
        assert (tmp_path / "runs" / path.stem / "scores.json").exists()
    hashes = {made["config_hash"] for made in found.values()}
    assert len(hashes) == 2  # the seed is no part of it
    table = (results / "table.md").read_text()
    assert table == first.out
    assert sum(line.startswith("| squares |") for line in table.splitlines()) == 2
    assert len((results / "table.csv").read_text().splitlines()) == 3

    stamps = {path: path.stat().st_mtime_ns for path in found}
    again = bench("--methods", "simgcd", "--seeds", "0,1,2")
    assert again.code == 0, again.err
    assert again.err.count("done before") == 2
    assert len(read_results(results)) == 5
    assert {path: path.stat().st_mtime_ns for path in found} == stamps
    (results / "table.md").unlink()
    rebuilt = holotype("bench", "--table-only", "--results", results)
    assert rebuilt.code == 0
    assert rebuilt.out == (results / "table.md").read_text()
    assert "| 3 |" in rebuilt.out


def test_a_run_that_fails_does_not_keep_the_others_from_running(bench, tmp_path: Path) -> None:
    outcome = bench("--methods", "simgcd,kmeans", "--set", "simgcd:train.batch_size=65")
    assert outcome.code == 2
    assert "1 of 2 runs failed" in outcome.err
    assert [made["method"] for made in read_results(tmp_path / "results").values()] == ["kmeans"]


def test_changed_settings_are_another_row(bench) -> None:
    bench("--methods", "kmeans")
    outcome = bench("--methods", "kmeans", "--set", "method.n_init=2")
    assert sum(line.startswith("| squares |") for line in outcome.out.splitlines()) == 2
