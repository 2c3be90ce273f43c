"""The table of the front page is that of the results."""

from __future__ import annotations

import json
import re
from pathlib import Path

from holotype.methods import METHODS

TOP = Path(__file__).resolve().parents[2]
README = (TOP / "README.md").read_text(encoding="utf-8")


def results_rows(study: str) -> dict[str, str]:
    """Method -> All, from the table of a study in docs/results.md."""
    text = (TOP / "docs" / "results.md").read_text(encoding="utf-8")
    table = text.partition(f"<!-- table: {study} kind=progress -->")[2].partition("<!-- end of table -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line]
    head, rows = rows[0], rows[2:]
    return {row[0].split()[0]: row[head.index("All")] for row in rows}


def measured_steps() -> dict[str, list[str]]:
    """Method -> milliseconds of its kinds of step, in the order of training."""
    lines = (TOP / "experiments" / "results" / "speed.jsonl").read_text(encoding="utf-8").splitlines()
    (parts,) = [one["parts"] for one in map(json.loads, lines) if one["name"] == "h200-vit-s14"]
    found = {row["method"]: [f"{row['ms']:.1f}"] for row in parts["methods"]}
    found["sptnet"] = list(found["simgcd"])  # its first stage
    for row in parts["image_stages"]:
        found.setdefault(row["method"], []).append(f"{row['ms']:.1f}")
    return found


def test_the_table_of_the_front_page_is_that_of_the_results() -> None:
    titles = {kind.card.title: name for name, kind in METHODS.items()}
    rows = re.findall(r"^\| ([\w+-]+) \| (\d{4}) \| (.+?) \| (.+?) \| (.+?) \|$", README, re.MULTILINE)
    assert len(rows) == len(METHODS) == len(titles)
    cub, cifar = results_rows("peers"), results_rows("peers-cifar")
    steps = measured_steps()
    for title, year, *cells, ms in rows:
        name = titles[title]
        assert int(year) == METHODS[name].card.year
        assert [cell.strip("* ") for cell in cells] == [cub[name], cifar[name]], name
        assert re.findall(r"\d+\.\d", ms) == steps.get(name, []), name
