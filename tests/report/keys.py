"""The keyboard of the tests of the report, and what it did."""

from __future__ import annotations


def press(tab, *keys: str) -> None:
    for key in keys:
        tab.keyboard.press(key)


def focus(tab) -> str | int:
    """The number of the image that has the focus; of anything else its id, label, words or tag."""
    return tab.evaluate("""() => {
      const e = document.activeElement;
      if (e.dataset.image) return Number(e.dataset.image);
      return e.id || e.ariaLabel || (e.tagName === "BUTTON" ? e.textContent : e.tagName);
    }""")


def after(tab, *keys: str) -> str | int:
    """What has the focus after these keys."""
    press(tab, *keys)
    return focus(tab)


def tab_to_image(tab) -> int:
    """As people do who have no mouse."""
    for _ in range(80):
        press(tab, "Tab")
        if isinstance(focus(tab), int):
            return focus(tab)
    raise AssertionError("Tab leads to no image")


def listed(tab, gallery: str = "") -> list[int]:
    """Numbers of the images in a gallery, in its order."""
    tiles = tab.locator(f'[role="listbox"][aria-label^="{gallery or "Images in"}"] .tile')
    return tiles.evaluate_all("tiles => tiles.map((tile) => Number(tile.dataset.image))")


def edits(tab) -> list[tuple[str, str]]:
    """Action and value of each edit that this browser keeps."""
    kept = tab.evaluate("JSON.parse(localStorage.getItem('holotype:edits:run-made-1') ?? '[]')")
    return [(edit["action"], edit["value"]) for edit in kept]


def edited(tab) -> list[int]:
    """Numbers of the images that the edits are about."""
    return tab.evaluate("""() => {
      const { root, path } = window.HOLOTYPE.images;
      const kept = JSON.parse(localStorage.getItem("holotype:edits:run-made-1"));
      return kept.map((edit) => path.indexOf(edit.image.slice(root.length)));
    }""")
