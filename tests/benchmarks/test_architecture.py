"""The picture of the code is that of the code."""

from __future__ import annotations

import architecture
from tests.test_imports import LADDER


def test_boxes_stand_in_the_order_of_the_house() -> None:
    assert tuple(reversed(architecture.WORDS)) == LADDER


def test_arrows_are_the_imports_of_the_code() -> None:
    edges = architecture.imports()
    assert {("cli", "discovery"), ("methods", "losses"), ("machine", "errors")} <= edges
    assert all(LADDER.index(one) > LADDER.index(other) for one, other in edges)


def test_it_says_in_words_what_it_shows() -> None:
    text = architecture.draw({("cli", "data"), ("cli", "errors")})
    assert "cli imports from data, errors." in text
    assert "data imports from nothing." in text
    assert text.count("marker-end=") == 2
