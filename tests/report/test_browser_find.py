"""Finding images in a real browser: by a part of the file name, and by likeness to another image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holotype.report import build_report
from holotype.results.discovery import RunFacts
from report.browser import Page
from report.javascript import run_javascript
from report.made import ODD, make_discovery

pytestmark = pytest.mark.xdist_group("browser")


def test_names_are_compared_as_people_compare_them():
    names = ["trip/IMG_0012.JPG", "trip\\b\\img_0013.jpg", "home/Ka\u0308fer.png", "<b>.png", "home/img.png"]
    asked = ["img_001", "TRIP/", "käfer", "K\u00c4FER", "<B>", "home/", "  ", "nothing"]
    assert run_javascript("findNames", [[names, words] for words in asked]) == [
        [0, 1], [0, 1], [2], [2], [3], [2, 4], [], [],
    ]  # fmt: skip


def find(tab, words: str) -> None:
    tab.locator("#find-field").fill(words)
    tab.wait_for_selector("main.find")


def test_a_part_of_a_name_finds_images_and_says_where_they_are(page):
    tab = page.open("overview")
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "find-field"
    tab.keyboard.type("PICTURE 0008")
    tab.wait_for_selector("main.find")
    assert tab.evaluate("document.activeElement.id") == "find-field"  # typing goes on
    assert tab.locator("h1").inner_text() == "10 images with “PICTURE 0008” in the name"
    captions = tab.locator(".tile .caption").all_inner_texts()
    assert all("new-04" in caption and "picture 0008" in caption for caption in captions)
    assert tab.locator(".lead a").inner_text() == "new-04"
    tab.keyboard.press("Enter")
    for key in ("Space", "ArrowRight", "Space", "r"):
        tab.keyboard.press(key)
    assert tab.locator("#edits-button").inner_text() == "2 edits"
    assert tab.locator(".tile .caption", has_text="in no category").count() == 2
    tab.evaluate("history.back()")
    tab.wait_for_selector("main.overview")
    assert tab.locator("#find-field").input_value() == ""


def test_hostile_names_are_found_and_run_nothing(page):
    tab = page.open()
    tab.on("dialog", lambda dialog: page.complaints.append(dialog.message))
    for name in (*ODD, "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "%00%zz#/../", "\\"):
        find(tab, name)
        assert f"“{name}”" in tab.locator("h1").inner_text()
        hits = tab.locator(".tile .caption .what")
        assert hits.all_inner_texts() == ([name] if name in ODD else [])
        assert tab.locator("main b, main script, main img").count() == 0
        if name in ODD:
            tab.locator(".tile").press("s")
            tab.wait_for_selector("main.alike")
            assert name in tab.locator("h1").inner_text()


def test_folders_below_that_of_the_images_count(browser, tmp_path):
    """All images lie in one folder of the collection: its name is a part of theirs."""
    found = make_discovery(tmp_path / "photos", 20)
    found.facts = RunFacts(root=str(tmp_path / "photos"))
    page = Page(browser, build_report(found, tmp_path / "run"))
    tab = page.open("find/" + "my%20pictures%2F")
    assert tab.locator("h1").inner_text().startswith("20 images")
    assert tab.locator("#find-field").input_value() == "my pictures/"
    find(tab, "photos")
    assert tab.locator("h1").inner_text().startswith("0 images")
    assert page.complaints == []
    page.context.close()


@pytest.fixture
def placed(browser, tmp_path):
    """A report with features: every category in a direction of its own, and one image that lies among another's."""
    found = make_discovery(tmp_path / "pictures", 90)
    ids = [category.id for category in found.categories]
    features = np.eye(len(ids), 16)[[ids.index(id) for id in found.images["category_id"]]]
    features += np.random.default_rng(0).normal(scale=0.05, size=features.shape)
    features[0] = np.eye(len(ids), 16)[ids.index("new-02")]
    features[1] = np.nan
    page = Page(browser, build_report(found, tmp_path / "run", features=features))
    yield page
    assert page.complaints == []
    page.context.close()


def test_more_like_this_shows_the_nearest_whatever_their_category(placed):
    tab = placed.open("find/" + ODD[0].split("'")[0])
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
    tab.keyboard.press("m")
    tab.locator(".choices").get_by_role("option", name="new-02").click()
    assert "10 are in the same" in tab.locator(".lead").inner_text()
    assert tab.locator("#edits-button").inner_text() == "1 edit"
    tab.reload()
    tab.wait_for_selector("main.alike .tile")


def test_an_image_without_features_has_no_like(placed):
    tab = placed.open("alike/" + "%3Cb%3Ebold%20%26%20more.png")
    assert "could not be read" in tab.locator(".lead").inner_text()
    tab = placed.open("alike/unheard")
    assert "no such image" in tab.locator(".lead").inner_text()


def test_a_report_without_lists_says_why(page):
    tab = page.open("category/new-01")
    tab.locator(".content > .gallery .tile").first.press("s")
    tab.wait_for_selector("main.alike")
    assert "features of this run were not kept" in tab.locator(".lead").inner_text()
    assert Path(page.report).is_file()
