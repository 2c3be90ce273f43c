"""The report by keyboard alone, and its selection.

An edit goes on to the next image, letters of a name are no commands, and a selection ends with its view.
"""

import numpy as np
import pytest

from report.browser import after, edited, edits, focus, listed, press, tab_to_image
from report.conftest import directions
from report.made import make_discovery

TILES = ".content > .gallery .tile"


@pytest.fixture
def sandals(page):
    """The gallery of Sandal, its images in their order, and the focus on the first."""
    tab = page.open("category/Sandal")
    before = listed(tab)
    assert tab_to_image(tab) == before[0]
    return tab, before


def type_in(tab, text: str) -> None:
    tab.keyboard.type(text)
    press(tab, "Enter")


@pytest.mark.parametrize(("key", "action", "select"), [("c", "confirm", True), ("r", "reject", False)])
def test_an_edit_in_a_gallery_goes_on_to_the_next_image(sandals, key, action, select):
    """Without a selection it is about the image that has the focus; behind the last image it stays at the end."""
    tab, before = sandals
    assert after(tab, *(["Space"] if select else []), key) == before[1]
    assert after(tab, "ArrowRight") == before[2]
    assert after(tab, key) == before[3]
    assert [said for said, _ in edits(tab)] == [action, action]
    assert edited(tab) == [before[0], before[2]]
    assert len(listed(tab)) == (10 if action == "confirm" else 8)
    assert after(tab, "End", key) == before[-1 if action == "confirm" else -2]
    assert edited(tab)[2:] == before[-1:]
    assert after(tab, "u") == before[-1]
    assert edited(tab) == [before[0], before[2]]


def test_the_letters_of_a_name_go_into_the_field_and_undo_nothing(sandals):
    """Space, c, Space, m, lotus, Enter: there is no lotus, so nothing is moved, and nothing undone."""
    tab, before = sandals
    assert after(tab, "Space", "c", "Space", "m") == "Find a category"
    tab.keyboard.type("lotus")
    assert tab.locator("dialog input").input_value() == "lotus"
    assert after(tab, "Enter", "Escape") == before[1]
    assert edited(tab) == [before[0]]


def test_a_new_category_is_named_before_it_is_confirmed_and_the_focus_goes_on(page):
    tab = page.open("category/new-01")
    before = listed(tab)
    tab_to_image(tab)
    press(tab, "c")
    type_in(tab, "lupus")
    assert focus(tab) == before[1]
    assert edits(tab) == [("rename", "lupus"), ("confirm", "new-01")]
    press(tab, "n")
    type_in(tab, "crumb")
    assert focus(tab) == before[2]
    assert edits(tab)[2:] == [("move", "crumb")]


def large(tab, *keys: str) -> str:
    press(tab, *keys)
    return tab.locator("dialog.look .soft").first.inner_text()


def test_the_close_up_takes_the_same_keys_and_goes_on(sandals):
    tab, before = sandals
    assert large(tab, "ArrowRight", "Enter", "c") == "3 of 10"
    assert large(tab, "r") == "4 of 10"
    press(tab, "m")
    type_in(tab, "sneaker")
    assert large(tab) == "5 of 10"
    assert edits(tab) == [("confirm", "Sandal"), ("reject", ""), ("move", "Sneaker")]
    assert edited(tab) == before[1:4]
    assert large(tab, "u") == "4 of 10"
    assert len(edits(tab)) == 2
    assert large(tab, "ArrowRight", "ArrowRight") == "6 of 10"
    press(tab, "Escape")
    tab.wait_for_selector("dialog", state="detached")
    assert focus(tab) == before[5]
    assert after(tab, "ArrowLeft") == before[4]


def options(tab) -> list[str]:
    return tab.locator(".choices").get_by_role("option").locator(".who").all_inner_texts()


def highlighted(tab, *keys: str) -> str | None:
    """The name of the option that the field points to, if it is also the one that is marked."""
    press(tab, *keys)
    return tab.evaluate("""() => {
      const field = document.querySelector("dialog input");
      const option = document.getElementById(field.getAttribute("aria-activedescendant"));
      return option?.ariaSelected === "true" ? option.querySelector(".who").textContent : null;
    }""")


def test_enter_takes_the_only_match_and_arrows_go_through_the_list(sandals):
    tab, before = sandals
    assert highlighted(tab, "m") is None
    press(tab, "Enter")  # which one?
    assert edits(tab) == []
    tab.keyboard.type("sneak")
    assert highlighted(tab) == "Sneaker"
    press(tab, "Enter")
    assert (edits(tab), edited(tab), focus(tab)) == ([("move", "Sneaker")], [before[0]], before[1])
    assert highlighted(tab, "m", "ArrowDown") == options(tab)[0]
    assert highlighted(tab, "ArrowDown", "ArrowDown", "ArrowUp") == options(tab)[1]
    assert highlighted(tab, "ArrowUp", "ArrowUp") == options(tab)[-1]
    assert focus(tab) == "Find a category"
    assert after(tab, "Escape") == before[1]
    tab.wait_for_selector("dialog", state="detached")


def test_the_list_begins_with_what_is_most_alike(open_page, tmp_path):
    """The images of Sandal also look like new-03, and a little like Bag."""
    found = make_discovery(tmp_path / "pictures", 90)
    ids = [category.id for category in found.categories]
    side = 0.8 * np.eye(16)[ids.index("new-03")] + 0.4 * np.eye(16)[ids.index("Bag")]
    features = directions(found, 0.01) + np.outer(found.images["category_id"] == "Sandal", side)
    direction = np.eye(9, 16) + np.outer([id == "Sandal" for id in ids], side)
    for category, likeness in zip(found.categories, direction @ direction[: len(found.known)].T, strict=True):
        category.signature = list(likeness)
    tab = open_page(found, features).open("category/Sandal")
    tab_to_image(tab)
    press(tab, "m")
    assert options(tab)[:2] == ["new-03", "Bag"]
    assert set(options(tab)) == set(ids) - {"Sandal"}


def test_a_selection_ends_with_the_view_that_it_was_made_in(page):
    """Else images that nobody sees any more would be moved, rejected or confirmed."""
    tab = page.open("category/new-01")
    tiles, selection = tab.locator(TILES), tab.locator("#selection")
    tiles.first.click()
    tab.get_by_label("Sort").select_option("odd")  # it stays while the same category is shown
    tiles.nth(1).click()
    assert "2 selected" in selection.inner_text()
    tab.locator(".list .links a", has_text="new-02").click()
    tab.locator(".head h1", has_text="new-02").wait_for()
    assert selection.is_hidden()
    assert "2 images are no longer selected" in tab.locator("#toast").inner_text()
    press(tab, "r", "5")
    tab.wait_for_selector("main.doubtful")
    page.open("category/new-01")  # the button back of the browser takes a question away with its selection
    tiles.first.click()
    press(tab, "m")
    assert tab.locator("dialog").is_visible()
    tab.evaluate("history.back()")
    tab.wait_for_selector("main.doubtful")
    tab.wait_for_selector("dialog", state="detached")
    assert edits(tab) == []


def open_map(page):
    tab = page.open("map")
    tab.wait_for_timeout(200)
    tab.locator("#map-canvas").scroll_into_view_if_needed()
    return tab, tab.locator("#map-canvas").bounding_box()


def left_half(box) -> list[tuple[float, float]]:
    """Begins inside the round corners of the box; from there on the pointer is the canvas's own."""
    middle, low = box["width"] / 2, box["height"] - 1
    return [(middle, low / 2), (middle, low), (1, low), (1, 1), (middle, 1)]


def draw(tab, box, corners) -> None:
    at = [(box["x"] + x, box["y"] + y) for x, y in corners]
    tab.mouse.move(*at[0])
    tab.mouse.down()
    for place in at[1:]:
        tab.mouse.move(*place, steps=4)
    tab.mouse.up()


def in_left_half(tab) -> int:
    """Images that lie there, from the data: as the page computes it at its first zoom."""
    return tab.evaluate("""() => {
      const { x, y } = window.HOLOTYPE.images;
      const box = document.getElementById("map-canvas").getBoundingClientRect();
      const span = (v) => Math.max(0.05, (Math.max(...v) - Math.min(...v)) / 1e4);
      const side = Math.min((box.width - 60) / span(x), (box.height - 60) / span(y));
      return x.filter((value) => (value / 1e4 - 0.5) * side < 0).length;
    }""")


def test_the_lasso_selects_what_lies_in_it_and_escape_takes_back_one_thing_at_a_time(page):
    tab, box = open_map(page)
    left, selection = in_left_half(tab), tab.locator("#selection")
    button = tab.get_by_role("button", name="Lasso")
    assert 10 < left < 80
    draw(tab, box, left_half(box))  # without it dragging moves the map
    assert selection.is_hidden()
    press(tab, "0")
    button.focus()
    press(tab, "Enter")
    assert button.get_attribute("aria-pressed") == "true"
    draw(tab, box, left_half(box))
    assert f"{left} selected" in selection.inner_text()
    draw(tab, box, [(box["width"] - x, y) for x, y in left_half(box)])  # a new shape replaces the selection
    assert f"{90 - left} selected" in selection.inner_text()
    press(tab, "Escape")
    assert selection.is_hidden()
    press(tab, "Escape")
    assert button.get_attribute("aria-pressed") == "false"
    press(tab, "l")
    assert button.get_attribute("aria-pressed") == "true"
    draw(tab, box, left_half(box))
    press(tab, "n")
    tab.locator("dialog input").fill("left ones")
    press(tab, "Enter")
    assert tab.locator("#edits-button").inner_text() == f"{left} edits"
    assert tab.locator(".legend .entry", has_text="left ones").locator(".n").inner_text() == str(left)


def test_a_finger_draws_as_the_mouse_does(open_page, reported):
    page = open_page(reported / "run" / "report.html", viewport={"width": 800, "height": 900}, has_touch=True)
    tab, box = open_map(page)
    tab.get_by_role("button", name="Lasso").tap()
    touch = page.context.new_cdp_session(tab)
    corners = [{"x": box["x"] + x, "y": box["y"] + y} for x, y in left_half(box)]
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": corners[:1]})
    for corner in corners[1:]:
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [corner]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert f"{in_left_half(tab)} selected" in tab.locator("#selection").inner_text()
