"""The table of a study: gains paired by seed, rows in the file's order, and nothing left unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_table import Choice, difference, seeds, study_table

from holotype.errors import InputError
from made_study import STUDY, add_run, write_study


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """no-new was run before rpc, and rpc lacks seed 2; the reference has a seed that nobody else has."""
    write_study(tmp_path)
    for seed, old, new in ((0, 60, 40), (1, 70, 50), (2, 80, 60), (7, 10, 10)):
        add_run(tmp_path, "simgcd", seed, old, new)
    for seed, old, new in ((0, 64, 40), (1, 71, 52), (2, 82, 57)):
        add_run(tmp_path, "no-new", seed, old, new)
    for seed, old, new in ((0, 61, 44), (1, 73, 58)):
        add_run(tmp_path, "rpc", seed, old, new, commit="def")
    return tmp_path


def build(top: Path, **choice) -> str:
    return study_table(Choice("parts", **choice), top)


def cells(text: str, row: str) -> dict[str, str]:
    """The line of a row, by column."""
    lines = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("|")]
    (found,) = [line for line in lines[2:] if line[0].split(" (")[0] == row]
    return dict(zip(lines[0], found, strict=True))


def test_differences_are_paired_by_seed(top: Path) -> None:
    """Old of no-new minus Old of simgcd: 4, 1, 2; New: 0, 2, -3. Seed 7 has no partner."""
    found = cells(build(top), "no-new")
    assert found["Δ Old"] == "+2.3 ± 1.5 (3/3)"
    assert found["Δ New"] == "-0.3 ± 2.5 (1/3)"
    assert found["Old"] == "72.3 ± 9.1"
    # All is a quarter Old and three quarters New: differences 1, 1.75, -1.75
    assert found["Δ All"] == "+0.3 ± 1.8 (2/3)"
    two = cells(build(top), "rpc")
    assert two["Δ Old"] == "+2.0 ± 1.4 (2/2)"
    assert two["Seeds (n)"] == "0, 1 (2)"


def test_a_difference_of_one_seed_has_no_deviation_and_none_is_empty() -> None:
    assert difference([-1.25]) == "-1.2 (1/1)"
    assert difference([]) == ""
    assert difference([3.0, -1.0, -1.0, -1.0]) == "+0.0 ± 2.0 (0/4)"
    assert seeds((3, 1, 2)) == "1 to 3 (3)"
    assert seeds((0, 2, 3)) == "0, 2, 3 (3)"


def test_rows_keep_the_order_of_the_file_and_the_reference_is_marked(top: Path) -> None:
    text = build(top)
    names = [line.split(" | ")[0].strip("| ") for line in text.splitlines() if line.startswith("|")][2:]
    assert names == ["simgcd (reference)", "rpc", "no-new"]
    assert cells(text, "simgcd")["Δ All"] == ""
    few = build(top, rows=("no-new", "rpc"))
    assert few.index("| rpc |") < few.index("| no-new |")
    assert "| simgcd" not in few
    assert cells(few, "rpc")["Δ Old"] == "+2.0 ± 1.4 (2/2)"  # a reference need not be shown
    assert "--rows rpc,no-new" in few


def test_what_a_row_changes(top: Path) -> None:
    """Its own words; else its own settings, not the study's; else its method."""
    add_run(top, "no-align", 0, 50, 50)
    text = build(top)
    assert cells(text, "rpc")["What it changes"] == "everything"
    assert cells(text, "no-new")["What it changes"] == "`method.lambda_2 = 0`"
    assert cells(text, "simgcd")["What it changes"] == "simgcd"
    assert cells(text, "no-align")["What it changes"] == "rpc, preset `reading`"


def test_what_was_not_run_is_named(top: Path) -> None:
    assert "Not run: rpc, seed 2; no-align." in build(top)
    assert "Not run: no-align." in build(top, rows=("no-new", "no-align"))
    assert build(top, rows=("no-align",)).startswith("Not run: no-align.")
    assert "Not run" not in build(top, rows=("no-new",))


def test_results_of_no_row_are_named(top: Path) -> None:
    add_run(top, "old-name", 0, 50, 50)
    assert "Left out: results of old-name, which are no rows of the study." in build(top)


def test_how_the_runs_were_made_stands_below(top: Path) -> None:
    last = build(top).splitlines()[-1]
    assert last.startswith(
        "Exact mode, 100 epochs, backbone embedded, 1 trained block; commit abc, def; 1 x Card."
    )
    assert "`holotype bench --study experiments/parts.yaml --root DIR`" in last
    add_run(top, "no-align", 0, 50, 50, backbone="vit")
    assert "--set backbone.name=BACKBONE" in build(top)


def test_runs_made_in_another_way_get_a_line_and_a_column(top: Path) -> None:
    add_run(top, "rpc", 0, 30, 30, mode="cached 4+2")
    text = build(top)
    lines = [line for line in text.splitlines() if line.startswith("| rpc |")]
    assert [line.split(" | ")[2] for line in lines] == ["cached 4+2", "exact"]
    assert "| Mode |" in text
    assert "| Epochs |" not in text
    assert "Exact mode" not in text
    add_run(top, "rpc", 0, 20, 20, epochs=5)
    assert "| Mode | Epochs |" in build(top)


def test_the_reference_is_the_one_made_in_the_same_way(top: Path) -> None:
    add_run(top, "simgcd", 0, 20, 20, mode="cached 4+2")
    add_run(top, "no-align", 0, 21, 21, mode="cached 4+2")
    text = build(top)
    assert cells(text, "no-align")["Δ Old"] == "+1.0 (1/1)"
    assert cells(text, "no-new")["Δ Old"] == "+2.3 ± 1.5 (3/3)"


def test_two_settings_of_one_row_are_told_apart(top: Path) -> None:
    add_run(top, "no-new", 0, 30, 30, config_hash="feedfeedfeedfeed")
    assert "| feedfeed |" in build(top)


def test_published_scores_and_their_star(top: Path) -> None:
    """RPC's cells of CUB break the law; SimGCD's do not."""
    assert "published" not in build(top)
    text = build(top, kind="comparison")
    assert cells(text, "rpc")["All (published)"] == r"67.1\*"
    assert cells(text, "simgcd")["All (published)"] == "60.3"
    assert r"\* cannot be right as printed" in text
    assert r"\*" not in build(top, kind="comparison", rows=("simgcd",))


def test_the_published_ablation(top: Path) -> None:
    add_run(top, "no-align", 0, 50, 50)
    text = build(top, kind="ablation")
    assert cells(text, "no-new")["Old (published)"] == r"73.0\*"  # 65.2 is not between 65.23 and 65.43
    assert cells(text, "no-align")["All (published)"].startswith("65.6")
    assert cells(text, "rpc")["New (published)"] == r"64.8\*"
    assert cells(text, "simgcd")["All (published)"] == ""


def test_a_caveat_stands_only_beside_published_scores(top: Path) -> None:
    add_run(top, "no-align", 0, 50, 50, caveat="made of clay")
    assert "made of clay" not in build(top)
    assert "Backbone embedded: made of clay" in build(top, kind="comparison")


def test_a_reference_without_results_is_said(tmp_path: Path) -> None:
    write_study(tmp_path)
    add_run(tmp_path, "rpc", 0, 50, 50)
    text = build(tmp_path)
    assert "Δ All" not in text
    assert "the reference simgcd has no results here" in text


def test_every_data_set_has_a_table(top: Path) -> None:
    write_study(top, STUDY.replace("[cub]", "[cub, scars]"))
    add_run(top, "rpc", 0, 11, 11, dataset="scars")
    text = build(top)
    cub, scars = text.split("**scars**")
    assert cub.startswith("**cub**")
    assert "11.0" in scars
    assert "11.0" not in cub
    assert "11.0" in build(top, dataset="scars")
    with pytest.raises(InputError, match="no data set cars; a table can show cub, scars"):
        build(top, dataset="cars")


def test_unknown_rows_are_told(top: Path) -> None:
    with pytest.raises(InputError, match=r"no row 'rcp'.*simgcd, rpc, no-new, no-align"):
        build(top, rows=("rcp",))
