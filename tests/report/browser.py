"""A real headless Chromium for the tests of the report, and its keyboard; without one they are skipped."""

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
        self.tab.set_default_timeout(60_000)
        self.report, self.complaints = report, []
        self.tab.on("console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("requestfailed", lambda request: self.complaints.append(f"{request.url} failed"))

    def open(self, view: str = "") -> Any:
        self.tab.goto(self.report.as_uri() + (f"#{view}" if view else ""))
        self.tab.wait_for_selector("body[data-ready]")
        return self.tab


def press(tab, *keys: str) -> None:
    for key in keys:
        tab.keyboard.press(key)


def focus(tab) -> str | int:
    """The number of the image that has the focus; of anything else its id, label, words or tag."""
    return tab.evaluate("""() => {
      const e = document.activeElement;
      if (e.dataset.image) return Number(e.dataset.image);
      return e.id || e.ariaLabel || (e.tagName === "BUTTON" ? e.textContent : e.tagName);
    }""")


def after(tab, *keys: str) -> str | int:
    """What has the focus after these keys."""
    press(tab, *keys)
    return focus(tab)


def tab_to_image(tab) -> int:
    """As people do who have no mouse."""
    for _ in range(80):
        press(tab, "Tab")
        if isinstance(focus(tab), int):
            return focus(tab)
    raise AssertionError("Tab leads to no image")


def listed(tab, gallery: str = "") -> list[int]:
    """Numbers of the images in a gallery, in its order."""
    tiles = tab.locator(f'[role="listbox"][aria-label^="{gallery or "Images in"}"] .tile')
    return tiles.evaluate_all("tiles => tiles.map((tile) => Number(tile.dataset.image))")


def edits(tab) -> list[tuple[str, str]]:
    """Action and value of each edit that this browser keeps."""
    kept = tab.evaluate("JSON.parse(localStorage.getItem('holotype:edits:run-made-1') ?? '[]')")
    return [(edit["action"], edit["value"]) for edit in kept]


def edited(tab) -> list[int]:
    """Numbers of the images that the edits are about."""
    return tab.evaluate("""() => {
      const { root, path } = window.HOLOTYPE.images;
      const kept = JSON.parse(localStorage.getItem("holotype:edits:run-made-1"));
      return kept.map((edit) => path.indexOf(edit.image.slice(root.length)));
    }""")
