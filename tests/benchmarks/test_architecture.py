"""The picture of the code is that of the code."""

from __future__ import annotations

import architecture
from tests.test_imports import LADDER


def test_boxes_stand_in_the_order_of_the_house() -> None:
    assert tuple(reversed(architecture.WORDS)) == LADDER


def test_the_picture_is_not_stale() -> None:
    edges = architecture.imports()
    stale = "python benchmarks/architecture.py draws it anew"
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.draw(edges), stale
    assert {("cli", "discovery"), ("methods", "losses"), ("machine", "errors")} <= edges
    assert all(LADDER.index(one) > LADDER.index(other) for one, other in edges)


def test_it_says_in_words_what_it_shows() -> None:
    text = architecture.draw({("cli", "data"), ("cli", "errors")})
    assert "cli imports from data, errors." in text
    assert "data imports from nothing." in text
    assert text.count("marker-end=") == 2
