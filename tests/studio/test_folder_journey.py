"""From a folder to sorted folders without a terminal, in a real browser: wide and light, small and dark; audited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from holotype.results.edits import in_effect, read_log
from holotype.studio import app
from holotype.studio.jobs import JobContext, first_settings
from studio.conftest import serving
from studio.window import JOB_MS, SAVED, Window, finished, press
from tests.conftest import draw_squares

PUBLISHED_HEADS = True  # children read what is trained here
ANSWERS = 30
SCREENS = {
    "wide": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "small": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True},
}


def draw_photos(folder: Path) -> None:
    """Squares whose colours run into each other, so that there is something to ask."""
    dice = np.random.default_rng(0)
    for path, *_ in draw_squares(folder, each=80):
        pixels = np.asarray(Image.open(folder / path)).astype(int) + dice.normal(0, 75, 3).astype(int)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / path)


def audit(own: Window, *views: str) -> None:
    """Find no serious violation of accessibility, and nothing that is wider than the screen."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for view in views or ("",):
        if view:
            own.view(view)
        found = axe.run(own.tab).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, (view, [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious])
        width = own.tab.evaluate("() => document.documentElement.scrollWidth")
        assert width <= own.tab.viewport_size["width"], view


def answer(tab: Any, turn: int) -> None:
    """Answer the question that is shown by keys; a name is typed where one is asked for."""
    tab.evaluate("() => { document.querySelector('main > h1').dataset.old = 'yes'; }")
    asked = tab.inner_text("h1")
    press(tab, "n" if "the same as" in asked else "1" if "Is this" in asked and turn % 7 == 6 else "y")
    if tab.locator("dialog.ask").count():
        tab.keyboard.type(f"Kind {turn}")
        press(tab, "Enter")
    tab.wait_for_selector("main > h1:not([data-old])")


@pytest.mark.parametrize("screen", SCREENS)
def test_from_a_folder_to_sorted_folders(
    screen, tmp_path: Path, tiny_backbone_file: Path, window, monkeypatch
) -> None:
    flags = (f"--backbone={tiny_backbone_file}", "--steps=6", "--seeds=1", "--device=cpu")
    monkeypatch.setattr(app, "first_settings", lambda *asked: (*first_settings(*asked), *flags))
    draw_photos(tmp_path / "photos")
    run = tmp_path / "run"
    run.mkdir()
    own = window(**SCREENS[screen])
    with serving(JobContext(run, str(tmp_path / "photos"))) as server:
        tab = own.open(server.link)
        assert tab.inner_text("h1") == "320 images in photos"
        tab.wait_for_selector("#look .card", timeout=JOB_MS)
        audit(own)
        tab.fill("input[type=number]", "4")
        tab.click("text=Start >> nth=-1")
        tab.wait_for_selector("main.overview", timeout=JOB_MS)
        tab.wait_for_selector("body[data-ready]")
        audit(own, "overview", "category", "map", "relations", "doubtful", "settings", "number", "check")
        audit(own, "questions")
        for turn in range(ANSWERS):
            answer(tab, turn)
        tab.wait_for_selector(SAVED)
        assert len(in_effect(read_log(run))) >= ANSWERS
        own.view("rounds")
        learned = "text=/What your answers have moved|Place the other images anew/"
        tab.wait_for_selector(learned, timeout=JOB_MS)
        if tab.locator("text=Place the other images anew").count():
            tab.click("text=Place the other images anew")
        tab.wait_for_selector("text=What your answers have moved")
        audit(own)
        tab.click("button:text-is('Next round')")
        tab.wait_for_selector("#notices >> text=Round 2 is here", timeout=JOB_MS)
        tab.click("#notices >> text=Look at it")
        tab.wait_for_selector("text=What round 2 has changed")
        tab.click("text=Write folders")
        finished(tab, "Write folders")
        audit(own)
    folders = {folder.name for folder in (run / "studio" / "folders").iterdir()}
    assert {"red", "green"} < folders
    assert any(name.startswith("Kind") for name in folders)
