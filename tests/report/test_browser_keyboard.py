"""The report by keyboard alone: an edit goes on to the next image, and letters of a name are no commands."""

from __future__ import annotations

import pytest

from report.keys import edited, edits, focus, listed, press, tab_to_image

pytestmark = pytest.mark.xdist_group("browser")


# -- the focus goes on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("select", [True, False])
@pytest.mark.parametrize(("key", "action"), [("c", "confirm"), ("r", "reject")])
def test_an_edit_in_a_gallery_goes_on_to_the_next_image(page, key, action, select):
    """Without a selection it is about the image that has the focus."""
    tab = page.open("category/Sandal")
    before = listed(tab)
    assert tab_to_image(tab) == before[0]
    press(tab, *(["Space"] if select else []), key)
    assert focus(tab) == before[1]
    press(tab, "ArrowRight")
    assert focus(tab) == before[2]
    press(tab, key)
    assert focus(tab) == before[3]
    assert [said for said, _ in edits(tab)] == [action, action]
    assert edited(tab) == [before[0], before[2]]
    assert len(listed(tab)) == (10 if action == "confirm" else 8)


def test_behind_the_last_image_it_stays_at_the_end(page):
    tab = page.open("category/Sandal")
    before = listed(tab)
    tab_to_image(tab)
    press(tab, "End", "c")
    assert focus(tab) == before[-1]
    press(tab, "r")
    assert focus(tab) == before[-2]
    assert edited(tab) == [before[-1]] * 2


def test_an_edit_of_several_goes_on_behind_them(page):
    tab = page.open("category/Sandal")
    before = listed(tab)
    tab_to_image(tab)
    press(tab, "Space", "ArrowRight", "ArrowRight", "Space", "ArrowLeft", "Space", "r")
    assert focus(tab) == before[3]
    assert sorted(edited(tab)) == sorted(before[:3])
    press(tab, "u")
    assert focus(tab) == before[0]
    assert edits(tab) == []


def test_undo_goes_back_to_the_image_that_it_brings_back(page):
    tab = page.open("category/Sandal")
    before = listed(tab)
    tab_to_image(tab)
    press(tab, "ArrowRight", "r", "ArrowRight", "ArrowRight", "u")
    assert focus(tab) == before[1]
    assert listed(tab) == before
    press(tab, "u")
    assert focus(tab) == before[1]


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
    press(tab, "u")
    assert focus(tab) == before[-1]
    assert edited(tab) == before[:-1]


def test_on_the_border_the_focus_goes_on_too(page):
    tab = page.open("category/Sandal")
    tab.locator(".border summary").focus()
    press(tab, "Enter")
    before = listed(tab, "Images on the border")
    assert tab_to_image(tab) == before[0]
    press(tab, "r")
    assert focus(tab) == before[1]
    press(tab, "ArrowRight")
    assert focus(tab) == before[2]


def test_a_view_that_an_edit_empties_leaves_the_focus_in_the_next_one(page):
    tab = page.open("category/new-01")
    tab_to_image(tab)
    for _ in range(10):
        press(tab, "r")
    tab.locator(".head h1", has_text="new-02").wait_for()
    assert focus(tab) == "main"
    assert len(edits(tab)) == 10


def test_the_map_keeps_its_place(page):
    tab = page.open("map")
    tab.locator("#map-canvas").focus()
    tab.wait_for_timeout(200)
    press(tab, "+", "ArrowRight", "r")
    assert len(edits(tab)) == 1
    assert focus(tab) == "map-canvas"
    press(tab, "ArrowRight", "r")
    assert len(edits(tab)) == 2
    assert len(set(edited(tab))) == 2


def test_buttons_that_vanish_give_the_focus_to_the_image(page):
    """Those of the selection, and Undo in the message."""
    tab = page.open("category/Sandal")
    before = listed(tab)
    tab_to_image(tab)
    press(tab, "Space")
    tab.locator("#selection").get_by_role("button", name="Clear").focus()
    press(tab, "Enter")
    assert focus(tab) == before[0]
    press(tab, "Space")
    tab.locator("#selection").get_by_role("button", name="Reject").focus()
    press(tab, "Enter")
    assert focus(tab) == before[1]
    assert edited(tab) == [before[0]]
    tab.locator("#toast").get_by_role("button", name="Undo").focus()
    press(tab, "Enter")
    assert focus(tab) == before[0]
    assert edits(tab) == []


def test_controls_keep_the_focus_when_the_view_is_made_anew(page):
    tab = page.open("category/new-01")
    tab.get_by_role("button", name="Rename").focus()
    press(tab, "Enter")
    tab.keyboard.type("lupus")
    press(tab, "Enter")
    assert tab.locator(".head h1").inner_text() == "lupus"
    assert focus(tab) == "Rename…"
    tab.get_by_label("Sort").focus()
    press(tab, "ArrowDown")
    assert focus(tab) == "SELECT"
    assert tab.get_by_label("Sort").input_value() == "odd"


# -- letters ----------------------------------------------------------------------------------------------


def test_the_letters_of_a_name_go_into_the_field_and_undo_nothing(page):
    """Space, c, Space, m, lotus, Enter: there is no lotus, so nothing is moved, and nothing undone."""
    tab = page.open("category/Sandal")
    before = listed(tab)
    tab_to_image(tab)
    press(tab, "Space", "c", "Space", "m")
    assert focus(tab) == "Find a category"
    tab.keyboard.type("lotus")
    assert tab.locator("dialog input").input_value() == "lotus"
    press(tab, "Enter", "Escape")
    assert focus(tab) == before[1]
    assert edited(tab) == [before[0]]


@pytest.mark.parametrize("key", ["m", "n"])
def test_where_there_is_no_image_letters_do_nothing_either(page, key):
    tab = page.open("category/Sandal")
    tab_to_image(tab)
    press(tab, "r", "1")
    tab.wait_for_selector("main.overview")
    press(tab, key)
    tab.keyboard.type("lotus")
    press(tab, "Enter")
    tab.wait_for_selector("dialog", state="detached")
    assert [action for action, _ in edits(tab)] == ["reject"]


def test_a_new_category_is_named_before_it_is_confirmed_and_the_focus_goes_on(page):
    tab = page.open("category/new-01")
    before = listed(tab)
    tab_to_image(tab)
    press(tab, "c")
    tab.keyboard.type("lupus")
    press(tab, "Enter")
    assert focus(tab) == before[1]
    assert edits(tab) == [("rename", "lupus"), ("confirm", "new-01")]
    press(tab, "n")
    tab.keyboard.type("crumb")
    press(tab, "Enter")
    assert focus(tab) == before[2]
    assert edits(tab)[2:] == [("move", "crumb")]


# -- the close-up and the list of edits -------------------------------------------------------------------


def large(tab) -> str:
    return tab.locator("dialog.look .soft").first.inner_text()


def test_the_close_up_takes_the_same_keys_and_goes_on(page):
    tab = page.open("category/Sandal")
    before = listed(tab)
    tab_to_image(tab)
    press(tab, "ArrowRight", "Enter", "c")
    assert large(tab) == "3 of 10"
    press(tab, "r")
    assert large(tab) == "4 of 10"
    press(tab, "m")
    tab.keyboard.type("sneaker")
    press(tab, "Enter")
    assert large(tab) == "5 of 10"
    assert edits(tab) == [("confirm", "Sandal"), ("reject", ""), ("move", "Sneaker")]
    assert edited(tab) == before[1:4]
    press(tab, "u")
    assert large(tab) == "4 of 10"
    assert len(edits(tab)) == 2
    press(tab, "ArrowRight", "ArrowRight")
    assert large(tab) == "6 of 10"
    press(tab, "Escape")
    tab.wait_for_selector("dialog", state="detached")
    assert focus(tab) == before[5]
    press(tab, "ArrowLeft")
    assert focus(tab) == before[4]


def test_the_close_up_edits_what_it_shows_and_leaves_the_selection_alone(page):
    tab = page.open("category/Sandal")
    before = listed(tab)
    tab_to_image(tab)
    press(tab, "Space", "ArrowRight", "Space", "ArrowRight", "Enter", "r")
    assert edited(tab) == [before[2]]
    press(tab, "Escape")
    assert "2 selected" in tab.locator("#selection").inner_text()


def test_buttons_of_the_close_up_keep_the_focus(page):
    tab = page.open("category/Sandal")
    tab_to_image(tab)
    press(tab, "Enter")
    tab.get_by_role("button", name="Next image").focus()
    press(tab, "Enter", "Enter")
    assert focus(tab) == "Next image"
    press(tab, "ArrowRight")
    assert large(tab) == "4 of 10"
    for _ in range(6):
        press(tab, "Enter")
    assert large(tab) == "10 of 10"  # where that button is disabled
    press(tab, "ArrowLeft")
    assert large(tab) == "9 of 10"


def test_undo_in_the_list_of_edits_keeps_the_focus_there(page):
    tab = page.open("category/Sandal")
    tab_to_image(tab)
    press(tab, "r", "r")
    tab.locator("#edits-button").focus()
    press(tab, "Enter")
    tab.get_by_role("button", name="Undo last").focus()
    press(tab, "Enter")
    assert focus(tab) == "Undo last"
    press(tab, "Enter")
    assert focus(tab) == "Close"
    assert edits(tab) == []
    press(tab, "Enter")
    assert focus(tab) == "edits-button"
