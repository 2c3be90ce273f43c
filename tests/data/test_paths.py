"""Paths as seen from the root."""

from __future__ import annotations

from holotype.data.paths import in_quotes, relative


def test_paths_are_seen_from_the_root() -> None:
    assert relative(["a/b/c.png", "a/d#3"], "a") == ["b/c.png", "d#3"]
    assert relative(["a/b.png"], "") == ["a/b.png"]


def test_windows_paths_are_shown_as_they_stand() -> None:
    assert in_quotes("C:\\me\\1.jpg") == "'C:\\me\\1.jpg'"
    assert in_quotes("a\x1b[2J.jpg") == "'a\\x1b[2J.jpg'"  # no letter of a name steers a terminal
