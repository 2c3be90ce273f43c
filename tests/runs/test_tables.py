"""Tables of records: mean and deviation over seeds, only like averaged with like, published numbers apart."""

import csv
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holotype.methods import METHODS
from holotype.models.weights_io import CAVEAT, TEST_BACKBONES
from holotype.runs import tables
from holotype.runs.experiment import resolve
from holotype.runs.record import Record, Records, Scores
from holotype.runs.sweep import all_records
from holotype.runs.tables import find_published, summarise, table_markdown
from tests.made_study import made_identity, made_record

TOP = Path(__file__).resolve().parents[2]
SHARES = {"cub": 1499 / 4496, "scars": 2001 / 6144, "aircraft": 1 / 3, "cifar10": 1 / 3, "cifar100": 2 / 3}
SHARES |= {"imagenet100": 0.335}
SHARE = SHARES["cub"]


def record(seed: int = 0, new: float = 0.5, method: str = "simgcd", **changes: Any) -> Record:
    """A run on CUB with Old = 0.6. changes: dotted parts of its identity, with two dashes for a dot."""
    experiment = resolve(method, "cub", overrides={"seed": seed})
    identity = made_identity(experiment, {key.replace("__", "."): value for key, value in changes.items()})
    scores = Scores(SHARE * 0.6 + (1 - SHARE) * new, 0.6, new, SHARE, 4496)
    return dataclasses.replace(made_record(identity, 0, 0, seconds=12.5), scores=scores)


def test_mean_and_deviation_over_seeds() -> None:
    new = [0.50, 0.53, 0.55]
    (row,) = summarise([record(seed, new=value) for seed, value in enumerate(new)])
    expected = f"{100 * np.mean(new):.1f} ± {100 * np.std(new, ddof=1):.1f}"
    assert (row.seeds, tables.mean_and_std(row.scores["new"])) == ((0, 1, 2), expected)
    (cells,) = csv.DictReader(tables.table_csv([row]).splitlines())
    assert float(cells["new_std"]) == pytest.approx(100 * np.std(new, ddof=1), abs=1e-9)
    every = [SHARE * 0.6 + (1 - SHARE) * value for value in new]
    assert float(cells["all_mean"]) == pytest.approx(100 * np.mean(every), abs=1e-9)
    assert (cells["n"], cells["seeds"], cells["seconds"]) == ("3", "0 1 2", "12.5")
    assert f" | 60.0 ± 0.0 | {expected} |" in table_markdown([row])
    (one,) = summarise([record()])  # one seed has no deviation
    assert "| 1 | 53.3 | 60.0 | 50.0 |" in table_markdown([one])
    assert next(csv.DictReader(tables.table_csv([one]).splitlines()))["all_std"] == ""
    assert tables.table_csv([]) == ""
    only_old = dataclasses.replace(record(data__name="own"), scores=Scores(0.6, 0.6, None, 1.0, 9))
    assert "| 60.0 | 60.0 | none |" in table_markdown(summarise([only_old]))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("data__name", "other"), ("data__table", "another"), ("data__k", 7), ("method__name", "other")),
        *(("method__revision", 9), ("method__settings__lam", 0.9), ("train__epochs", 50), ("engine", 9)),
        *(("train__precision", "bf16"), ("backbone__name", "other"), ("backbone__digest", "another")),
        *(("backbone__train_blocks", 2), ("backbone__image_size", 32), ("views", "4+2")),
    ],
)
def test_what_differs_is_never_averaged(key: str, value: Any) -> None:
    rows = summarise([record(0), record(1), record(2, **{key: value})])
    assert sorted(len(row.seeds) for row in rows) == [1, 2]


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
    lawful = table_markdown(summarise([record()]))
    assert ("\\*" in lawful, "Published:" in lawful) == (False, True)
    assert "Published:" not in table_markdown(summarise([record(data__name="own")]))


def test_every_method_and_data_set_is_there_and_sources_are_named() -> None:
    content = tables.read_published()
    assert set(content["methods"]) <= set(METHODS)  # others may come, of which that paper says nothing
    assert list(content["main"]["cells"]) == list(content["share_old"]) == list(SHARES)
    for dataset, rows in content["main"]["cells"].items():
        absent = set(content["methods"]) - set(rows)
        assert absent == ({"dccl"} if dataset == "aircraft" else set())  # printed as "-" there
        assert all(len(cells) == 3 and all(0 < cell < 100 for cell in cells) for cells in rows.values())
        assert find_published("simgcd", dataset).share_old == pytest.approx(SHARES[dataset], abs=1e-12)
    assert find_published("rpc", "herbarium19") is None
    assert all(content[table]["source"] for table in ("main", "ablation", "overhead"))


def unlawful(table: str) -> dict[tuple[str, str], float]:
    """What All must be, in the cells (row, data set) of a printed table that break the law."""
    cells = tables.read_published()[table]["cells"]
    every = {(row, data): find_published(row, data, table) for data in cells for row in cells[data]}
    return {key: round(cell.implied, 2) for key, cell in every.items() if not cell.lawful}


def test_which_printed_rows_break_the_law() -> None:
    found = unlawful("main")
    own = {"cub": 67.6, "scars": 65.4, "aircraft": 62.5, "imagenet100": 86.0}
    assert {key[1]: round(value, 1) for key, value in found.items() if key[0] == "rpc"} == own
    assert {key for key in found if key[0] != "rpc"} == {
        *(("sptnet", "cub"), ("kmeans", "cifar100"), ("dccl", "scars"), ("dccl", "cifar10")),
        *(("dccl", "cifar100"), ("dccl", "imagenet100")),
    }
    ablation = unlawful("ablation")
    assert (len(ablation), ablation["rpc", "cub"], ablation["without L_align", "cub"]) == (7, 67.60, 66.07)


def test_progress_is_0_at_k_means_and_1_at_simgcd() -> None:
    assert [tables.progress_to_simgcd(value, 40, 60) for value in (40, 60, 65, 35)] == [0, 1, 1.25, -0.25]
    assert [tables.progress_to_simgcd(50, 60, mark) for mark in (60, 40)] == [None, None]  # there is no way
    p = {"kmeans": 0, "rs": -0.04, "uno": 0.03, "gcd": 0.65, "promptcal": 1.10, "dccl": 1.12, "simgcd": 1}
    p |= {"sptnet": 1.21, "protogcd": 1.11, "debgcd": 1.23, "rpc": 1.26}
    found = {name: tables.published_progress(name, "cub") for name in METHODS}
    assert {name: round(one.p, 2) for name, one in found.items() if one} == p
    assert [name for name, one in found.items() if one and not one.lawful] == ["sptnet", "rpc"]
    # k-means on CIFAR-100 breaks the law, so that nothing there is sure; DCCL on Aircraft is not printed
    assert not any(one.lawful for name in METHODS if (one := tables.published_progress(name, "cifar100")))
    assert tables.published_progress("dccl", "aircraft") is None
    assert tables.published_progress("rpc", "herbarium19") is None


def test_rows_that_differ_in_a_setting_have_it_as_a_column_and_no_hash() -> None:
    """A setting that came later counts as its default where a record does not have it."""
    plain = record(train__lr=0.1)
    other = record(train__lr=0.05, train__block_rate=0.5)
    text = table_markdown(rows := summarise([plain, other, record(method="rpc")]))
    assert tables.setting_columns(rows) == ["train.lr", "train.block_rate"]
    header, _, *lines = text.splitlines()
    at = [cell.strip() for cell in header.split("|")].index("train.lr")
    cells = [[cell.strip() for cell in line.split("|")][at : at + 2] for line in lines[:2]]
    assert sorted(cells) == [["0.05", "0.5"], ["0.1", "1.0"]]
    assert all(row.facts["config_hash"][:8] not in text for row in rows)
    names = csv.DictReader(tables.table_csv(rows).splitlines()).fieldnames
    assert {"train.lr", "train.block_rate"} <= set(names)
    assert tables.setting_columns(summarise([plain, record(method="rpc")])) == []
    split = record(data__protocol={"label_share": 0.1}, data__table="another")
    assert set(tables.setting_columns(summarise([plain, split]))) == {"protocol.label_share", "data.table"}


def test_records_of_an_older_revision_are_counted_and_not_shown(tmp_path) -> None:
    records = Records(tmp_path)
    for one in (record(0), record(1), record(0, method__revision=0), record(0, engine=1)):
        records.add(one)
    sweep = all_records(records)
    assert [row.seeds for row in sweep.rows] == [(0, 1)]
    assert sweep.older == ("simgcd", "simgcd")
    assert "older revision: simgcd (2)" in sweep.to_markdown()
    assert "older revision" not in dataclasses.replace(sweep, older=()).to_markdown()
