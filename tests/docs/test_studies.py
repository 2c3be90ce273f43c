"""The pages of the studies: the answer first, every page in the index, and no footnote twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holotype.models.backbone import CAVEAT
from holotype.runs.published import read_published

TOP = Path(__file__).resolve().parents[2]
FOLDER = TOP / "docs" / "studies"
PAGES = sorted(FOLDER.glob("[0-9]*.md"))
INDEX = (TOP / "docs" / "experiments.md").read_text(encoding="utf-8")
READING = (FOLDER / "reading.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- table:.*?<!-- end of table -->", re.DOTALL)
INTERVAL = re.compile(r"\((-?\d+\.\d)\s+to\s+(-?\d+\.\d)[,)]")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_study_opens_with_its_question_and_its_answer(page: Path) -> None:
    title, _, rest = page.read_text(encoding="utf-8").partition("\n\n")
    assert re.match(rf"# {int(page.stem[:2])}\. .+\?", title), title
    assert rest.startswith("**Answer"), "the answer is the first sentence"
    assert "\n## " in rest


def test_the_index_is_short_and_names_every_study_once() -> None:
    assert re.findall(r"^\| (\d+) \| \[.+?\]\(studies/(.+?)\) \|", INDEX, re.MULTILINE) == [
        (str(number), page.name) for number, page in enumerate(PAGES, start=1)
    ]
    assert len(INDEX.splitlines()) < 60


@pytest.mark.parametrize(
    "words",
    ["standard deviation (ddof 1)", "EfficientNet-Lite2", "by more than rounding", "one global assignment"],
)
def test_what_is_true_of_all_tables_stands_once(words: str) -> None:
    pages = [*PAGES, TOP / "docs" / "experiments.md"]
    assert [page.name for page in pages if words in page.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    "part", ["Scores", "Cached views", "The backbone", "Published scores", "p", "Data sets"]
)
def test_what_tables_link_to_is_there(part: str) -> None:
    assert f"\n## {part}\n" in READING


def test_the_page_says_what_the_records_say_of_backbone_and_paper() -> None:
    text = " ".join(READING.split())
    for fact in (
        "EfficientNet-Lite2",
        "121 k images",
        "all CUB images, train and test",
        "without their labels",
    ):
        assert fact in CAVEAT
        assert fact in text
    printed = read_published()
    assert printed["paper"].removesuffix(" (RPC)") in text
    for words in printed["setting"].split("; "):
        assert words.removeprefix("no seeds ") in text


def test_every_table_of_a_study_says_how_it_is_read() -> None:
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            assert "](reading.md)." in block or "kind=overhead" in block, page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_intervals_of_an_answer_stand_below_it(page: Path) -> None:
    answer, _, below = page.read_text(encoding="utf-8").partition("\n## ")
    told = " ".join(below.split())
    assert [pair for pair in INTERVAL.findall(answer) if " to ".join(pair) not in told] == []


def test_intervals_of_the_index_stand_on_the_pages() -> None:
    text = " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in PAGES)
    found = INTERVAL.findall(INDEX)
    assert len(found) >= 4
    assert [pair for pair in found if " to ".join(pair) not in text] == []
