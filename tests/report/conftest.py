"""The report of a small run, open in a real browser."""

from __future__ import annotations

import shutil
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


@pytest.fixture(scope="session")
def reported(tmp_path_factory) -> Path:
    """A folder with a run that has a report, and with its pictures beside it. Not to be changed."""
    folder = tmp_path_factory.mktemp("reported")
    found = make_discovery(folder / "a b#c", 90)
    found.save(folder / "run")
    build_report(found, folder / "run")
    return folder


@pytest.fixture
def report(reported, tmp_path) -> Path:
    """Of a run of each test's own, to be changed."""
    shutil.copytree(reported, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run" / "report.html"


@pytest.fixture
def page(browser, report):
    opened = Page(browser, report)
    yield opened
    opened.context.close()
    assert opened.complaints == []
