"""After edits a category is shown by images that are in it, and speaks for what was merged into it."""

from __future__ import annotations

import math

import pytest

from holotype.results.apply_edits import MOST_EXEMPLARS, merge_exemplars, refresh_exemplars
from holotype.results.discovery import Category


def category(id: str, n: int, exemplars: str, signature: list[float], kind: str = "novel") -> Category:
    return Category(
        id=id, name=id, kind=kind, n=n, exemplars=list(exemplars), borderline=[exemplars[-1]],
        signature=signature, words="closest to A", cohesion=0.5, separation=0.5,
    )  # fmt: skip


def test_two_speak_in_turn_and_by_their_numbers():
    target, source = category("one", 3, "abc", [0.4, 0.0]), category("two", 1, "xyzuvw", [0.8, 1.0])
    merge_exemplars(target, source)
    assert "".join(target.exemplars) == "axbyczuvw"
    assert target.borderline == ["c", "w"]
    assert target.signature == pytest.approx([0.5, 0.25])
    assert target.words == "closest to A (before two was merged into it)"
    assert target.n == 4
    assert math.isnan(target.cohesion)


def test_a_known_class_and_one_that_an_empty_category_joins_keep_their_signature():
    known, empty = category("A", 3, "abc", [1.0, 0.0], "known"), category("two", 0, "x", [0.8, 1.0])
    merge_exemplars(known, category("one", 3, "x", [0.0, 0.0]))
    assert known.signature == [1.0, 0.0]
    target = category("one", 0, "a", [0.4, 0.0])
    merge_exemplars(target, empty)
    assert target.signature == [0.4, 0.0]


def test_who_left_does_not_speak_and_the_most_typical_step_in():
    typicality = {path: i / 26 for i, path in enumerate("abcdefghijklmnopqrstuvwxyz")}
    shown = category("one", 3, "abc", [])
    refresh_exemplars(shown, {"b", "z"}, typicality)
    assert (shown.exemplars, shown.borderline) == (["b"], [])
    refresh_exemplars(shown, set("klmnopqrstuvwxyz"), typicality)
    assert shown.exemplars == list("zyxwvutsrqpo")
    assert len(shown.exemplars) == MOST_EXEMPLARS
