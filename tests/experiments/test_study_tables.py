"""The table of a study: gains paired by seed, rows in the file's order, and nothing left unsaid."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.errors import InputError
from made_study import STUDY, add_run, write_study
from study_tables import Choice, study_table


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


def test_what_was_not_run_is_named(top: Path) -> None:
    assert "Not run: rpc, seed 2; no-align." in build(top)
    assert "Not run: no-align." in build(top, rows=("no-new", "no-align"))
    assert build(top, rows=("no-align",)).endswith("\n\nNot run: no-align.")
    assert "Not run" not in build(top, rows=("no-new",))
    more = build(top, seeds=((0, 1, 2, 3),))
    assert more.endswith("Not run: simgcd, no-new, seed 3; rpc, seeds 2, 3; no-align.")


def test_a_row_that_cannot_be_run_any_more_is_named(top: Path) -> None:
    """Its records are those of its hash, and the command leaves it out."""
    old = add_run(top, "rpc", 0, 12, 12, changes={"method.revision": 1})
    gone = f"no-align: {{method: rpc, record: {old.identity.hash!r}, seeds: [0]}}"
    text = STUDY.replace("no-align: {method: rpc, preset: reading}", gone).replace(
        "rows:", "commit: abc\nrows:", 1
    )
    write_study(top, text)
    text = build(top)
    assert cells(text, "no-align")["Old"] == "12.0"
    assert cells(text, "rpc")["Old"] == "67.0 ± 8.5"
    assert "of commit abc: no-align." in text
    alone = build(top, rows=("no-align",))
    assert "Runs: `" not in alone
    assert "--rows rpc`" in build(top, rows=("rpc", "no-align")).replace(" --root DIR", "")


def test_records_of_two_kinds_are_no_row(top: Path) -> None:
    """Other images under the same name: which of them the table means is not for it to choose."""
    add_run(top, "no-new", 0, 30, 30, changes={"data.table": "another"})
    with pytest.raises(
        InputError, match=r"row no-new of parts has records of two kinds, .* differ in data\.table"
    ):
        build(top)
    assert "| rpc |" in build(top, rows=("rpc",))


def test_gains_over_several_sets_of_seeds(top: Path) -> None:
    """Old: 4, 1, 2; New: 0, 2, -3; All: 1, 1.75, -1.75."""
    text = build(top, rows=("no-new",), kind="seeds", seeds=((0,), (0, 1), (0, 1, 2)))
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == [
        *("no-new minus simgcd, seeds (n)", "Δ All", "Δ Old", "Δ New"),
        *("95 % of Δ All", "95 % of Δ Old", "95 % of Δ New"),
    ]
    assert rows[2] == ["0 (1)", "+1.0", "+4.0", "+0.0", "", "", ""]
    # of 4 and 1: mean 2.5, deviation 2.12, t(1) = 12.71: half 19.1; of 0 and 2: mean 1, half 12.7
    assert rows[3] == [
        *("0, 1 (2)", "+1.4 ± 0.5 (2/2)", "+2.5 ± 2.1 (2/2)", "+1.0 ± 1.4 (1/2)"),
        *("-3.4 to 6.1", "-16.6 to 21.6", "-11.7 to 13.7"),
    ]
    # of 4, 1, 2: t(2) = 4.303, deviation 1.53: half 3.8
    assert rows[4][:3] == ["0 to 2 (3)", "+0.3 ± 1.8 (2/3)", "+2.3 ± 1.5 (3/3)"]
    assert rows[4][5] == "-1.5 to 6.1"
    assert text.startswith("Data set cub; commit abc.\n\n|")
    assert text.endswith("\n\n[How to read this table](docs/studies/reading.md).")


def test_the_scores_of_every_seed(top: Path) -> None:
    text = build(top, rows=("no-new", "rpc"), kind="each", seeds=((0, 1, 2),))
    row = cells(text, "no-new")
    assert (row["All"], row["Old"], row["New"]) == (
        "46.0, 56.8, 63.2",
        "64.0, 71.0, 82.0",
        "40.0, 52.0, 57.0",
    )
    assert (row["What it changes"], row["Seeds (n)"]) == ("`method.lambda_2 = 0`", "0 to 2 (3)")
    assert cells(text, "rpc")["New"] == "44.0, 58.0"
    assert ("±" in text, "Not run: rpc, seed 2." in text) == (False, True)


def test_published_scores_and_their_star(top: Path) -> None:
    """RPC's cells of CUB break the law; SimGCD's do not."""
    assert "published" not in build(top)
    text = build(top, kind="comparison")
    assert cells(text, "rpc")["All (published)"] == r"67.1\*"
    assert cells(text, "simgcd")["All (published)"] == "60.3"
    assert r"\* cannot be right as printed" in text
    assert "[Published scores](docs/studies/reading.md#published-scores)" in text
    assert r"\*" not in build(top, kind="comparison", rows=("simgcd",))


def test_every_data_set_has_a_table(top: Path) -> None:
    write_study(top, STUDY.replace("[cub]", "[cub, scars]"))
    assert "Not run: simgcd; rpc; no-new; no-align." in build(top, dataset="scars")
    add_run(top, "rpc", 0, 11, 11, dataset="scars")
    text = build(top)
    cub, scars = text.split("**scars**")
    assert cub.startswith("**cub**")
    assert "11.0" in scars
    assert "11.0" not in cub
    assert "11.0" in build(top, dataset="scars")
    with pytest.raises(InputError, match="no data set cars; a table can show cub, scars"):
        build(top, dataset="cars")
    with pytest.raises(InputError, match=r"no row 'rcp'.*simgcd, rpc, no-new, no-align"):
        build(top, rows=("rcp",))
