"""Boxes in a real browser: the whole picture is shown with a frame around the part that the image is."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.data.boxes import Box, with_box
from holotype.report import build_report
from report.browser import Page
from report.made import make_discovery

pytestmark = pytest.mark.xdist_group("browser")
HALF = Box(0.25, 0.5, 0.5, 0.25)


@pytest.fixture
def page(browser, tmp_path: Path):
    found = make_discovery(tmp_path / "a b#c", 60)
    found.images["path"] = [with_box(path, HALF) for path in found.images["path"]]
    for category in found.categories:
        category.exemplars = [with_box(path, HALF) for path in category.exemplars]
        category.borderline = []
    found.save(tmp_path / "run")
    opened = Page(browser, build_report(found, tmp_path / "run"))
    yield opened
    opened.context.close()
    assert opened.complaints == []


def test_a_frame_shows_where_the_image_is(page) -> None:
    tab = page.open("category/Sneaker")
    assert "(box at 25, 50 %)" in tab.locator(".tile").first.get_attribute("title")
    tab.locator(".tile .zoomer").first.click(force=True)
    tab.wait_for_function("document.querySelector('.framed img')?.naturalWidth > 0")
    outer, inner = (tab.locator(one).bounding_box() for one in (".framed img", ".framed .box"))
    assert inner["x"] - outer["x"] == pytest.approx(outer["width"] / 4, abs=3)
    assert inner["y"] - outer["y"] == pytest.approx(outer["height"] / 2, abs=3)
    assert inner["width"] == pytest.approx(outer["width"] / 2, abs=8)
    words = tab.locator("dialog").inner_text()
    assert "25, 50, 50, 25 % (left, top, width, height)" in words
    assert "#xywh" not in words
    assert "#xywh" not in tab.locator(".framed img").get_attribute("src")


def test_edits_name_the_box(page) -> None:
    tab = page.open("find/picture 00020")
    tab.locator(".tile").first.click()
    tab.keyboard.press("r")
    edits = tab.evaluate(
        "JSON.parse(localStorage.getItem(Object.keys(localStorage).find((k) => k.includes('edits'))))"
    )
    assert [edit["image"].partition("#xywh")[1:] for edit in edits] == [("#xywh", "=percent:25,50,50,25")]
    assert "#xywh" not in tab.locator("main").inner_text()
