"""Paths as seen from the root."""

from __future__ import annotations

from holotype.data.paths import relative


def test_paths_are_seen_from_the_root() -> None:
    assert relative(["a/b/c.png", "a/d#3"], "a") == ["b/c.png", "d#3"]
    assert relative(["a/b.png"], "") == ["a/b.png"]
