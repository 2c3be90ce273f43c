"""Tables of records: mean and deviation over seeds, only like averaged with like, published numbers apart."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holotype.models.weights_io import CAVEAT, TEST_BACKBONES
from holotype.runs.record import Record, Records, Scores
from holotype.runs.resolve import resolve
from holotype.runs.tables import (
    SEPARATE_COLUMNS,
    make_row,
    mean_and_std,
    summarise,
    table_csv,
    table_markdown,
)
from tests.made_study import made_identity, made_record

TOP = Path(__file__).resolve().parents[2]
SHARE = 1499 / 4496


def record(seed: int = 0, new: float = 0.5, method: str = "simgcd", **changes: Any) -> Record:
    """A run on CUB with Old = 0.6. changes: dotted parts of its identity, with two dashes for a dot."""
    experiment = resolve(method, "cub", overrides={"seed": seed})
    identity = made_identity(experiment, {key.replace("__", "."): value for key, value in changes.items()})
    scores = Scores(SHARE * 0.6 + (1 - SHARE) * new, 0.6, new, SHARE, 4496)
    return dataclasses.replace(made_record(identity, 0, 0, seconds=12.5), scores=scores)


def scored(**scores: Any) -> Record:
    told = {"all": None, "old": None, "new": None, "share_old": None, "n": 0} | scores
    return dataclasses.replace(record(data__name="own"), scores=Scores(**told))


def test_mean_and_deviation_over_seeds() -> None:
    new = [0.50, 0.53, 0.55]
    (row,) = summarise([record(seed, new=value) for seed, value in enumerate(new)])
    assert row.seeds == (0, 1, 2)
    expected = f"{100 * np.mean(new):.1f} ± {100 * np.std(new, ddof=1):.1f}"
    assert mean_and_std(row.scores["new"]) == expected
    (cells,) = csv.DictReader(table_csv([row]).splitlines())
    assert float(cells["new_std"]) == pytest.approx(100 * np.std(new, ddof=1), abs=1e-9)
    assert float(cells["all_mean"]) == pytest.approx(
        100 * np.mean([SHARE * 0.6 + (1 - SHARE) * value for value in new]), abs=1e-9
    )
    assert (cells["n"], cells["seeds"], cells["seconds"]) == ("3", "0 1 2", "12.5")
    assert f"| 3 | {mean_and_std(row.scores['all'])} | 60.0 ± 0.0 | {expected} |" in table_markdown([row])


def test_one_seed_has_no_deviation() -> None:
    (row,) = summarise([record()])
    assert "| 1 | 53.3 | 60.0 | 50.0 |" in table_markdown([row])
    (cells,) = csv.DictReader(table_csv([row]).splitlines())
    assert cells["all_std"] == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data__name", "other"),
        ("data__table", "another"),
        ("data__k", 7),
        ("method__name", "other"),
        ("method__revision", 9),
        ("method__settings__lam", 0.9),
        ("train__epochs", 50),
        ("train__precision", "bf16"),
        ("backbone__name", "other"),
        ("backbone__digest", "another"),
        ("backbone__train_blocks", 2),
        ("backbone__image_size", 32),
        ("engine", 9),
        ("views", "4+2"),
    ],
)
def test_what_differs_is_never_averaged(key: str, value: Any) -> None:
    rows = summarise([record(0), record(1), record(2, **{key: value})])
    assert sorted(len(row.seeds) for row in rows) == [1, 2]


def test_a_run_whose_cache_shrank_is_no_brother_of_the_others() -> None:
    rows = summarise([record(s, views="16+8") for s in (0, 1)] + [record(2, views="9+5")])
    assert sorted((row.facts["mode"], len(row.seeds)) for row in rows) == [
        ("cached 16+8", 2),
        ("cached 9+5", 1),
    ]


def test_a_row_is_called_as_it_is_asked_for_and_says_all_that_keeps_rows_apart() -> None:
    row = make_row([record(1), record(0)], "renamed")
    assert (row.facts["variant"], row.seeds) == ("renamed", (0, 1))
    assert set(row.facts) == set(SEPARATE_COLUMNS)
    assert row.facts["config_hash"] == record().identity.hash
    assert f"| {record().identity.hash[:8]} |" in table_markdown([row])


def test_published_numbers_stand_apart_and_unlawful_ones_are_marked() -> None:
    records = [record(method="rpc"), record(), record(method__name="my.module:Own")]
    clay = {"backbone__digest": next(iter(TEST_BACKBONES.values())).digest}
    rows = summarise([*records[1:], record(method="rpc", **clay)])
    text = table_markdown(rows)
    assert [row.facts["method"] for row in rows] == ["simgcd", "rpc", "my.module:Own"]
    assert "| 60.3 | 65.6 | 57.7 |" in text
    assert r"| 67.1\* | 73.2\* | 64.8\* |" in text
    assert text.count("cannot be right as printed") == 1
    assert f"Backbone embedded: {CAVEAT}" in text
    assert "Backbone" not in table_markdown(summarise(records)).partition("\n\n")[2]
    assert "unlabelled training images, one global assignment, last epoch" in text
    lawful = table_markdown(summarise([record()]))
    assert "\\*" not in lawful
    assert "Published:" in lawful
    assert "Published:" not in table_markdown(summarise([record(data__name="own")]))


def test_scores_that_do_not_exist() -> None:
    only_old = scored(all=0.6, old=0.6, share_old=1.0, n=9)
    assert "| 60.0 | 60.0 | none |" in table_markdown(summarise([only_old]))
    assert "| none | none | none |" in table_markdown(summarise([scored()]))


def test_the_recorded_results_give_a_row_for_each_hash() -> None:
    records = Records(TOP / "experiments" / "results").by_key
    rows = summarise(records.values())
    assert {row.facts["config_hash"] for row in rows} == {hash for hash, _ in records}
    assert sum(len(row.seeds) for row in rows) == len(records)
