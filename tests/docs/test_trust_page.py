"""SECURITY.md and docs/trust.md: what they promise stands beside a test, and the test is there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from tools.torture.__main__ import CAMPAIGNS
from tools.torture.page import BLOCK, PAGE, RECORD, block

TOP = Path(__file__).resolve().parents[2]
PAGES = [page for page in ("SECURITY.md", "docs/trust.md") if (TOP / page).is_file()]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def functions_of(file: str) -> set[str]:
    tree = ast.parse((TOP / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES)
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = NAMED.findall((TOP / page).read_text(encoding="utf-8"))
    assert len(named) > 10
    gone = [
        f"{file}::{name}"
        for file, name in named
        if not (TOP / file).is_file() or name not in functions_of(file)
    ]
    assert gone == []


def test_every_line_of_the_threats_has_its_test() -> None:
    text = (TOP / "SECURITY.md").read_text(encoding="utf-8").split("| line | test |")[1].split("\n\n")[0]
    rows = [row for row in text.splitlines()[2:] if row.startswith("|")]
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row)] == []


def test_the_table_is_that_of_the_record() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    (shown,) = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert shown == block(record)


def test_every_campaign_is_explained() -> None:
    explained = {
        name
        for row in PAGE.read_text(encoding="utf-8").split("| campaign |")[1].splitlines()
        if row.startswith("| ")
        for name in row.split("|")[1].strip().split(", ")
    }
    assert {campaign.name for campaign in CAMPAIGNS} <= explained
