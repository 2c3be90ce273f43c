"""The report in a real browser: it renders, and answers mouse and keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from holotype.report import build_report
from holotype.results.discovery import Discovery
from report.browser import Page
from report.made import KNOWN, ODD, make_discovery

pytestmark = pytest.mark.xdist_group("browser")
VIEWS = ("overview", "category", "map", "relations", "doubtful", "settings")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_renders_and_fits(browser, report, scheme, width):
    page = Page(browser, report, viewport={"width": width, "height": 844}, color_scheme=scheme)
    for view in VIEWS:
        tab = page.open(view)
        assert tab.locator("#nav [aria-current]").count() == 1
        assert tab.locator("main h1").first.is_visible()
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert tab.evaluate("scrollY") == 0, (
            view
        )  # no element has the name of a view, or it would be scrolled to
    assert page.complaints == []
    page.context.close()


def test_names_are_shown_as_they_are_and_run_nothing(page):
    tab = page.open()
    assert tab.get_by_text(KNOWN[3], exact=True).first.is_visible()
    tab.on("dialog", lambda dialog: page.complaints.append(dialog.message))
    for view in VIEWS:
        page.open(view)


def test_the_overview_says_what_was_found(page):
    tab = page.open()
    assert tab.locator("h1").inner_text() == "90 images: 5 known classes and 4 new categories"
    assert tab.locator(".card.novel").count() == 4
    assert "8 to 11 categories" in tab.locator("#count").inner_text()
    assert "9 in use" in tab.locator("#count").inner_text()
    card = tab.locator(".card.novel").first
    assert "closest to" in card.inner_text()
    assert card.locator(".bars li").count() == 4


def test_originals_open_whatever_their_names(page):
    tab = page.open("category/" + "Sneaker")
    for name in ODD:
        tab.locator(f'.content > .gallery .tile[title^="{name.split(chr(34))[0]}"]').first.dblclick()
        picture = tab.locator("dialog img.large")
        picture.evaluate("image => image.decode()")
        assert picture.evaluate("image => image.naturalWidth") == 96
        tab.keyboard.press("Escape")
        tab.keyboard.press("Escape")  # the double click selected


def places(tab) -> list:
    """Where some images lie on the screen: read off the canvas by asking what is under the mouse."""
    box = tab.locator("#map-canvas").bounding_box()
    found = []
    for y in range(60, int(box["height"]) - 60, 14):
        for x in range(60, int(box["width"]) - 60, 60):
            tab.mouse.move(box["x"] + x, box["y"] + y)
            if tab.locator("#hover").is_visible():
                return [box["x"] + x, box["y"] + y]
    return found


def test_the_map_shows_the_image_under_the_mouse_and_a_click_selects_it(page):
    tab = page.open("map")
    tab.wait_for_timeout(200)
    at = places(tab)
    assert at
    assert "probability" in tab.locator("#hover").inner_text()
    assert (
        tab.locator("#hover .thumb")
        .evaluate("e => e.style.backgroundImage")
        .startswith('url("report/thumbs/')
    )
    tab.mouse.click(*at)
    assert "1 selected" in tab.locator("#selection").inner_text()
    tab.mouse.click(*at)
    assert tab.locator("#selection").is_hidden()


def test_the_map_answers_the_keyboard(page):
    tab = page.open("map")
    tab.locator("#map-canvas").focus()
    tab.wait_for_timeout(200)
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "+", "-", "0", "Space"):
        tab.keyboard.press(key)
    assert "1 selected" in tab.locator("#selection").inner_text()


def test_a_gallery_answers_the_keyboard(page):
    tab = page.open("category/new-01")
    tiles = tab.locator(".content > .gallery .tile")
    typical = Discovery.load(page.report.parent).category("new-01").exemplars[0]
    assert tiles.first.get_attribute("title").startswith(Path(typical).name)
    tiles.first.focus()
    for key in ("Space", "ArrowRight", "ArrowRight", "Space", "Enter"):
        tab.keyboard.press(key)
    assert tab.locator("dialog").is_visible()
    tab.keyboard.press("ArrowRight")
    assert "4 of 10" in tab.locator("dialog").inner_text()
    tab.keyboard.press("Escape")
    assert tab.locator('.content > .gallery .tile[aria-selected="true"]').count() == 2
    tab.keyboard.press("Escape")
    assert tab.locator("#selection").is_hidden()
    for key in ("Space", "r", "ArrowLeft", "Space"):  # an edit does not lose the place
        tab.keyboard.press(key)
        tab.wait_for_timeout(50)
    assert "1 selected" in tab.locator("#selection").inner_text()
    assert tiles.count() == 9
    tab.keyboard.press("Escape")
    for number, view in enumerate(VIEWS, start=1):
        tab.keyboard.press(str(number))
        tab.wait_for_selector(f"main.{view}")


def test_five_thousand_images_open(browser, tmp_path):
    found = make_discovery(tmp_path, 5000, known=20, novel=20, files=60)
    page = Page(browser, build_report(found, tmp_path / "run"))
    tab = page.open()
    for view in VIEWS[1:]:
        tab.evaluate(f"location.hash = '#{view}'")
        tab.wait_for_selector(f"main.{view}")
    assert page.complaints == []
    page.context.close()


def test_without_its_data_the_page_says_so(browser, report):
    (report.parent / "report" / "data.js").unlink()
    page = Page(browser, report)
    page.tab.goto(report.as_uri())
    assert page.tab.locator("h1").inner_text() == "The data are missing"
    page.context.close()
