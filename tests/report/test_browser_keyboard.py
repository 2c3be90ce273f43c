"""The report by keyboard alone, and its selection.

An edit goes on to the next image, letters of a name are no commands, and a selection ends with its view.
"""

from __future__ import annotations

import numpy as np
import pytest

from report.conftest import directions
from report.keys import after, edited, edits, focus, listed, press, tab_to_image
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


@pytest.mark.parametrize("select", [True, False])
@pytest.mark.parametrize(("key", "action"), [("c", "confirm"), ("r", "reject")])
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


def test_an_edit_of_several_goes_on_behind_them_and_undo_goes_back_to_what_it_brings_back(sandals):
    tab, before = sandals
    assert after(tab, "Space", "ArrowRight", "ArrowRight", "Space", "ArrowLeft", "Space", "r") == before[3]
    assert sorted(edited(tab)) == sorted(before[:3])
    assert after(tab, "u") == before[0]
    assert edits(tab) == []
    assert after(tab, "ArrowRight", "r", "ArrowRight", "ArrowRight", "u") == before[1]
    assert listed(tab) == before
    assert after(tab, "u") == before[1]


def test_doubtful_images_one_after_the_other_until_none_is_left(page):
    tab = page.open("doubtful")
    before = listed(tab, "Doubtful")
    assert tab_to_image(tab) == before[0]
    for n, image in enumerate(before, start=1):
        assert focus(tab) == image
        press(tab, "r")
        assert len(edits(tab)) == n
    assert listed(tab, "Doubtful") == []
    assert focus(tab) == "main"
    assert after(tab, "u") == before[-1]
    assert edited(tab) == before[:-1]


def test_on_the_border_and_on_the_map_the_focus_goes_on_too(page):
    tab = page.open("category/Sandal")
    tab.locator(".border summary").focus()
    press(tab, "Enter")
    before = listed(tab, "Images on the border")
    assert tab_to_image(tab) == before[0]
    assert after(tab, "r") == before[1]
    assert after(tab, "ArrowRight") == before[2]
    tab = page.open("map")
    tab.locator("#map-canvas").focus()
    tab.wait_for_timeout(200)
    assert after(tab, "+", "ArrowRight", "r") == "map-canvas"
    press(tab, "ArrowRight", "r")
    assert len(edits(tab)) == len(set(edited(tab))) == 3


def test_a_view_that_an_edit_empties_leaves_the_focus_in_the_next_one(page):
    tab = page.open("category/new-01")
    tab_to_image(tab)
    press(tab, *["r"] * 10)
    tab.locator(".head h1", has_text="new-02").wait_for()
    assert focus(tab) == "main"
    assert len(edits(tab)) == 10


def test_buttons_that_vanish_give_the_focus_to_the_image(sandals):
    """Those of the selection, and Undo in the message."""
    tab, before = sandals

    def use(place: str, name: str) -> None:
        tab.locator(place).get_by_role("button", name=name).focus()
        press(tab, "Enter")

    press(tab, "Space")
    use("#selection", "Clear")
    assert focus(tab) == before[0]
    press(tab, "Space")
    use("#selection", "Reject")
    assert focus(tab) == before[1]
    assert edited(tab) == [before[0]]
    use("#toast", "Undo")
    assert focus(tab) == before[0]
    assert edits(tab) == []


def test_controls_keep_the_focus_when_the_view_is_made_anew(page):
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Rename").focus()
    press(tab, "Enter")
    type_in(tab, "lupus")
    assert tab.locator(".head h1").inner_text() == "lupus"
    assert focus(tab) == "Rename…"
    tab.get_by_label("Sort").focus()
    assert after(tab, "ArrowDown") == "SELECT"
    assert tab.get_by_label("Sort").input_value() == "odd"


def test_the_letters_of_a_name_go_into_the_field_and_undo_nothing(sandals):
    """Space, c, Space, m, lotus, Enter: there is no lotus, so nothing is moved, and nothing undone."""
    tab, before = sandals
    assert after(tab, "Space", "c", "Space", "m") == "Find a category"
    tab.keyboard.type("lotus")
    assert tab.locator("dialog input").input_value() == "lotus"
    assert after(tab, "Enter", "Escape") == before[1]
    assert edited(tab) == [before[0]]
    for key in ("m", "n"):  # where there is no image, letters do nothing either
        press(tab, "1")
        tab.wait_for_selector("main.overview")
        press(tab, key)
        type_in(tab, "lotus")
        tab.wait_for_selector("dialog", state="detached")
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


def test_the_close_up_edits_what_it_shows_and_leaves_selection_and_focus_alone(sandals):
    tab, before = sandals
    press(tab, "Space", "ArrowRight", "Space", "ArrowRight", "Enter", "r")
    assert edited(tab) == [before[2]]
    press(tab, "Escape")
    tab.wait_for_selector("dialog", state="detached")
    assert "2 selected" in tab.locator("#selection").inner_text()
    press(tab, "Home", "Enter")
    tab.get_by_role("button", name="Next image").focus()
    assert after(tab, "Enter", "Enter") == "Next image"
    assert large(tab, "ArrowRight") == "4 of 9"
    assert large(tab, *["Enter"] * 5) == "9 of 9"  # where that button is disabled
    assert large(tab, "ArrowLeft") == "8 of 9"


def test_undo_in_the_list_of_edits_keeps_the_focus_there(sandals):
    tab, _ = sandals
    press(tab, "r", "r")
    tab.locator("#edits-button").focus()
    press(tab, "Enter")
    tab.get_by_role("button", name="Undo last").focus()
    assert after(tab, "Enter") == "Undo last"
    assert after(tab, "Enter") == "Close"
    assert edits(tab) == []
    assert after(tab, "Enter") == "edits-button"


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


def test_enter_takes_the_only_match_and_a_name_that_is_typed_in_full_is_meant(page, sandals):
    tab, before = sandals
    press(tab, "m")
    assert highlighted(tab) is None
    press(tab, "Enter")  # which one?
    assert edits(tab) == []
    tab.keyboard.type("sneak")
    assert highlighted(tab) == "Sneaker"
    press(tab, "Enter")
    assert edits(tab) == [("move", "Sneaker")]
    assert edited(tab) == [before[0]]
    assert focus(tab) == before[1]
    page.open("category/Sneaker")
    assert before[0] in listed(tab)
    page.open("category/Bag")
    tab.get_by_role("button", name="Rename").click()
    type_in(tab, "Sneaker bag")
    page.open("category/Sandal")
    tab_to_image(tab)
    press(tab, "m")
    tab.keyboard.type("sneaker")
    assert len(options(tab)) == 2
    press(tab, "Enter")
    assert edits(tab)[2:] == [("move", "Sneaker")]


def test_arrows_go_through_the_list_and_escape_gives_the_image_back(sandals):
    tab, before = sandals
    assert highlighted(tab, "m", "ArrowDown") == options(tab)[0]
    assert highlighted(tab, "ArrowDown", "ArrowDown", "ArrowUp") == options(tab)[1]
    assert highlighted(tab, "ArrowUp", "ArrowUp") == options(tab)[-1]
    assert focus(tab) == "Find a category"
    assert after(tab, "Escape") == before[0]
    tab.wait_for_selector("dialog", state="detached")
    press(tab, "m", "ArrowDown", "ArrowDown")
    wanted = highlighted(tab)
    press(tab, "Enter")
    assert edits(tab) == [("move", wanted)]


@pytest.mark.parametrize("known", [True, False])
def test_the_list_begins_with_what_is_most_alike_else_it_is_in_alphabetical_order(open_page, tmp_path, known):
    """The images of Sandal also look like new-03, and a little like Bag. known: are likenesses known at all?"""
    found = make_discovery(tmp_path / "pictures", 90)
    ids = [category.id for category in found.categories]
    side = 0.8 * np.eye(16)[ids.index("new-03")] + 0.4 * np.eye(16)[ids.index("Bag")]
    features = directions(found, 0.01) + np.outer(found.images["category_id"] == "Sandal", side)
    direction = np.eye(9, 16) + np.outer([id == "Sandal" for id in ids], side)
    for category in found.categories:
        likeness = direction[ids.index(category.id)] @ direction[: len(found.known)].T
        category.signature = list(likeness) if known else []
    tab = open_page(found, features if known else None).open("category/Sandal")
    tab_to_image(tab)
    press(tab, "m")
    names = options(tab)
    assert names[:2] == ["new-03", "Bag"] if known else names == sorted(names, key=str.lower)
    assert "Sandal" not in names
    assert len(names) == 8


def shown(tab, name: str) -> None:
    tab.locator(".head h1", has_text=name).wait_for()


def test_a_selection_ends_with_the_view_that_it_was_made_in(page):
    """Else images that nobody sees any more would be moved, rejected or confirmed."""
    tab = page.open("category/new-01")
    tiles, selection = tab.locator(TILES), tab.locator("#selection")
    tiles.first.click()
    tab.get_by_label("Sort").select_option("odd")  # it stays while the same category is shown
    tiles.nth(1).click()
    assert "2 selected" in selection.inner_text()
    tab.locator(".list .links a", has_text="new-02").click()
    shown(tab, "new-02")
    assert selection.is_hidden()
    assert "2 images are no longer selected" in tab.locator("#toast").inner_text()
    press(tab, "r")
    tiles.first.click()
    tab.get_by_label("Show").select_option("unlabelled")
    assert selection.is_hidden()
    tiles.first.click()
    press(tab, "5")
    tab.wait_for_selector("main.doubtful")
    assert selection.is_hidden()
    page.open("category/new-01")  # the button back of the browser takes a question away with its selection
    tiles.first.click()
    press(tab, "m")
    assert tab.locator("dialog").is_visible()
    tab.evaluate("history.back()")
    tab.wait_for_selector("main.doubtful")
    tab.wait_for_selector("dialog", state="detached")
    assert tab.locator("#edits-button").inner_text() == "No edits"
    page.open("category/new-01")
    tiles.first.click()
    tab.get_by_role("button", name="Rename").click()
    tab.locator("dialog input").fill("Hawk")
    press(tab, "Enter")
    shown(tab, "Hawk")
    assert "1 selected" in selection.inner_text()


def test_it_ends_where_an_edit_lets_another_category_be_shown(page):
    """new-01 is gone while its address is still there, so that another one is shown; undo brings it back."""
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Reject").click()
    tab.wait_for_selector("main.overview")
    tab = page.open("category/new-01")
    shown(tab, "new-02")
    tab.locator(TILES).first.click()
    press(tab, "u")
    shown(tab, "new-01")
    assert tab.locator("#selection").is_hidden()
    press(tab, "r")
    assert tab.locator("#edits-button").inner_text() == "No edits"


def open_map(page):
    tab = page.open("map")
    tab.wait_for_timeout(200)
    tab.locator("#map-canvas").scroll_into_view_if_needed()
    return tab, tab.locator("#map-canvas").bounding_box()


def left_half(box) -> list[tuple[float, float]]:
    """Begins inside the round corners of the box; from there on the pointer is the canvas's own."""
    middle, low = box["width"] / 2, box["height"] - 1
    return [(middle, low / 2), (middle, low), (1, low), (1, 1), (middle, 1)]


def draw(tab, box, corners, *, end: bool = True) -> None:
    at = [(box["x"] + x, box["y"] + y) for x, y in corners]
    tab.mouse.move(*at[0])
    tab.mouse.down()
    for place in at[1:]:
        tab.mouse.move(*place, steps=4)
    if end:
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
    left, selection, button = (
        in_left_half(tab),
        tab.locator("#selection"),
        tab.get_by_role("button", name="Lasso"),
    )
    assert 10 < left < 80
    draw(tab, box, left_half(box))  # without it dragging moves the map
    assert selection.is_hidden()
    press(tab, "0")
    button.focus()
    press(tab, "Enter")
    assert button.get_attribute("aria-pressed") == "true"
    draw(tab, box, left_half(box), end=False)
    press(tab, "Escape")
    tab.mouse.up()
    assert selection.is_hidden()
    assert button.get_attribute("aria-pressed") == "true"
    draw(tab, box, left_half(box))
    assert f"{left} selected" in selection.inner_text()
    draw(tab, box, [(box["width"] - x, y) for x, y in left_half(box)])  # a new shape replaces the selection
    assert f"{90 - left} selected" in selection.inner_text()
    tab.keyboard.down("Shift")
    draw(tab, box, left_half(box))
    tab.keyboard.up("Shift")
    assert "90 selected" in selection.inner_text()
    draw(tab, box, [(3, 200), (9, 200), (9, 209), (3, 209)])
    assert selection.is_hidden()
    assert "No image lies inside" in tab.locator("#toast").inner_text()
    draw(tab, box, left_half(box))
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
