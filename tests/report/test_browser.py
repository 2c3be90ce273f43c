"""The report in a real browser: it renders, answers mouse and keyboard, and edits go round trip."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holotype.categories.edits import read_edits
from holotype.categories.found import Discovery
from holotype.cli.report import command
from holotype.report import build_report
from report.browser import Page, browsing, chromium
from report.made import KNOWN, ODD, make_discovery

pytestmark = pytest.mark.xdist_group("browser")
VIEWS = ("overview", "category", "map", "relations", "doubtful", "settings")


@pytest.fixture(scope="module")
def browser():
    chromium()
    with browsing() as opened:
        yield opened


@pytest.fixture
def report(tmp_path) -> Path:
    found = make_discovery(tmp_path / "a b#c", 90)
    found.save(tmp_path / "run")
    return build_report(found, tmp_path / "run")


@pytest.fixture
def page(browser, report):
    opened = Page(browser, report)
    yield opened
    opened.context.close()
    assert opened.complaints == []


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


def answer(tab, text: str) -> None:
    tab.locator("dialog input").fill(text)
    tab.keyboard.press("Enter")


def test_edits_go_round_trip(page, tmp_path, capsys):
    """Rename, merge, move, split off, confirm, reject; a reload; export; holotype report; the page again."""
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Rename").click()
    answer(tab, '=Hawk, "the <i>first</i>"')
    tab.locator(".content > .gallery .tile").nth(0).click()
    tab.keyboard.press("c")
    tab.locator(".content > .gallery .tile").nth(1).click()
    tab.keyboard.press("n")
    answer(tab, "Käfer, neu")
    tab.locator(".content > .gallery .tile").nth(1).click()
    tab.keyboard.press("r")
    tab.locator(".content > .gallery .tile").nth(1).click()
    tab.keyboard.press("m")
    tab.locator(".choices").get_by_role("button", name="Sandal").click()
    page.open("category/new-02")
    tab.get_by_role("button", name="Merge").click()
    tab.locator(".choices").get_by_role("button", name="new-03").click()
    tab.reload()  # edits are kept by the browser
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator("#edits-button").inner_text() == "6 edits"
    tab.click("#edits-button")
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Export").click()
    download.value.save_as(tmp_path / "edits.csv")
    assert download.value.suggested_filename == "edits.csv"
    edits = read_edits(tmp_path / "edits.csv")
    assert [e.action for e in edits] == ["rename", "confirm", "move", "reject", "move", "merge"]
    shown = counts(page)
    assert command([str(page.report.parent), "--edits", str(tmp_path / "edits.csv")]) == 0
    assert "6 edits applied." in capsys.readouterr().out
    after = Discovery.load(page.report.parent)
    assert {c.name: c.n for c in after.categories} == shown
    assert after.category("new-01").name == '=Hawk, "the <i>first</i>"'
    assert "new-02" not in shown
    page.open()
    tab.reload()  # the new data
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator("#edits-button").inner_text() == "No edits"  # they are part of the run now
    assert counts(page) == shown


def counts(page) -> dict[str, int]:
    """Name and size of every category as the page tells them."""
    tab = page.open("category")
    rows = tab.locator(".list .links a").all()
    return {row.locator(".who").inner_text(): int(row.locator(".n").inner_text()) for row in rows}


def test_import_takes_each_edit_once_and_none_of_another_run(page, tmp_path):
    tab = page.open("category/new-01")
    own, foreign = "run-made-1,t1,rename,,new-01,'=Hawk", "other,t1,rename,,new-01,Owl"
    lines = ["run_id,time,action,image,category,value", own, foreign]
    (tmp_path / "edits.csv").write_text("\n".join(lines), encoding="utf-8")
    for said in ("1 edit imported, 0 were here already; 1 belong", "0 edits imported, 1 were here already"):
        tab.click("#edits-button")
        tab.locator('dialog input[type="file"]').set_input_files(tmp_path / "edits.csv")
        tab.get_by_text(said).wait_for()
        tab.locator("dialog .close").click()
    assert tab.locator(".head h1").inner_text() == "=Hawk"
    tab.keyboard.press("u")
    assert tab.locator(".head h1").inner_text() == "new-01"


def bring(tab, file: Path, content: bytes, said: str) -> None:
    """Import a file and wait for what the page says of it."""
    file.write_bytes(content)
    tab.click("#edits-button")
    tab.locator('dialog input[type="file"]').set_input_files(file)
    tab.get_by_text(said).wait_for()
    tab.locator("dialog .close").click()


def test_a_file_that_holotype_would_refuse_is_not_imported(page, tmp_path):
    tab = page.open("category/new-01")
    head, line = "run_id,time,action,image,category,value", "run-made-1,t1,rename,,new-01,Hawk"
    for content, said in (
        (f"{head},format\n{line},2\n".encode(), "This file is of format 2, and this page reads format 1."),
        (f"{head}\n{line.replace('rename', 'delete')}\n".encode(), "There is no action delete"),
        (f"{head}\n{line}\n".encode("utf-16"), "This file is not UTF-8 text"),
        (b"a,b\n1,2\n", "it has no column run_id"),
    ):
        bring(tab, tmp_path / "edits.csv", content, said)
        assert tab.locator("#edits-button").inner_text() == "No edits"
    bring(tab, tmp_path / "edits.csv", f"{head},format\n{line},1\n".encode(), "1 edit imported")


def test_what_the_run_has_dealt_with_leaves_the_browser(page, tmp_path, capsys):
    """Refused edits, too: the run will not take them again, so the page must not show them as done."""
    lines = ["run_id,time,action,image,category,value", "run-made-1,t1,rename,,new-01,Sandal"]
    lines += ["run-made-1,t2,rename,,Sandal,Sandals"]
    tab = page.open("category/new-01")
    bring(tab, tmp_path / "edits.csv", "\n".join(lines).encode(), "2 edits imported")
    tab.click("#edits-button")
    assert "Another category is called Sandal" in tab.locator("dialog .log").inner_text()
    shown = counts(page)
    assert command([str(page.report.parent), "--edits", str(tmp_path / "edits.csv")]) == 0
    assert "another category is called so" in capsys.readouterr().out
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator("#edits-button").inner_text() == "No edits"
    assert counts(page) == shown
    assert {"new-01", "Sandals"} < set(shown)


def test_the_name_of_a_category_that_lost_its_images_is_free(page):
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Select all").click()
    tab.keyboard.press("m")
    tab.locator(".choices").get_by_role("button", name="new-02").click()
    page.open("category/new-02")
    tab.get_by_role("button", name="Rename").click()
    answer(tab, "new-01")
    tab.get_by_text("new-02 is now called new-01").wait_for()
    assert counts(page)["new-01"] == 20
    assert "new-02" not in counts(page)


def test_a_name_that_is_taken_is_refused(page):
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Rename").click()
    answer(tab, "Sandal")
    tab.get_by_text("Another category is called Sandal").wait_for()
    assert tab.locator("#edits-button").inner_text() == "No edits"


def test_five_thousand_images_open_in_three_seconds(browser, tmp_path):
    found = make_discovery(tmp_path, 5000, known=20, novel=20, files=60)
    page = Page(browser, build_report(found, tmp_path / "run"))
    start = time.perf_counter()
    tab = page.open()
    assert time.perf_counter() - start < 3
    for view in VIEWS[1:]:
        start = time.perf_counter()
        tab.evaluate(f"location.hash = '#{view}'")
        tab.wait_for_selector(f"main.{view}")
        assert time.perf_counter() - start < 3, view
    assert page.complaints == []
    page.context.close()


def test_without_its_data_the_page_says_so(browser, report):
    (report.parent / "report" / "data.js").unlink()
    page = Page(browser, report)
    page.tab.goto(report.as_uri())
    assert page.tab.locator("h1").inner_text() == "The data are missing"
    page.context.close()
