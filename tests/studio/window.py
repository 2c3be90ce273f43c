"""A window of the studio in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SAVED = "#edits-button[data-state=saved]"
LOADED = """async () => {
  const place = (element) => element.getBoundingClientRect();
  const isNear = (element) => place(element).bottom > 0 && place(element).top < innerHeight;
  const seen = [...document.querySelectorAll('main [data-picture]')].filter(isNear);
  const load = ({ dataset }) => Object.assign(new Image(), { src: dataset.picture }).decode();
  await Promise.all(seen.map(load));
  return seen.every(({ style }) => style.backgroundImage);
}"""
"""Have the thumbnails come that are visible?"""
JOB_MS = 400_000
"""The longest that a job may take on a machine that others share."""


class Window:
    """A page of the studio that remembers what the console complained about."""

    def __init__(self, browser: Any, **settings: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        self.tab = self.context.new_page()
        self.tab.set_default_timeout(120_000)
        self.complaints: list[str] = []
        self.excused: tuple[str, ...] = ()
        """Parts of complaints that a test brings about."""
        self.tab.on("console", lambda m: m.type in ("error", "warning") and self.complaints.append(m.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))

    def open(self, link: str) -> Any:
        self.tab.goto(link)
        self.tab.wait_for_selector("body[data-ready]")
        return self.tab

    def view(self, name: str) -> None:
        self.tab.evaluate("view => { location.hash = view; }", name)
        self.tab.wait_for_selector(f"main.{name.partition('/')[0]}")

    def picture(self, folder: Path, name: str) -> None:
        """Write what is visible, once the thumbnails are there, for docs/studio.md."""
        self.tab.wait_for_function(LOADED)
        self.tab.screenshot(path=folder / f"{name}.png")

    def focus(self, position: int) -> None:
        self.tab.evaluate(
            "at => document.querySelector('main > * .gallery:last-of-type').gallery.focus(at)", position
        )


def press(tab: Any, *keys: str) -> None:
    for key in keys:
        tab.keyboard.press(key)


def finished(tab: Any, title: str) -> None:
    tab.wait_for_selector(f".job h2:text-is('{title}: done')", timeout=JOB_MS)
