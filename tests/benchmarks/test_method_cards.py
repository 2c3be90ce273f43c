"""Cards say what the method says, and show the records of its presets and no others."""

from __future__ import annotations

from pathlib import Path

import exhibits
import pytest
from measured import measured
from method_cards import card_page, methods_table

from holotype.methods import METHODS
from holotype.runs.records import Records
from made_study import add_run, write_study

TRIED = """
question: What does each part do?
datasets: [cub]
seeds: [0, 1, 2]
settings: {train.epochs: 100}
rows:
  rpc: {method: rpc}
  reading: {method: rpc, preset: reading}
  spelled: {method: rpc, settings: {method.lambda_2: 0.3, train.lr: 0.05}}
  no-new: {method: rpc, settings: {method.lambda_2: 0}}
  simgcd: {method: simgcd}
"""


@pytest.fixture
def top(tmp_path: Path) -> Path:
    write_study(tmp_path, TRIED)
    write_study(tmp_path, TRIED.replace("[0, 1, 2]", "[2, 3, 4, 5]"), "again")
    for row, old in {"rpc": 60, "reading": 30, "spelled": 55, "no-new": 99}.items():
        add_run(tmp_path, row, 0, old, 40, parallel=4, seconds=12.0)
    add_run(tmp_path, "rpc", 2, 70, 40, parallel=8, seconds=14.0)
    add_run(tmp_path, "rpc", 3, 80, 40, study="again", parallel=8, seconds=16.0)
    return tmp_path


def card(top: Path, name: str = "rpc") -> str:
    return card_page(name, top, Records(top / "experiments" / "results"))


def rows_below(text: str, title: str) -> list[list[str]]:
    """Cells of the first table below a heading."""
    lines = text.partition(f"## {title}\n")[2].partition("\n## ")[0].splitlines()
    found = [line[2:-2].split(" | ") for line in lines if line.startswith("|")]
    return [dict(zip(found[0], cells, strict=True)) for cells in found[2:]]  # type: ignore[misc]


def test_rows_are_those_of_the_presets(top: Path) -> None:
    """A row without one of its parts is of no preset; one that spells the default out is the default."""
    found = measured("rpc", top, Records(top / "experiments" / "results"))
    told = [(one.preset, one.other, one.row.seeds) for one in found]
    assert sorted(told) == [
        ("default", (), (0, 2, 3)),
        ("default", ("train.lr = 0.05",), (0,)),
        ("reading", (), (0,)),
    ]
    assert "99.0" not in card(top)


def test_a_number_in_place_of_a_rule_is_shown_where_the_rule_gives_it(top: Path) -> None:
    """Of 200 categories: a weight of 4, and a threshold of 0.674, which a study may round."""
    rows = "".join(
        f"  {name}: {{method: rpc, settings: {{{given}}}}}\n"
        for name, given in {
            "four": "method.debias.adl: 4",
            "rounded": "method.debias.adl: 4, method.debias.threshold: 0.67",
            "two": "method.debias.adl: 2",
            "low": "method.debias.threshold: 0.65",
            "other": "method.debias.adl: 4, method.lambda_2: 0",
        }.items()
    )
    write_study(top, TRIED.partition("rows:")[0] + "rows:\n" + rows, "rules")
    for row in ("four", "rounded", "two", "low", "other"):
        add_run(top, row, 0, 50, 50, study="rules")
    found = measured("rpc", top, Records(top / "experiments" / "results"))
    told = {one.asked[0].row.name: one.other for one in found if one.asked[0].study.name == "rules"}
    assert told == {
        "four": ("method.debias.adl = 4.0",),
        "rounded": ("method.debias.threshold = 0.67", "method.debias.adl = 4.0"),
    }


def test_seeds_of_all_studies_stand_together_and_no_study_is_named_needlessly(top: Path) -> None:
    rows = {(row["Preset"], row["Other settings"]): row for row in rows_below(card(top), "Measured")}
    row = rows["default", ""]
    assert (row["Seeds (n)"], row["Old"]) == ("0, 2, 3 (3)", "70.0 ± 10.0")
    assert row["Seconds"] == "14.0 (4 to 8 at once)"
    assert row["Study (row)"] == "again (rpc), parts (rpc)"  # each has two of the three
    assert rows["default", "`train.lr = 0.05`"]["Study (row)"] == "parts (spelled)"


def test_the_commands_make_the_rows(top: Path) -> None:
    text = card(top)
    assert "\nholotype bench --study experiments/again.yaml --rows rpc --root DIR\n" in text
    (line,) = [line for line in text.splitlines() if "experiments/parts.yaml" in line]
    assert set(line.partition("--rows ")[2].split()[0].split(",")) == {"rpc", "reading", "spelled"}


def test_rows_that_cannot_be_run_any_more_are_left_out(top: Path) -> None:
    old = add_run(top, "rpc", 0, 12, 12, changes={"method.revision": 1})
    gone = f"no-new: {{method: rpc, record: {old.identity.hash!r}}}"
    write_study(top, TRIED.replace("no-new: {method: rpc, settings: {method.lambda_2: 0}}", gone))
    assert "12.0 |" not in card(top)


def test_where_nothing_was_measured_that_is_said(top: Path) -> None:
    text = card(top, "dccl")
    assert "Nothing yet: no record of a run with one of its presets" in text
    assert "Time of a step and memory have not been measured." in text


def test_steps_and_memory_where_they_were_measured(top: Path) -> None:
    speed = top / "experiments" / "results" / "speed"
    speed.mkdir()
    row = '{"pipeline": "exact", "method": "rpc", "arithmetic": "bf16", "ms": 32.5, "host_bytes": 3460000000, %s}'
    rows = [row % '"device_bytes": 2850000000', row.replace("rpc", "simgcd") % '"captured": true']
    staged = (
        row.replace("rpc", "sptnet").replace("exact", "images") % '"stage": "second stage, prompt learns"'
    )
    parts = f'{{"exact": [{", ".join(rows)}], "image_stages": [{staged}]}}'
    (speed / "one.json").write_text(f'{{"hardware": "1 x Card", "arch": "vit", "parts": {parts}}}')
    assert "| exact, bf16 | vit, 1 x Card | 32.5 | 2.85 GB | 3.46 GB |" in card(top)
    assert "| exact, bf16, captured | vit, 1 x Card | 32.5 | none | 3.46 GB |" in card(top, "simgcd")
    assert "| images, bf16, second stage, prompt learns | vit, 1 x Card | 32.5 | none |" in card(
        top, "sptnet"
    )


def test_what_the_method_says_of_itself(top: Path) -> None:
    text = card(top, "dccl")
    told = METHODS["dccl"].card
    assert text.startswith(f"{told.paper}.\n\n{told.line}\n")
    assert (
        "\n## How it works\n\n![DCCL: contrast, and communities of neighbours. Arrows lead through boxes: "
        in text
    )
    assert "](dccl.svg)\n\n## What it computes\n" in text
    assert "```text\n    L = (1 - lam) L_con_u + lam L_con_s + w(e) L_C\n" in text
    assert "| `method.tau` | `0.05` | Temperature of the concept loss. |" in text
    same = "`method.recluster = 5`, `method.neighbours = 127`, `method.least_similarity = 0.5`"
    assert f"| cifar100 | {same} |" in text
    assert "| `as_run` | `method.edges = none` |" in text
    assert all(f"- {point}\n" in text for point in told.differs)
    assert "```text\nDiffers, and why:\n" in text
    assert "No data set changes a value." in card(top, "gcd")
    assert "It has no preset beside `default`." in card(top, "protogcd")


def test_what_is_printed_is_marked_where_it_cannot_be_right(top: Path) -> None:
    rows = {row["Data set"]: row for row in rows_below(card(top, "dccl"), "Published")}
    assert rows["cub"] == {"Data set": "cub", "All": "63.5", "Old": "60.8", "New": "64.9", "p": "1.12"}
    assert rows["scars"]["All"] == r"43.1\*"
    assert "aircraft" not in rows
    text = card(top, "dccl")
    assert "Not printed: aircraft." in text
    assert r"\* [cannot be right as printed](../studies/reading.md#published-scores)" in text
    gcd = {row["Data set"]: row for row in rows_below(card(top, "gcd"), "Published")}
    assert (gcd["cifar100"]["All"], gcd["cifar100"]["p"]) == (
        "73.0",
        r"0.75\*",
    )  # k-means' row breaks the law


def test_the_table_of_all_methods() -> None:
    text = methods_table()
    for name, kind in METHODS.items():
        drawing = f"[how it works](methods/{name}.md#how-it-works)"
        assert f"| [`{name}`](methods/{name}.md) | {kind.card.year} | {kind.card.line} | {drawing} |" in text
    assert "| 2: simgcd, prompts | stage 1 | stage 1 |" in text


def test_cards_are_blocks_of_documents(top: Path) -> None:
    page = top / "docs" / "methods" / "gcd.md"
    page.parent.mkdir(parents=True)
    page.write_text("# GCD\n\n<!-- table: gcd kind=card -->\n<!-- end of table -->\n")
    assert exhibits.main(["--check", "docs/methods/gcd.md"], top) == 1
    assert exhibits.main(["docs/methods/gcd.md"], top) == 0
    assert METHODS["gcd"].card.paper in page.read_text()
    assert page.with_suffix(".svg").is_file()
    assert exhibits.main(["--check"], top) == 0


def test_a_card_of_no_method_is_told(top: Path, capsys) -> None:
    (top / "docs").mkdir()
    (top / "docs" / "page.md").write_text("<!-- table: gdc kind=card -->\n<!-- end of table -->\n")
    assert exhibits.main([], top) == 2
    assert "did you mean gcd?" in capsys.readouterr().err
    assert exhibits.main(["docs/none.md"], top) == 2
    assert "no document docs/none.md" in capsys.readouterr().err
