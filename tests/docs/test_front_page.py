"""The front page and the findings: short sentences, and no figure that the results do not have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from holotype.methods import METHODS
from tests.docs.test_readme import FENCE

TOP = Path(__file__).resolve().parents[2]
README = (TOP / "README.md").read_text(encoding="utf-8")
SOURCES = [
    TOP / "docs" / "results.md",
    TOP / "docs" / "how-many.md",
    *(TOP / "docs" / "studies").glob("*.md"),
]
MAX_WORDS = 25


def sentences(text: str) -> list[str]:
    """Sentences of running text, of lists and of tables' cells; code and addresses left out."""
    text = FENCE.sub("\n\n", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\|[-:| ]+\|$", "", text, flags=re.MULTILINE)
    parts = re.split(r"\n\s*\n|\n(?=[-|#])|\|| · ", text)
    return [one for part in parts for one in re.split(r"(?<=[.!?])\s+(?=\W*[A-Z`])", part.strip()) if one]


def test_sentences_of_the_front_page_are_short() -> None:
    long = [one for one in sentences(README) if len(re.findall(r"[\w±%+'./-]*\w[\w'./-]*", one)) > MAX_WORDS]
    assert long == []


def test_sentences_are_told_apart() -> None:
    text = "One is here. `Two` is\nthere, as [a link](to/a.md) says.\n\n- three\n\n| four | five. Six |\n"
    assert len(sentences(text)) == 6
    assert sentences("Version 0.1.0 has 1.6 points. More.") == ["Version 0.1.0 has 1.6 points.", "More."]


def test_the_picture_and_the_three_ways_on_stand_before_the_first_heading() -> None:
    top = README.partition("\n## ")[0]
    assert "](docs/report-light.png)" in top
    for words in ("My photos", "Add a method", "Reproduce the table"):
        assert f"[{words}](docs/" in top
    assert len(top.split()) < 100


def results_rows(study: str) -> dict[str, tuple[str, str]]:
    """Method -> All and n, from the table of a study in docs/results.md."""
    text = (TOP / "docs" / "results.md").read_text(encoding="utf-8")
    table = text.partition(f"<!-- table: {study} kind=progress -->")[2].partition("<!-- end of table -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line]
    head, rows = rows[0], rows[2:]
    all_, seeds = head.index("All"), head.index("Seeds (n)")
    return {row[0].split()[0]: (row[all_], row[seeds].rpartition("(")[2].rstrip(")")) for row in rows}


def measured_steps() -> dict[str, list[str]]:
    """Method -> milliseconds of its kinds of step, in the order of training."""
    file = TOP / "experiments" / "results" / "speed" / "h200-vit-s14.json"
    parts = json.loads(file.read_text(encoding="utf-8"))["parts"]
    found = {row["method"]: [f"{row['ms']:.1f}"] for row in parts["methods"]}
    found["sptnet"] = list(found["simgcd"])  # its first stage
    for row in parts["image_stages"]:
        found.setdefault(row["method"], []).append(f"{row['ms']:.1f}")
    return found


def test_the_table_of_the_front_page_is_that_of_the_results() -> None:
    titles = {kind.card.title: name for name, kind in METHODS.items()}
    rows = re.findall(
        r"^\| ([\w+-]+) \| (\d{4}) \| (.+?) \| (\d*) ?\| (.+?) \| ?(\d*) ?\| (.+?) \|$", README, re.MULTILINE
    )
    assert len(rows) == len(METHODS) == len(titles)
    cub, cifar = results_rows("peers"), results_rows("peers-cifar")
    steps = measured_steps()
    for title, year, *cells, ms in rows:
        name = titles[title]
        assert int(year) == METHODS[name].card.year
        mine = [cell.strip("* ") for cell in cells]
        assert mine[:2] == list(cub[name]), name
        assert mine[2:] == list(cifar.get(name, ("not run", ""))), name
        assert re.findall(r"\d+\.\d", ms) == steps.get(name, []), name


@pytest.mark.parametrize("file", ["README.md", "docs/findings.md"])
def test_every_interval_stands_in_the_results(file) -> None:
    """`+1.6 (0.8 to 2.4)`: the same mean with the same interval is in one of the pages with the tables."""
    sources = " ".join(page.read_text(encoding="utf-8") for page in SOURCES)
    text = (TOP / file).read_text(encoding="utf-8")
    intervals = re.findall(r"\((?:95 % interval )?(-?\d+\.\d) to (-?\d+\.\d)\)", text)
    assert len(intervals) >= 2
    for low, high in intervals:
        assert f"{low} to {high}" in sources, (low, high)


def test_every_mean_with_a_deviation_stands_in_the_results() -> None:
    sources = " ".join(page.read_text(encoding="utf-8") for page in SOURCES)
    text = (TOP / "docs" / "findings.md").read_text(encoding="utf-8")
    means = re.findall(r"[+-]?\d+\.\d ± \d+\.\d", text)
    assert len(means) >= 15
    assert [one for one in means if one not in sources] == []


def test_the_caveats_stand_beside_the_figures() -> None:
    section = README.partition("## Results\n")[2].partition("\n## ")[0]
    assert "stand-in" in section
    assert "Stanford Cars has not been measured" in section
    findings = (TOP / "docs" / "findings.md").read_text(encoding="utf-8")
    for word in ("stand-in", "cached views", "Not comparable with published tables", "What is open"):
        assert word in findings
