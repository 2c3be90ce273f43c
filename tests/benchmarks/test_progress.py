"""p of a study's rows: between its own k-means and its own SimGCD, beside the published one."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_page import Choice
from study_table import study_table

from holotype.errors import InputError
from made_study import STUDY, add_run, write_study

RACE = """
question: How far is each on the way?
datasets: [cub]
seeds: [0, 1]
settings: {train.epochs: 100}
rows:
  kmeans: {method: kmeans}
  simgcd: {method: simgcd}
  gcd: {method: gcd}
  other: {method: rpc}
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """All: k-means 20 and 22, SimGCD 40 and 42, GCD 26, RPC 51."""
    write_study(tmp_path, RACE)
    for row, values in {"kmeans": (20, 22), "simgcd": (40, 42), "gcd": (26,), "other": (51,)}.items():
        for seed, value in enumerate(values):
            add_run(tmp_path, row, seed, value, value)
    return tmp_path


def build(top: Path, **choice) -> str:
    return study_table(Choice("parts", kind="progress", **choice), top)


def cells(text: str) -> dict[str, tuple[str, str]]:
    lines = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("|")]
    assert lines[0][-2:] == ["p", "p (published)"]
    return {line[0]: (line[-2], line[-1]) for line in lines[2:]}


def test_p_of_ours_and_as_published(top: Path) -> None:
    """(26 - 21) / (41 - 21) and (51 - 21) / 20, of means over the seeds there are."""
    text = build(top)
    assert cells(text) == {
        "kmeans": ("0.00", "0.00"),
        "simgcd": ("1.00", "1.00"),
        "gcd": ("0.25", "0.65"),
        "other": ("1.50", r"1.26\*"),
    }
    assert "[p](docs/studies/reading.md#p) is 0 at k-means and 1 at SimGCD." in text
    assert "| All (published) |" in text
    assert cells(build(top, rows=("gcd",))) == {"gcd": ("0.25", "0.65")}  # the ends need not be shown


def test_beside_a_part_of_a_data_set_stands_what_is_printed_of_the_whole(tmp_path: Path) -> None:
    """(73.0 - 52.0) / (80.1 - 52.0), with a star, since k-means is printed wrongly there."""
    write_study(tmp_path, RACE.replace("cub", "cifar100-200"))
    for row, value in {"kmeans": 20, "simgcd": 40, "gcd": 30}.items():
        add_run(tmp_path, row, 0, value, value, dataset="cifar100-200")
    text = build(tmp_path)
    assert cells(text)["gcd"] == ("0.50", r"0.75\*")
    assert "| 73.0 | 76.2 | 66.5 |" in text
    assert "those of cifar100, of which cifar100-200 is a part" in text
    assert "73.0" not in study_table(Choice("parts", kind="comparison"), tmp_path)


def test_other_kinds_have_no_p(top: Path) -> None:
    assert "| p |" not in study_table(Choice("parts", kind="comparison"), top)


def test_without_an_end_there_is_no_p_of_ours(tmp_path: Path) -> None:
    write_study(tmp_path, RACE)
    for row in ("kmeans", "gcd"):
        add_run(tmp_path, row, 0, 26, 26)
    text = build(tmp_path)
    assert cells(text)["gcd"] == ("", "0.65")
    assert "Without p of ours: no results of simgcd here." in text


def test_where_simgcd_is_no_better_there_is_no_p_of_ours(tmp_path: Path) -> None:
    write_study(tmp_path, RACE)
    for row, value in {"kmeans": 30, "simgcd": 30, "gcd": 40}.items():
        add_run(tmp_path, row, 0, value, value)
    assert cells(build(tmp_path))["gcd"] == ("", "0.65")


def test_backbones_are_not_mixed(top: Path) -> None:
    """A row of another backbone is on no way between these two."""
    write_study(top, RACE.replace("gcd: {method: gcd}", "gcd: {method: gcd, settings: {backbone.name: vit}}"))
    add_run(top, "gcd", 0, 26, 26)
    found = cells(build(top))
    assert found["gcd"] == ("", "0.65")
    assert found["other"][0] == "1.50"


def test_a_study_without_the_two_rows_is_refused(tmp_path: Path) -> None:
    write_study(tmp_path, STUDY)
    with pytest.raises(
        InputError, match=r"kind=progress needs the rows kmeans and simgcd; parts has simgcd, rpc"
    ):
        build(tmp_path)
