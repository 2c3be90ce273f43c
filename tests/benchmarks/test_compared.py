"""A method's rows in the comparison of all methods; those far from the published p are explained on its card."""

from __future__ import annotations

from pathlib import Path

import pytest
from compared import Compared, compared
from measured import measured
from method_cards import card_page

from holotype.methods import METHODS
from holotype.runs.records import Records
from made_study import add_run, write_study

RACE = """
question: What do all methods give?
datasets: [cub]
seeds: [0, 1]
settings: {train.epochs: 100}
rows:
  kmeans: {method: kmeans}
  simgcd: {method: simgcd}
  gcd: {method: gcd}
  dccl: {method: dccl, settings: {method.recluster: 5}}
  dccl-as-run: {method: dccl, preset: as_run}
"""
"""All of k-means and SimGCD are 20 and 40 below; published, p of GCD is 0.65 and of DCCL 1.12."""

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("peers", "tried"):
        write_study(tmp_path, RACE, name)
    for row, value in {"kmeans": 20, "simgcd": 40, "gcd": 30, "dccl": 36, "dccl-as-run": 37}.items():
        add_run(tmp_path, row, 0, value, value, study="peers")
    return tmp_path


def results_of(top: Path) -> Records:
    return Records(top / "experiments" / "results")


def test_rows_of_the_method_with_p_of_ours_and_as_published(top: Path) -> None:
    found = list(compared("dccl", top, results_of(top)))
    assert [(one.name, round(one.p, 2), round(one.printed.p, 2)) for one in found] == [
        ("dccl", 0.8, 1.12),
        ("dccl-as-run", 0.85, 1.12),
    ]
    assert [one.apart for one in found] == [True, False]  # 0.32 and 0.27 away


def test_a_study_that_is_not_there_or_was_not_run_has_no_rows(tmp_path: Path) -> None:
    assert not list(compared("dccl", tmp_path, results_of(tmp_path)))
    write_study(tmp_path, RACE, "peers")
    assert not list(compared("dccl", tmp_path, results_of(tmp_path)))


def test_without_k_means_there_is_no_p_and_nothing_is_apart(tmp_path: Path) -> None:
    write_study(tmp_path, RACE, "peers")
    add_run(tmp_path, "gcd", 0, 30, 30, study="peers")
    (one,) = compared("gcd", tmp_path, results_of(tmp_path))
    assert (one.p, one.apart) == (None, False)


def test_a_card_shows_what_the_comparison_ran_with_whatever_settings_it_had(top: Path) -> None:
    """Searching communities every five epochs is of no preset on CUB; other studies may try what they like."""
    told = {one.asked[0].row.name: one.other for one in measured("dccl", top, results_of(top))}
    assert told == {"dccl": ("method.recluster = 5",), "dccl-as-run": ()}
    (top / "experiments" / "peers.yaml").unlink()
    assert [one.asked[0].row.name for one in measured("dccl", top, results_of(top))] == ["dccl-as-run"]


def test_a_card_has_ours_beside_the_published_and_says_where_p_is_far_off(top: Path) -> None:
    text = card_page("dccl", top, results_of(top))
    assert "| cub | dccl | 36.0 | 36.0 | 36.0 | **0.80** | 1.12 |" in text
    assert "| cub | dccl-as-run | 37.0 | 37.0 | 37.0 | 0.85 | 1.12 |" in text
    assert "Bold: more than 0.3 from the published p; [why](#why-p-differs)." in text
    near = card_page("gcd", top, results_of(top))
    assert "| cub | gcd | 30.0 | 30.0 | 30.0 | 0.50 | 0.65 |" in near
    assert "#why-p-differs" not in near


# -- the cards of the documents ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def apart() -> dict[str, list[Compared]]:
    """Rows of the recorded comparison that are far from the published p, by method."""
    records = results_of(TOP)
    return {name: [one for one in compared(name, TOP, records) if one.apart] for name in METHODS}


@pytest.mark.parametrize("name", METHODS)
def test_each_of_them_is_explained_on_the_card_with_the_figures_of_the_records(name: str, apart) -> None:
    page = (TOP / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    _, heading, reasons = page.partition("\n## Why p differs\n")
    assert bool(heading) == bool(apart[name])
    for one in apart[name]:
        figures = f"{one.p:.2f} against {one.printed.p:.2f}"
        assert f"**{one.name} on {one.row.facts['dataset']}**, {figures}" in reasons


def test_there_are_such_rows(apart) -> None:
    assert any(apart.values())  # else the test above looks at nothing
