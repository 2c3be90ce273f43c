"""Move to by keyboard: Enter and arrows choose, and the list begins with what is most alike."""

from __future__ import annotations

import numpy as np
import pytest

from holotype.report import build_report
from report.browser import Page
from report.keys import edited, edits, focus, listed, press, tab_to_image
from report.made import make_discovery

pytestmark = pytest.mark.xdist_group("browser")


def options(tab) -> list[str]:
    return tab.locator(".choices").get_by_role("option").locator(".who").all_inner_texts()


def highlighted(tab) -> str | None:
    """The name of the option that the field points to, if it is also the one that is marked."""
    return tab.evaluate("""() => {
      const field = document.querySelector("dialog input");
      const option = document.getElementById(field.getAttribute("aria-activedescendant"));
      return option?.ariaSelected === "true" ? option.querySelector(".who").textContent : null;
    }""")


def test_enter_takes_the_only_match(page):
    tab = page.open("category/Sandal")
    before = listed(tab)
    tab_to_image(tab)
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
    tab = page.open("category/Sneaker")
    assert before[0] in listed(tab)


def test_arrows_go_through_the_list_and_escape_gives_the_image_back(page):
    tab = page.open("category/Sandal")
    first = tab_to_image(tab)
    press(tab, "m", "ArrowDown")
    assert highlighted(tab) == options(tab)[0]
    press(tab, "ArrowDown", "ArrowDown", "ArrowUp")
    assert highlighted(tab) == options(tab)[1]
    press(tab, "ArrowUp", "ArrowUp")
    assert highlighted(tab) == options(tab)[-1]
    assert focus(tab) == "Find a category"
    press(tab, "Escape")
    assert focus(tab) == first
    press(tab, "m", "ArrowDown", "ArrowDown")
    wanted = highlighted(tab)
    press(tab, "Enter")
    assert edits(tab) == [("move", wanted)]


def test_a_name_that_is_typed_in_full_is_meant(page):
    """Also where other names hold it."""
    tab = page.open("category/Bag")
    tab.get_by_role("button", name="Rename").click()
    tab.keyboard.type("Sneaker bag")
    press(tab, "Enter")
    tab = page.open("category/Sandal")
    tab_to_image(tab)
    press(tab, "m")
    tab.keyboard.type("sneaker")
    assert len(options(tab)) == 2
    press(tab, "Enter")
    assert edits(tab)[1:] == [("move", "Sneaker")]


@pytest.fixture
def alike(browser, tmp_path):
    """Every category in a direction of its own; the images of Sandal also look like new-03, and a little like Bag."""
    found = make_discovery(tmp_path / "pictures", 90)
    ids = [category.id for category in found.categories]
    direction = np.eye(len(ids), 16)
    direction[ids.index("Sandal")] += 0.8 * direction[ids.index("new-03")] + 0.4 * direction[ids.index("Bag")]
    features = direction[[ids.index(id) for id in found.images["category_id"]]]
    features += np.random.default_rng(0).normal(scale=0.01, size=features.shape)
    for category in found.categories:
        category.signature = list(direction[ids.index(category.id)] @ direction[: len(found.known)].T)
    page = Page(browser, build_report(found, tmp_path / "run", features=features))
    yield page
    assert page.complaints == []
    page.context.close()


def test_the_list_begins_with_what_is_most_alike(alike):
    tab = alike.open("category/Sandal")
    tab_to_image(tab)
    press(tab, "m")
    names = options(tab)
    assert names[:2] == ["new-03", "Bag"]
    assert "Sandal" not in names
    assert len(names) == 8


def test_what_is_alike_to_none_more_than_another_is_in_alphabetical_order(page):
    page.tab.add_init_script("""
      let data;
      Object.defineProperty(window, "HOLOTYPE", { get: () => data, set: (value) => {
        data = value;
        data.categories.forEach((category) => { category.signature = []; });
      } });
    """)
    tab = page.open("category/Sandal")
    tab_to_image(tab)
    press(tab, "m")
    assert options(tab) == sorted(options(tab), key=str.lower)
