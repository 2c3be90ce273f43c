"""The report of a small run, open in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.report import build_report
from report.browser import Page, browsing, chromium
from report.made import make_discovery


@pytest.fixture(scope="module")
def browser():
    chromium()
    with browsing() as opened:
        yield opened


@pytest.fixture
def report(tmp_path) -> Path:
    found = make_discovery(tmp_path / "a b#c", 90)
    found.save(tmp_path / "run")
    return build_report(found, tmp_path / "run")


@pytest.fixture
def page(browser, report):
    opened = Page(browser, report)
    yield opened
    opened.context.close()
    assert opened.complaints == []
