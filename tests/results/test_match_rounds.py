"""Categories of two rounds are matched by the images that they share."""

from __future__ import annotations

from holotype.results.ensemble import match_categories


def test_the_best_pairs_in_sum_are_taken() -> None:
    earlier = {"new-01": set("abcd"), "new-02": set("efgh"), "new-03": set("ij")}
    assert match_categories(earlier, {5: set("fghk"), 6: set("abcde")}) == {6: "new-01", 5: "new-02"}
    # either could be new-01, but only one of them is
    assert match_categories({"new-01": set("abcdef")}, {1: set("abcd"), 2: set("ef")}) == {1: "new-01"}


def test_half_of_the_images_is_not_the_same() -> None:
    assert match_categories({"new-01": set("abcd")}, {1: set("ab")}) == {}
    assert match_categories({"new-01": set("abcd")}, {1: set("abc")}) == {1: "new-01"}
    assert match_categories({"new-01": set("ab")}, {1: set("abcdef")}) == {}


def test_nothing_to_match() -> None:
    assert match_categories({}, {1: set("ab")}) == {}
    assert match_categories({"new-01": set("ab")}, {}) == {}
