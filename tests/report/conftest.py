"""The report of a small run, open in a real browser."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from holotype.report import build_report
from holotype.results.discovery import Discovery
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
def open_page(browser, tmp_path):
    """Opens the report of a discovery, or a report file; in the end no console has complained."""
    pages: list[Page] = []

    def opened(of: Discovery | Path, features: np.ndarray | None = None, **settings) -> Page:
        if isinstance(of, Discovery):
            of.save(tmp_path / "run")
            of = build_report(of, tmp_path / "run", features=features)
        pages.append(Page(browser, of, **settings))
        return pages[-1]

    yield opened
    for page in pages:
        page.context.close()
        assert page.complaints == []


@pytest.fixture
def page(open_page, reported) -> Page:
    """Its edits stay in the browser: the run does not change."""
    return open_page(reported / "run" / "report.html")


@pytest.fixture
def own_page(open_page, report) -> Page:
    """Of a run that may be changed."""
    return open_page(report)


def directions(found: Discovery, noise: float = 0.05) -> np.ndarray:
    """(N, 16) features: every category in a direction of its own."""
    ids = [category.id for category in found.categories]
    features = np.eye(len(ids), 16)[[ids.index(id) for id in found.images["category_id"]]]
    return features + np.random.default_rng(0).normal(scale=noise, size=features.shape)
