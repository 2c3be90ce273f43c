"""A window of the studio in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SAVED = "#edits-button[data-state=saved]"
LOADED = """async () => {
  const frames = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const place = (element) => element.getBoundingClientRect();
  const isNear = (element) => place(element).bottom > 0 && place(element).top < innerHeight;
  await frames(); // a grid draws its cells in the next one
  const near = [...document.querySelectorAll('main [data-picture], main img')].filter(isNear);
  const load = ({ dataset, src }) => Object.assign(new Image(), { src: dataset.picture ?? src }).decode();
  await Promise.all(near.map(load));
  await frames(); // what was loaded is drawn
  return near.every(({ style, complete }) => style.backgroundImage || complete);
}"""
"""Have the images come that are visible?"""
CONTENT = """() => {
  const ends = [...document.querySelectorAll('main *')].map((element) => element.getBoundingClientRect().bottom);
  return Math.min(innerHeight, Math.ceil(Math.max(...ends)) + 24);
}"""
"""Pixels from the top of the window to the end of what it shows."""
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
        """Write what is visible, once the images are there, for docs/studio.md."""
        self.tab.wait_for_function(LOADED)
        area = {
            "x": 0,
            "y": 0,
            "width": self.tab.viewport_size["width"],
            "height": self.tab.evaluate(CONTENT),
        }
        self.tab.screenshot(path=folder / f"{name}.png", clip=area)

    def focus(self, position: int) -> None:
        self.tab.evaluate(
            "at => document.querySelector('main > * .gallery:last-of-type').gallery.focus(at)", position
        )


def press(tab: Any, *keys: str) -> None:
    for key in keys:
        tab.keyboard.press(key)


def finished(tab: Any, title: str) -> None:
    tab.wait_for_selector(f".job h2:text-is('{title}: done')", timeout=JOB_MS)
