"""Galleries by day and camera: what the page is told, and what it does with it in a real browser."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holotype.report import build_report
from holotype.report.page_data import time_and_place
from report.browser import Page
from report.made import make_discovery

browser_only = pytest.mark.xdist_group("browser")


def test_nothing_is_said_of_files_that_say_nothing() -> None:
    assert time_and_place(pd.DataFrame({"path": ["a"]})) == {}


def test_what_is_known_and_what_is_not() -> None:
    frame = pd.DataFrame(
        {
            "taken": ["2024-05-31T08:25:38", ""],
            "camera": ["", "trap 2"],
            "latitude": [52.1, math.nan],
            "longitude": [-4.0, 3.0],
        }
    )
    assert time_and_place(frame) == {
        "taken": ["2024-05-31T08:25:38", ""],
        "cameras": ["trap 2"],
        "camera": [-1, 0],
        "place": [[52.1, -4.0], None],
    }


@pytest.fixture
def page(browser, tmp_path: Path):
    """90 images: one a day from the first of May on, of three cameras in turn; the last ten say nothing."""
    found = make_discovery(tmp_path / "pictures", 90)
    days = [str(day)[:10] for day in pd.date_range("2024-05-01", periods=80)]
    found.images["taken"] = [*(f"{day}T06:30:00+02:00" for day in reversed(days)), *[""] * 10]
    found.images["camera"] = [*(f"trap <{row % 3}>" for row in range(80)), *[""] * 10]
    found.images["latitude"], found.images["longitude"] = 52.1, np.where(np.arange(90) < 5, -4.0, math.nan)
    found.save(tmp_path / "run")
    opened = Page(browser, build_report(found, tmp_path / "run"))
    yield opened
    opened.context.close()
    assert opened.complaints == []


def titles(tab) -> list[str]:
    return [tile.get_attribute("title") for tile in tab.locator(".content > .gallery .tile").all()]


@browser_only
def test_galleries_by_day_and_camera(page) -> None:
    tab = page.open("category/Sneaker")
    every = titles(tab)
    tab.get_by_label("Sort").select_option("by time")
    times = [title.rpartition("taken ")[2] for title in titles(tab)]
    assert times == sorted(times)
    assert len(times) == len(every)
    assert times[0].endswith("06:30:00+02:00")
    tab.locator(".content > .gallery .tile").first.click()
    tab.get_by_label("From").fill(times[2][:10])
    tab.get_by_label("From").dispatch_event("change")
    assert [title.rpartition("taken ")[2] for title in titles(tab)] == times[2:]
    assert "no longer selected" in tab.locator("#toast").inner_text()
    tab.get_by_label("to", exact=True).fill(times[-2][:10])
    tab.get_by_label("to", exact=True).dispatch_event("change")
    assert len(titles(tab)) == len(times) - 3
    tab.locator("label", has_text="Camera any").locator("select").select_option("trap <1>")
    some = titles(tab)
    assert 0 < len(some) < len(times) - 3
    tab.locator(".content > .gallery .tile .zoomer").first.click(force=True)
    words = tab.locator("dialog").inner_text()
    assert "trap <1>" in words
    assert "06:30:00+02:00" in words
    tab.keyboard.press("Escape")
    tab.get_by_role("button", name="All days and cameras").click()
    assert len(titles(tab)) == len(every)


@browser_only
def test_doubtful_and_found_images_are_sieved_too(page) -> None:
    tab = page.open("find/picture")
    every = tab.locator("main .tile").count()
    tab.locator("label", has_text="Camera any").locator("select").select_option("trap <0>")
    some = tab.locator("main .tile").count()
    assert 0 < some < every
    tab.evaluate("location.hash = '#doubtful'")
    tab.wait_for_selector("main.doubtful")
    assert tab.locator("label", has_text="Camera any").locator("select").input_value() == "0"
    tab.get_by_label("From").fill("2030-01-01")
    tab.get_by_label("From").dispatch_event("change")
    assert tab.locator("main .gallery").first.locator(".tile").count() == 0


@browser_only
def test_a_report_without_heads_is_as_it_was(browser, report: Path) -> None:
    opened = Page(browser, report)
    tab = opened.open("category/Sneaker")
    assert tab.locator("input[type=date]").count() == 0
    assert tab.get_by_label("Sort").locator("option").all_inner_texts() == [
        "most typical first", "least typical first", "least probable first", "by file name",
    ]  # fmt: skip
    opened.context.close()
    assert opened.complaints == []
