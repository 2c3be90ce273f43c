"""The report in a real browser: views, map, boxes, bursts, days and cameras, finding images, paper."""

import math
import re
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest

from holotype.data.boxes import Box, with_box
from report.browser import press
from report.conftest import directions
from report.made import KNOWN, ODD, make_discovery

VIEWS = ("overview", "category", "map", "relations", "doubtful", "settings")
TILES = ".content > .gallery .tile"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_view_renders_and_fits_and_names_run_nothing(open_page, reported, scheme, width):
    report = reported / "run" / "report.html"
    page = open_page(report, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page.tab.on("dialog", lambda dialog: page.complaints.append(dialog.message))
    for view in VIEWS:
        tab = page.open(view)
        assert tab.locator("#nav [aria-current]").count() == 1
        assert tab.locator("main h1").first.is_visible()
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        assert tab.evaluate("scrollY") == 0, view  # no element has the name of a view


def test_the_overview_of_thousands_of_images_and_originals_whatever_their_names(open_page, tmp_path):
    page = open_page(make_discovery(tmp_path, 2000, known=5, novel=4, files=60))
    tab = page.open()
    assert tab.get_by_text(KNOWN[3], exact=True).first.is_visible()
    assert tab.locator("h1").inner_text() == "2,000 images: 5 known classes and 4 new categories"
    assert "8 to 11 categories" in tab.locator("#count").inner_text()
    bars = tab.locator(".card.novel").first.locator(".bars li")
    assert tab.locator(".card.novel").count() == bars.count() == 4
    for name in ODD:
        page.open("find/" + quote(name, safe=""))
        tab.locator(".tile").first.dblclick()
        picture = tab.locator("dialog img.large")
        picture.evaluate("image => image.decode()")
        assert picture.evaluate("image => image.naturalWidth") == 96
        press(tab, "Escape", "Escape")  # the double click selected


def test_without_its_data_the_page_says_so(own_page):
    (own_page.report.parent / "report" / "data.js").unlink()
    own_page.tab.goto(own_page.report.as_uri())
    assert own_page.tab.locator("h1").inner_text() == "The data are missing"
    own_page.complaints.clear()


def under_the_mouse(tab) -> tuple[float, float]:
    """Move the mouse over the map until an image is shown; return where."""
    box = tab.locator("#map-canvas").bounding_box()
    for y in range(60, int(box["height"]) - 60, 14):
        for x in range(60, int(box["width"]) - 60, 60):
            tab.mouse.move(box["x"] + x, box["y"] + y)
            if tab.locator("#hover").is_visible():
                return box["x"] + x, box["y"] + y
    raise AssertionError("no image on the map")


def test_the_map_shows_the_image_under_the_mouse_and_answers_mouse_and_keyboard(page):
    tab = page.open("map")
    tab.wait_for_timeout(200)
    at = under_the_mouse(tab)
    assert "probability" in tab.locator("#hover").inner_text()
    image = tab.locator("#hover .thumb").evaluate("e => e.style.backgroundImage")
    assert image.startswith('url("report/thumbs/')
    tab.mouse.click(*at)
    assert "1 selected" in tab.locator("#selection").inner_text()
    tab.mouse.click(*at)
    assert tab.locator("#selection").is_hidden()
    tab.locator("#map-canvas").focus()
    press(tab, "ArrowRight", "ArrowRight", "ArrowDown", "+", "-", "0", "Space")
    assert "1 selected" in tab.locator("#selection").inner_text()


def test_boxes_are_framed_in_their_picture_and_named_by_edits(open_page, tmp_path):
    found, half = make_discovery(tmp_path / "a b#c", 60), Box(0.25, 0.5, 0.5, 0.25)
    found.images["path"] = [with_box(path, half) for path in found.images["path"]]
    for category in found.categories:
        category.exemplars = [with_box(path, half) for path in category.exemplars]
        category.borderline = []
    page = open_page(found)
    tab = page.open("category/Sneaker")
    assert "(box at 25, 50 %)" in tab.locator(".tile").first.get_attribute("title")
    tab.locator(".tile .zoomer").first.click(force=True)
    tab.locator(".framed img").evaluate("image => image.decode()")
    outer, inner = (tab.locator(one).bounding_box() for one in (".framed img", ".framed .box"))
    assert inner["x"] - outer["x"] == pytest.approx(outer["width"] / 4, abs=3)
    assert inner["y"] - outer["y"] == pytest.approx(outer["height"] / 2, abs=3)
    assert "25, 50, 50, 25 % (left, top, width, height)" in tab.locator("dialog").inner_text()
    tab = page.open("find/picture 00020")
    tab.locator(".tile").first.click()
    press(tab, "r")
    stored = "JSON.parse(localStorage.getItem(Object.keys(localStorage).find((k) => k.includes('edits'))))"
    images = [edit["image"] for edit in tab.evaluate(stored)]
    assert [image.partition("#xywh")[1:] for image in images] == [("#xywh", "=percent:25,50,50,25")]


def test_one_frame_of_a_burst_asks_for_all_and_what_is_done_to_one_is_offered_for_the_others(
    open_page, tmp_path
):
    """90 images of which each five in a row are a burst, the last ten alone."""
    found = make_discovery(tmp_path / "pictures", 90)
    found.images["group"] = [f"burst {row // 5}" if row < 80 else "" for row in range(90)]
    found.images["doubtful"] = [row % 5 in (1, 3) for row in range(90)]
    page = open_page(found)
    tab = page.open("category/Sneaker")
    assert "10 images in 2 bursts" in tab.locator(".head").inner_text()
    tab = page.open("doubtful")
    tiles = tab.locator("main .gallery").first.locator(".tile")
    assert tab.locator("h1").inner_text() == "36 doubtful images"
    assert tiles.count() == int(tab.locator("#nav [href='#doubtful'] .n").inner_text()) == 20
    assert "20 questions in all." in tab.locator(".lead").inner_text()
    tab.locator('.tile[title*="of a burst"]').first.click()
    tab.get_by_role("button", name="+ 4 frames of the same burst", exact=True).click()
    assert "5 selected" in tab.locator("#selection").inner_text()
    assert tab.locator("#selection button").first.inner_text() == "Move to…"
    press(tab, "r")
    assert tab.locator("#edits-button").inner_text() == "5 edits"
    assert tiles.count() == 19


def test_galleries_by_day_and_camera(open_page, tmp_path):
    """90 images: one a day from the first of May on, of three cameras in turn; the last ten say nothing."""
    found = make_discovery(tmp_path / "pictures", 90)
    days = [str(day)[:10] for day in pd.date_range("2024-05-01", periods=80)]
    found.images["taken"] = [*(f"{day}T06:30:00+02:00" for day in reversed(days)), *[""] * 10]
    found.images["camera"] = [*(f"trap <{row % 3}>" for row in range(80)), *[""] * 10]
    found.images["latitude"], found.images["longitude"] = 52.1, np.where(np.arange(90) < 5, -4.0, math.nan)
    page = open_page(found)
    tab = page.open("category/Sneaker")

    def titles() -> list[str]:
        return [tile.get_attribute("title").rpartition("taken ")[2] for tile in tab.locator(TILES).all()]

    def choose(label: str, day: str) -> None:
        tab.get_by_label(label, exact=True).fill(day)
        tab.get_by_label(label, exact=True).dispatch_event("change")

    n, camera = len(titles()), tab.locator("label", has_text="Camera any").locator("select")
    tab.get_by_label("Sort").select_option("by time")
    times = titles()
    assert times == sorted(times)
    assert len(times) == n
    assert times[0].endswith("06:30:00+02:00")
    tab.locator(TILES).first.click()
    choose("From", times[2][:10])
    assert titles() == times[2:]
    assert "no longer selected" in tab.locator("#toast").inner_text()
    camera.select_option("trap <1>")
    assert 0 < len(titles()) < n - 2
    tab.get_by_role("button", name="All days and cameras").click()
    assert len(titles()) == n
    page.open("find/picture")  # doubtful images, and those that were found, are sieved too
    every = tab.locator("main .tile").count()
    camera.select_option("trap <0>")
    assert 0 < tab.locator("main .tile").count() < every


def find(tab, words: str) -> None:
    tab.locator("#find-field").fill(words)
    tab.wait_for_selector("main.find")


def test_hostile_names_are_found_and_run_nothing(page):
    tab = page.open()
    tab.on("dialog", lambda dialog: page.complaints.append(dialog.message))
    for name in (*ODD, "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "%00%zz#/../", "\\"):
        find(tab, name)
        assert f"“{name}”" in tab.locator("h1").inner_text()
        hits = tab.locator(".tile .caption .what")
        assert hits.all_inner_texts() == ([name] if name in ODD else [])
        assert tab.locator("main b, main script, main img").count() == 0


def test_more_like_this_shows_the_nearest_whatever_their_category(open_page, tmp_path):
    """The first image lies among another category's, and the second could not be read."""
    found = make_discovery(tmp_path / "pictures", 90)
    features = directions(found)
    features[0] = np.eye(9, 16)[[category.id for category in found.categories].index("new-02")]
    features[1] = np.nan
    page = open_page(found, features)
    tab = page.open("find/" + ODD[0].split("'")[0])
    tab.locator(".tile").dblclick()
    tab.get_by_role("link", name="More like this").click()
    tab.wait_for_selector("main.alike")
    assert tab.locator("dialog").count() == 0
    assert "0 are in the same" in tab.locator(".lead").inner_text()
    assert "10 in new-02" in tab.locator(".lead").inner_text()
    near = tab.get_by_role("listbox", name="Images like").locator(".caption .where")
    assert near.all_inner_texts()[:10] == ["new-02"] * 10
    assert near.count() == 12
    tab.get_by_role("listbox", name="This image").locator(".tile").click()
    press(tab, "m")
    tab.locator(".choices").get_by_role("option", name="new-02").click()
    assert "10 are in the same" in tab.locator(".lead").inner_text()
    assert tab.locator("#edits-button").inner_text() == "1 edit"
    page.open("alike/" + "%3Cb%3Ebold%20%26%20more.png")
    assert "could not be read" in tab.locator(".lead").inner_text()


def test_every_category_is_printed_with_its_pictures_on_a_page_of_its_own(page):
    tab = page.open("map")  # no gallery, so that no thumbnail has been loaded yet
    tab.evaluate("""() => { window.print = () => {
      const all = [...document.querySelectorAll("#print img")];
      document.body.dataset.loaded = all.length > 50 && all.every((one) => one.complete && one.naturalWidth > 0);
    } }""")
    press(tab, "Control+p")  # the keys wait for the pictures; not every browser's own command does
    tab.wait_for_selector("body[data-loaded]")
    assert tab.locator("body").get_attribute("data-loaded") == "true"
    pdf = tab.pdf()
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1 + 9
    assert len(re.findall(rb"/Subtype\s*/Image", pdf)) >= 2  # both sheets
    assert tab.locator("#print").count() == 0  # gone when it is done


def test_names_and_the_right_pictures_are_on_white_paper_and_controls_are_not(open_page, reported):
    page = open_page(reported / "run" / "report.html", color_scheme="dark")
    tab = page.open("category/new-01")
    part = """(all) => all.map((one) => [one.getAttribute("src") ?? one.dataset.sheet,
      ...["--x", "--y"].map((key) => Number(one.style.getPropertyValue(key)))])"""
    screen, paper = tab.locator(f"{TILES} .thumb").evaluate_all(part), tab.locator("#print")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    for kind in ("button", "input", "select", "nav", "footer", "#selection", "#toast", "main"):
        assert not any(one.is_visible() for one in tab.locator(kind).all()), kind
    assert paper.locator("h2").all_inner_texts() == ["new-01"]  # the one that is shown
    assert paper.locator(".crop img").evaluate_all(part) == screen
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.emulate_media(media="screen")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert tab.locator("main").is_visible()
    page.open("overview")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert KNOWN[3] in paper.locator("h2").all_inner_texts()  # hostile names are text
    assert paper.locator("script, b").count() == 0
