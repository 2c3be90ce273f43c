"""The selection in a real browser: it ends with the view that it was made in, and a lasso on the map makes one."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.xdist_group("browser")


def shown(tab, name: str) -> None:
    tab.locator(".head h1", has_text=name).wait_for()


def test_a_selection_ends_when_another_category_is_shown(page):
    """Else images that nobody sees any more would be moved, rejected or confirmed."""
    tab = page.open("category/new-01")
    tiles = tab.locator(".content > .gallery .tile")
    tiles.nth(0).click()
    tiles.nth(1).click()
    assert "2 selected" in tab.locator("#selection").inner_text()
    tab.locator(".list .links a", has_text="new-02").click()
    shown(tab, "new-02")
    assert tab.locator("#selection").is_hidden()
    assert "2 images are no longer selected" in tab.locator("#toast").inner_text()
    tab.keyboard.press("r")
    assert tab.locator("#edits-button").inner_text() == "No edits"


def test_it_ends_where_an_edit_lets_another_category_be_shown(page):
    """new-01 is gone while its address is still there, so that another one is shown; undo brings it back."""
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Reject").click()
    tab.wait_for_selector("main.overview")
    tab = page.open("category/new-01")
    shown(tab, "new-02")
    tab.locator(".content > .gallery .tile").first.click()
    tab.keyboard.press("u")
    shown(tab, "new-01")
    assert tab.locator("#selection").is_hidden()
    tab.keyboard.press("r")
    assert tab.locator("#edits-button").inner_text() == "No edits"


def test_it_ends_with_every_view_and_with_what_is_filtered_out(page):
    tab = page.open("category/new-01")
    tab.locator(".content > .gallery .tile").first.click()
    tab.get_by_label("Show").select_option("unlabelled")
    assert tab.locator("#selection").is_hidden()
    tab.locator(".content > .gallery .tile").first.click()
    tab.keyboard.press("5")
    tab.wait_for_selector("main.doubtful")
    assert tab.locator("#selection").is_hidden()


def test_a_question_that_is_open_goes_with_its_selection(page):
    """The button back of the browser: what was asked was about images that are no longer selected."""
    page.open("category/new-02")
    tab = page.open("category/new-01")
    tab.locator(".content > .gallery .tile").first.click()
    tab.keyboard.press("m")
    assert tab.locator("dialog").is_visible()
    tab.evaluate("history.back()")
    shown(tab, "new-02")
    assert tab.locator("dialog").count() == 0
    assert tab.locator("#edits-button").inner_text() == "No edits"


def test_it_stays_while_the_same_category_is_shown(page):
    tab = page.open("category/new-01")
    tab.locator(".content > .gallery .tile").first.click()
    tab.get_by_label("Sort").select_option("odd")
    assert "1 selected" in tab.locator("#selection").inner_text()
    tab.get_by_role("button", name="Rename").click()
    tab.locator("dialog input").fill("Hawk")
    tab.keyboard.press("Enter")
    shown(tab, "Hawk")
    assert "1 selected" in tab.locator("#selection").inner_text()


# -- the lasso --------------------------------------------------------------------------------------------


def points(tab) -> list[dict]:
    """Where the images lie on the canvas, from the data: as the page computes it at its first zoom."""
    return tab.evaluate("""() => {
      const { x, y } = window.HOLOTYPE.images;
      const box = document.getElementById("map-canvas").getBoundingClientRect();
      const span = (v) => Math.max(0.05, (Math.max(...v) - Math.min(...v)) / 1e4);
      const side = Math.min((box.width - 60) / span(x), (box.height - 60) / span(y));
      const at = (middle, value) => middle + (value / 1e4 - 0.5) * side;
      return x.map((_, i) => ({ i, x: at(box.width / 2, x[i]), y: box.height - at(box.height / 2, y[i]) }));
    }""")


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


def expected(tab, box) -> int:
    return sum(point["x"] < box["width"] / 2 for point in points(tab))


def test_what_lies_in_the_lasso_is_selected_and_corrected(page):
    tab, box = open_map(page)
    wanted = expected(tab, box)
    assert 10 < wanted < 80
    tab.get_by_role("button", name="Lasso").click()
    draw(tab, box, left_half(box))
    tab.mouse.up()
    assert f"{wanted} selected" in tab.locator("#selection").inner_text()
    tab.keyboard.press("n")
    tab.locator("dialog input").fill("left ones")
    tab.keyboard.press("Enter")
    assert tab.locator("#edits-button").inner_text() == f"{wanted} edits"
    assert tab.locator(".legend .entry", has_text="left ones").locator(".n").inner_text() == str(wanted)


def test_the_lasso_answers_the_keyboard_and_escape_takes_back_one_thing_at_a_time(page):
    tab, box = open_map(page)
    button = tab.get_by_role("button", name="Lasso")
    button.focus()
    tab.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    draw(tab, box, left_half(box))
    tab.keyboard.press("Escape")
    tab.mouse.up()
    assert tab.locator("#selection").is_hidden()
    assert button.get_attribute("aria-pressed") == "true"
    draw(tab, box, left_half(box))
    tab.mouse.up()
    assert tab.locator("#selection").is_visible()
    tab.keyboard.press("Escape")
    assert tab.locator("#selection").is_hidden()
    tab.keyboard.press("Escape")
    assert button.get_attribute("aria-pressed") == "false"
    tab.keyboard.press("l")
    assert button.get_attribute("aria-pressed") == "true"


def test_a_new_shape_replaces_the_selection_and_shift_adds_to_it(page):
    tab, box = open_map(page)
    left = expected(tab, box)
    tab.get_by_role("button", name="Lasso").click()
    draw(tab, box, left_half(box))
    tab.mouse.up()
    right = [(box["width"] - x, y) for x, y in left_half(box)]
    draw(tab, box, right)
    tab.mouse.up()
    assert f"{90 - left} selected" in tab.locator("#selection").inner_text()
    tab.keyboard.down("Shift")
    draw(tab, box, left_half(box))
    tab.mouse.up()
    tab.keyboard.up("Shift")
    assert "90 selected" in tab.locator("#selection").inner_text()
    draw(tab, box, [(3, 200), (9, 200), (9, 209), (3, 209)])
    tab.mouse.up()
    assert tab.locator("#selection").is_hidden()
    assert "No image lies inside" in tab.locator("#toast").inner_text()


def test_without_the_lasso_dragging_moves_the_map_and_selects_nothing(page):
    tab, box = open_map(page)
    draw(tab, box, left_half(box))
    tab.mouse.up()
    assert tab.locator("#selection").is_hidden()


def test_a_finger_draws_as_the_mouse_does(browser, report):
    from report.browser import Page

    page = Page(browser, report, viewport={"width": 800, "height": 900}, has_touch=True)
    tab, box = open_map(page)
    wanted = expected(tab, box)
    tab.get_by_role("button", name="Lasso").tap()
    touch = page.context.new_cdp_session(tab)
    corners = [{"x": box["x"] + x, "y": box["y"] + y} for x, y in left_half(box)]
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": corners[:1]})
    for corner in corners[1:]:
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [corner]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert f"{wanted} selected" in tab.locator("#selection").inner_text()
    assert page.complaints == []
    page.context.close()
