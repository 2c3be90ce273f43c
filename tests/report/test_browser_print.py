"""The report on paper: pictures and names, a page for each category, no controls."""

from __future__ import annotations

import re

import pytest

from report.browser import Page
from report.made import KNOWN

pytestmark = pytest.mark.xdist_group("browser")


def pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def pictures(pdf: bytes) -> int:
    return len(re.findall(rb"/Subtype\s*/Image", pdf))


def test_every_category_is_printed_with_its_pictures_on_a_page_of_its_own(page):
    tab = page.open("map")  # no gallery, so that no thumbnail has been loaded yet
    pdf = tab.pdf()
    assert pages(pdf) == 1 + 9
    assert pictures(pdf) >= 2  # both sheets
    assert tab.locator("#print").count() == 0  # gone when it is done


def test_names_are_on_paper_and_controls_are_not(page):
    tab = page.open("category/new-01")
    tab.locator(".content > .gallery .tile").first.click()
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    for kind in ("button", "input", "select", "nav", "footer", "#selection", "#toast", "main"):
        assert not any(one.is_visible() for one in tab.locator(kind).all()), kind
    paper = tab.locator("#print")
    assert paper.locator("h2").all_inner_texts() == ["new-01"]  # the one that is shown
    assert paper.locator("figure").count() == 10
    box = paper.locator(".crop").first.bounding_box()
    assert min(box["width"], box["height"]) > 50
    tab.emulate_media(media="screen")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.locator("main").is_visible()


def test_hostile_names_are_text_on_paper_as_well(page):
    tab = page.open("overview")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    assert KNOWN[3] in tab.locator("#print h2").all_inner_texts()
    assert tab.locator("#print h2").count() == 9
    assert tab.locator("#print script, #print b").count() == 0
    breaks = tab.locator("#print .printed").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).breakBefore)"
    )
    assert set(breaks) == {"page"}


def test_the_pictures_are_the_right_ones(page):
    """A printed picture shows the same part of the same sheet as the one on the screen."""
    tab = page.open("category/new-02")
    part = """(all) => all.map((one) => [one.getAttribute("src") ?? one.dataset.sheet,
      ...["--x", "--y"].map((key) => Number(one.style.getPropertyValue(key)))])"""
    screen = tab.locator(".content > .gallery .tile .thumb").evaluate_all(part)
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    paper = tab.locator("#print .crop img").evaluate_all(part)
    assert paper == screen


def test_the_keys_wait_for_the_pictures(browser, report):
    page = Page(browser, report)
    tab = page.open("map")
    tab.evaluate("""() => { window.print = () => {
      const all = [...document.querySelectorAll("#print img")];
      document.body.dataset.loaded = all.length > 50 && all.every((one) => one.complete && one.naturalWidth > 0);
    } }""")
    tab.keyboard.press("Control+p")
    tab.wait_for_selector("body[data-loaded]")
    assert tab.locator("body").get_attribute("data-loaded") == "true"
    page.context.close()


def test_a_dark_screen_is_printed_on_white_paper(browser, report):
    page = Page(browser, report, color_scheme="dark")
    tab = page.open("overview")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("getComputedStyle(document.querySelector('#print h2')).color") == "rgb(0, 0, 0)"
    page.context.close()
