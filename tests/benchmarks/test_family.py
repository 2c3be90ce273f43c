"""The picture of the methods is that of the methods."""

from __future__ import annotations

import family

from holotype.methods import METHODS


def test_every_method_has_its_box() -> None:
    assert set(family.PLACES) == set(METHODS)
    boxes = [(place.column, place.row) for place in family.PLACES.values()]
    assert len(boxes) == len(set(boxes))


def test_what_builds_on_what_is_so_in_the_code() -> None:
    """ProtoGCD's classifier is SimGCD's, written anew; RPC takes DebGCD's losses by a setting."""
    pairs = {name: place.on for name, place in family.PLACES.items() if place.on}
    inherited = {name for name, on in pairs.items() if issubclass(METHODS[name], METHODS[on])}
    assert set(pairs) - inherited == {"protogcd", "rpc"}
    assert METHODS["protogcd"].card.line.startswith("SimGCD's classifier")
    assert METHODS["rpc"].Config().base == pairs["rpc"] == "debgcd"
    assert {name for name in METHODS if family.by_kmeans(name)} == {"kmeans", "gcd", "promptcal", "dccl"}


def test_it_says_in_words_what_it_shows() -> None:
    text = family.draw()
    assert text.count("marker-end=") == sum(bool(place.on) for place in family.PLACES.values()) + 6
    assert "DCCL (2023) builds on GCD and adds communities of neighbours, found anew as it learns." in text
    longest = max(len(line) for place in family.PLACES.values() for line in place.does)
    assert longest * 6.2 < family.WIDE  # 12 pixels of a sans-serif
