"""A real headless Chromium for the tests of the report; without one they are skipped with a reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """Path of an installed Chromium; skips the test where there is none, or nothing to drive it with."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = os.environ.get("HOLOTYPE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    return found


@contextmanager
def browsing() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        browser.close()


class Page:
    """A page of the report that remembers what the console complained about."""

    def __init__(self, browser: Any, report: Path, **settings: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        self.tab = self.context.new_page()
        self.tab.set_default_timeout(8000)
        self.report, self.complaints = report, []
        self.tab.on("console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("requestfailed", lambda request: self.complaints.append(f"{request.url} failed"))

    def open(self, view: str = "") -> Any:
        self.tab.goto(self.report.as_uri() + (f"#{view}" if view else ""))
        self.tab.wait_for_selector("body[data-ready]")
        return self.tab
