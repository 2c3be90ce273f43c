"""Blocks of documents are rewritten, and a stale one is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import exhibits
from holotype.runs.record import Records
from made_study import add_run, write_study

MARK, END = "<!-- table: parts rows=simgcd -->", "<!-- end of table -->"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    write_study(tmp_path)
    add_run(tmp_path, "simgcd", 0, 60, 40)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(f"Before.\n\n{MARK}\nold\n{END}\n\nAfter.\n")
    (tmp_path / "README.md").write_text(f"# Read\n\n{MARK}\n{END}\n")
    (tmp_path / "docs" / "plain.md").write_text("Write `<!-- table: parts -->` for a table.\n")
    return tmp_path


def test_the_documents_are_up_to_date(capsys) -> None:
    """Tables of README.md and docs/ are never edited by hand."""
    assert exhibits.main(["--check"]) == 0, capsys.readouterr().err


def test_a_card_of_a_wrapper_is_of_the_wrapper_alone() -> None:
    """What the method behind it computes and sets stands on the method's own card."""
    page = exhibits.card_page("bia+simgcd", exhibits.TOP, Records(exhibits.TOP / "experiments" / "results"))
    assert ("`bia.weight`" in page, "memax" in page, "L_cls" in page) == (True, False, False)
    assert re.search(r"- bia\+rpc on cub: All [\d.]+ ± [\d.]+, p 1\.\d\d", page)
    assert "(../results.md#all-methods)" in page


def test_blocks_are_rewritten_and_nothing_else(top: Path) -> None:
    plain = (top / "docs" / "plain.md").read_text()
    assert exhibits.main([], top) == 0
    page, front = (top / "docs" / "page.md").read_text(), (top / "README.md").read_text()
    assert page.startswith(f"Before.\n\n{MARK}\n\nData set cub, ")
    assert page.endswith(f"\n\n{END}\n\nAfter.\n")
    assert ("(studies/reading.md)" in page, "\nold\n" in page) == (True, False)
    assert ("| 60.0 | 40.0 |" in front, "(docs/studies/reading.md)" in front) == (True, True)
    assert exhibits.main([], top) == 0
    assert ((top / "docs" / "page.md").read_text(), (top / "docs" / "plain.md").read_text()) == (page, plain)


def test_a_stale_block_is_named_and_left(top: Path, capsys) -> None:
    exhibits.main([], top)
    assert exhibits.main(["--check"], top) == 0
    add_run(top, "simgcd", 1, 70, 50)
    before = (top / "docs" / "page.md").read_text()
    capsys.readouterr()
    assert exhibits.main(["--check"], top) == 1
    told = capsys.readouterr().err
    assert (f"docs/page.md ({MARK})" in told, len(told.splitlines())) == (True, 1)
    assert (top / "docs" / "page.md").read_text() == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MARK, "no line <!-- end of table -->"),
        (f"{MARK}\n{MARK}\n{END}", "no line <!-- end of table -->"),
        (f"<!-- table: parts kind=best -->\n{END}", "cannot be read"),
        (f"<!-- table: parts colour=red -->\n{END}", "cannot be read"),
        (f"<!-- table: -->\n{END}", "cannot be read"),
        (f"<!-- table: missing -->\n{END}", "missing.yaml"),
        (f"<!-- table: parts seeds=0- -->\n{END}", "seeds=0-, which cannot be read"),
        (f"<!-- table: parts seeds=4-2 -->\n{END}", "seeds=4-2, which cannot be read"),
        (f"<!-- table: parts kind=seeds -->\n{END}", "kind=seeds needs rows=ROW"),
    ],
)
def test_mistakes_are_told_in_a_sentence(top: Path, text: str, told: str, capsys) -> None:
    (top / "docs" / "wrong.md").write_text(text)
    assert exhibits.main([], top) == 2
    assert told in capsys.readouterr().err


def test_marks_are_read_whole() -> None:
    seeds = {"3": ((3,),), "0-2,7,9-9": ((0, 1, 2, 7, 9),), "0-1;2-4;7": ((0, 1), (2, 3, 4), (7,))}
    for text, found in seeds.items():
        assert exhibits.parse("", ["parts", f"seeds={text}"], "").choice.seeds == found
    links = {
        "README.md": "docs/studies/",
        "docs/a.md": "studies/",
        "docs/studies/a.md": "",
        "docs/methods/a.md": "../studies/",
    }
    for where, link in links.items():
        assert exhibits.parse("", ["parts"], where).choice.reading == f"{link}reading.md"
    choice = exhibits.parse("", ["parts", "cub", "rows=a,b", "kind=ablation"], "").choice
    assert (choice.study, choice.dataset, choice.rows, choice.kind) == (
        "parts",
        "cub",
        ("a", "b"),
        "ablation",
    )
    assert choice.seeds == ()


def test_a_block_of_some_seeds(top: Path) -> None:
    """Old of seeds 0 to 2: 60, 70, 80; of 0 and 1 alone 65."""
    for seed, old in ((1, 70), (2, 80)):
        add_run(top, "simgcd", seed, old, 50)
    page = top / "docs" / "page.md"
    page.write_text(f"<!-- table: parts rows=simgcd seeds=0-1 -->\n{END}\n\n{MARK}\n{END}\n")
    assert exhibits.main([], top) == 0
    some, every = page.read_text().split(MARK)
    assert ("seeds 0, 1 (2)" in some, "| 50.0 ± 7.1 | 65.0 ± 7.1 |" in some) == (True, True)
    assert ("seeds 0 to 2 (3)" in every, "| 70.0 ± 10.0 |" in every) == (True, True)
