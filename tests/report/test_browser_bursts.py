"""Bursts in a real browser: one frame asks for all, and what is done to one is offered for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.report import build_report
from report.browser import Page
from report.made import make_discovery

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def page(browser, tmp_path: Path):
    """90 images of which each five in a row are a burst, the last ten alone."""
    found = make_discovery(tmp_path / "pictures", 90)
    found.images["group"] = [f"burst {row // 5}" if row < 80 else "" for row in range(90)]
    found.images["doubtful"] = [row % 5 in (1, 3) for row in range(90)]
    found.save(tmp_path / "run")
    opened = Page(browser, build_report(found, tmp_path / "run"))
    yield opened
    opened.context.close()
    assert opened.complaints == []


def test_counts_name_images_and_bursts(page) -> None:
    tab = page.open("category/Sneaker")
    assert "10 images in 2 bursts" in tab.locator(".head").inner_text()


def test_a_burst_is_asked_about_once(page) -> None:
    tab = page.open("doubtful")
    assert tab.locator("h1").inner_text() == "36 doubtful images"
    asked = tab.locator("main .gallery").first.locator(".tile").count()
    assert asked == int(tab.locator("#nav [href='#doubtful'] .n").inner_text()) == 20
    assert (
        "Of a burst one frame is shown, the least sure: 20 questions in all."
        in tab.locator(".lead").inner_text()
    )


def test_what_is_done_to_a_frame_is_offered_for_its_burst(page) -> None:
    tab = page.open("doubtful")
    tab.locator('.tile[title*="of a burst"]').first.click()
    tab.get_by_role("button", name="+ 4 frames of the same burst", exact=True).click()
    assert "5 selected" in tab.locator("#selection").inner_text()
    assert tab.locator("#selection button").first.inner_text() == "Move to…"
    tab.keyboard.press("r")
    assert tab.locator("#edits-button").inner_text() == "5 edits"
    assert tab.locator("main .gallery").first.locator(".tile").count() == 19


def test_a_report_without_bursts_offers_none(browser, report: Path) -> None:
    opened = Page(browser, report)
    tab = opened.open("category/Sneaker")
    assert "burst" not in tab.locator("main").inner_text()
    tab.locator(".content > .gallery .tile").first.click()
    assert tab.locator("#selection button").first.inner_text() == "Move to…"
    opened.context.close()
    assert opened.complaints == []
