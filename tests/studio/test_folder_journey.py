"""From a folder to sorted folders without a terminal, in a real browser: wide and light, small and dark; audited.

`HOLOTYPE_PICTURES=docs pytest tests/studio/test_folder_journey.py -k sorted` goes the same way with the embedded sample
and its backbone, and leaves the pictures of docs/studio.md.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from holotype.data.datasets.registry import load_benchmark
from holotype.data.decode import encode_image, read_image
from holotype.data.gcd_split import gcd_split
from holotype.results.edits import in_effect, read_log
from holotype.studio import app
from holotype.studio.jobs import JobContext, first_settings
from studio.conftest import serving
from studio.window import JOB_MS, SAVED, Window, finished, press
from tests.conftest import draw_squares

PUBLISHED_HEADS = True  # children read what is trained here
ANSWERS = 30
PICTURES = os.environ.get("HOLOTYPE_PICTURES", "")
NAMES = {
    ("wide", "start"): "studio-start",
    ("small", "start"): "studio-phone",
    ("wide", "question"): "studio",
}
"""Of the pictures."""
QUIET = """() => !document.querySelector("#nav [href='#rounds'] .n") && !document.querySelector("#toast.on")
  && !document.getAnimations().length"""
"""Does no job run, and nothing fade that tells of one?"""
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


def draw_sample(folder: Path) -> None:
    """The embedded sample as folders of its five known classes, and the images without a label."""
    table = gcd_split(load_benchmark("fashion-sample"))
    for number, (path, label) in enumerate(zip(table.path, table.label, strict=True)):
        file = folder / (str(label).replace("/", " ") or "unlabelled") / f"{number:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode_image(read_image(path)[0], "PNG"))


VIEWS = (
    *("overview", "category", "map", "relations", "doubtful", "settings"),
    *("number", "check", "questions", "picture", "rounds"),
)


def check_width(own: Window, *views: str) -> None:
    """Find nothing that is wider than the screen."""
    for view in views:
        own.view(view)
        width = own.tab.evaluate("() => document.documentElement.scrollWidth")
        assert width <= own.tab.viewport_size["width"], view


def serious_violations(own: Window) -> list[tuple[str, list[str]]]:
    """Audit the page; return what is serious, with the elements."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="make test-integrations has axe"
    )
    found = axe.Axe().run(own.tab).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in serious]


@pytest.mark.parametrize("screen", SCREENS)
def test_an_audit_finds_no_serious_violation(screen, discovery: Path, squares_folder, serve, window) -> None:
    (discovery.parent / "new").mkdir()
    first, own = window(**SCREENS[screen]), window(**SCREENS[screen])
    first.open(serve(discovery.parent / "new", context={"images": str(squares_folder)}).link)
    first.tab.wait_for_selector("#look .card", timeout=JOB_MS)
    own.open(serve(discovery).link)
    for theme in ("light", "dark"):
        for one in (first, own):
            one.tab.emulate_media(color_scheme=theme)
        assert serious_violations(first) == [], theme
        for view in VIEWS:
            own.view(view)
            assert serious_violations(own) == [], (theme, view)
        for opening in ("?", "n"):  # the keys, and a name for the image that has the focus
            own.view("category")
            own.tab.evaluate("() => [...document.querySelectorAll('main .gallery')].at(-1).gallery.focus(0)")
            press(own.tab, opening)
            own.tab.wait_for_selector("dialog")
            assert serious_violations(own) == [], (theme, opening)
            press(own.tab, "Escape")


def answer(tab: Any, turn: int) -> None:
    """Answer the question that is shown by keys; a name is typed where one is asked for."""
    tab.evaluate("() => { document.querySelector('main > h1').dataset.old = 'yes'; }")
    asked = tab.inner_text("h1")
    press(
        tab,
        "n"
        if re.search("the same as|be part of|something else", asked)
        else "1"
        if "Is this" in asked and turn % 7 == 6
        else "y",
    )
    if tab.locator("dialog.ask").count():
        tab.keyboard.type(f"Kind {turn}")
        press(tab, "Enter")
    tab.wait_for_selector("main > h1:not([data-old])")


@pytest.mark.parametrize("screen", SCREENS)
def test_from_a_folder_to_sorted_folders(
    screen, tmp_path: Path, tiny_backbone_file: Path, window, monkeypatch
) -> None:
    photos, run, images, k = tmp_path / "photos", tmp_path / "run", 320, 4
    flags = [f"--backbone={tiny_backbone_file}", "--steps=6", "--seeds=1", "--device=cpu"]
    if PICTURES:
        draw_sample(photos)
        flags[:2], images, k = ["--backbone=embedded", "--steps=150"], 1000, 10
    else:
        draw_photos(photos)
    monkeypatch.setattr(app, "first_settings", lambda *asked: (*first_settings(*asked), *flags))
    run.mkdir()
    own = window(**SCREENS[screen])

    def picture(view: str) -> None:
        if name := NAMES.get((screen, view)):
            if PICTURES:
                tab.wait_for_function(QUIET, timeout=JOB_MS)
            own.picture(Path(PICTURES or tmp_path), name)

    with serving(JobContext(run, str(photos))) as server:
        tab = own.open(server.link)
        assert tab.inner_text("h1") == f"{images:,} images in photos"
        tab.wait_for_selector("#look .card", timeout=JOB_MS)
        check_width(own, "start")
        tab.fill("input[type=number]", str(k))
        tab.wait_for_selector(".findings", timeout=JOB_MS)
        picture("start")
        tab.click("text=Start >> nth=-1")
        tab.wait_for_selector("main.overview", timeout=JOB_MS)
        tab.wait_for_selector("body[data-ready]")
        check_width(own, *VIEWS)
        own.view("questions")
        picture("question")
        for turn in range(ANSWERS):
            answer(tab, turn)
        tab.wait_for_selector(SAVED)
        assert len(in_effect(read_log(run))) >= ANSWERS // 2  # some answers leave no edit
        own.view("rounds")
        learned = "text=/What your answers have moved|Place the other images anew/"
        tab.wait_for_selector(learned, timeout=JOB_MS)
        if tab.locator("text=Place the other images anew").count():
            tab.click("text=Place the other images anew")
        tab.wait_for_selector("text=What your answers have moved")
        tab.click("button:text-is('Next round')")
        tab.wait_for_selector("#notices >> text=Round 2 is here", timeout=JOB_MS)
        tab.click("#notices >> text=Look at it")
        tab.wait_for_selector("text=What round 2 has changed")
        tab.wait_for_selector("body[data-ready]")
        tab.click("text=Write folders")
        finished(tab, "Write folders")
        own.context.close()  # before the server: it would complain
    folders = {folder.name for folder in (run / "studio" / "folders").iterdir()}
    assert {place.name for place in photos.iterdir() if place.name != "unlabelled"} < folders
    assert any(name.startswith("Kind") for name in folders)
