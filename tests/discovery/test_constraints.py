"""What each kind of edit says to the next round, and that what is said later counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from holotype.data.table import Table
from holotype.discovery.collection import Collection, ImageEntry
from holotype.discovery.constraints import TYPICAL_IMAGES, Constraints
from holotype.results.apply_edits import AppliedEdits, apply_edits
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit
from tests.discovery.made_round import made_discovery

PATHS = [f"{i:02d}" for i in range(40)]
GROUPS = {"a": [*range(4)], "new-01": [*range(4, 16)], "new-02": [*range(16, 28)], "new-03": [*range(28, 40)]}


def found(
    run: str = "r-1", groups: dict[str, list[int]] = GROUPS, known: tuple[str, ...] = ("a",)
) -> Discovery:
    """The first images of a category are its most typical ones; the first two of `a` came with their label."""
    made = made_discovery(run, groups, known, PATHS)
    made.images["typicality"] = np.linspace(1, 0, len(PATHS))
    made.images.loc[:1, "label"] = "a"
    return made


def edits(made: Discovery, *rows: tuple[str, int | None, str, str]) -> AppliedEdits:
    """rows: action, number of the image, category, value."""
    told = [
        Edit(made.run_id, f"t{i}", action, "" if n is None else PATHS[n], category, value)
        for i, (action, n, category, value) in enumerate(rows)
    ]
    return apply_edits(made, told)


def after(*rows: tuple[str, int | None, str, str]) -> Constraints:
    made = found()
    return Constraints().after(made, edits(made, *rows))


def numbers(given: Constraints, id: str) -> list[int]:
    return sorted(int(path) for path, label in given.labels.items() if label == id)


def test_nothing_is_said_without_edits() -> None:
    assert after() == Constraints()
    before = Constraints({PATHS[4]: "new-01"}, frozenset({PATHS[5]}), {"new-01": "boots"})
    made = found()
    assert before.after(made, edits(made)) == before


def test_confirmed_and_moved_images_are_labels_of_the_category_by_its_id() -> None:
    given = after(
        ("confirm", 4, "new-01", "new-01"),
        ("rename", None, "new-01", "boots"),
        ("confirm", 16, "new-02", "some word"),
        ("move", 17, "new-02", "a"),
        ("move", 0, "a", "new-01"),
    )
    assert given.labels == {PATHS[4]: "new-01", PATHS[16]: "some word", PATHS[17]: "a", PATHS[0]: "new-01"}
    assert given.names == {"new-01": "boots"}
    assert given.rejected == frozenset()


def test_rejected_images_and_those_of_rejected_categories_stay_out() -> None:
    given = after(("reject", 0, "a", ""), ("reject", None, "new-03", ""), ("confirm", 28, "", "a"))
    assert given.rejected == {PATHS[0], *PATHS[29:]}
    assert given.labels == {PATHS[28]: "a"}


def test_both_parts_of_a_merged_category_carry_one_label() -> None:
    given = after(
        ("merge", None, "new-01", "new-02"), ("confirm", 15, "new-02", "new-02"), ("reject", 16, "", "")
    )
    assert set(given.labels.values()) == {"new-02"}
    assert numbers(given, "new-02") == [*range(4, 4 + TYPICAL_IMAGES), 15, *range(17, 17 + TYPICAL_IMAGES)]


def test_what_is_merged_into_a_known_class_carries_its_label() -> None:
    given = after(("merge", None, "new-01", "new-02"), ("merge", None, "new-02", "a"))
    assert numbers(given, "a") == [
        *range(4, 4 + TYPICAL_IMAGES),
        *range(16, 16 + TYPICAL_IMAGES),
    ]  # the class has its own labels
    assert set(given.labels.values()) == {"a"}


def test_a_split_labels_the_images_that_were_moved_and_no_other() -> None:
    given = after(("move", 4, "new-01", "odd"), ("move", 30, "new-03", "odd"), ("move", 2, "a", "odd"))
    assert given == Constraints({PATHS[n]: "odd" for n in (2, 4, 30)})


def test_a_category_that_takes_others_in_after_a_split_is_labelled_by_the_merge_alone() -> None:
    given = after(("move", 4, "new-01", "odd"), ("merge", None, "new-02", "odd"))
    assert numbers(given, "odd") == [4, *range(16, 16 + TYPICAL_IMAGES)]
    assert numbers(given, "new-01") == []
    assert given.follow == {PATHS[n] for n in range(16, 16 + TYPICAL_IMAGES)}


def test_split_merged_and_rejected_at_once() -> None:
    """Out of a merged category: each part that is left of it speaks for the whole."""
    given = after(
        ("merge", None, "new-01", "new-02"),
        ("move", 4, "new-02", "odd"),
        ("reject", None, "new-02", ""),
    )
    assert given.labels == {PATHS[4]: "odd"}
    assert len(given.rejected) == 23
    given = after(("merge", None, "new-01", "new-02"), ("move", 4, "new-02", "odd"))
    assert numbers(given, "new-02") == [*range(5, 5 + TYPICAL_IMAGES), *range(16, 16 + TYPICAL_IMAGES)]


def test_images_that_cannot_be_read_do_not_speak_for_a_category() -> None:
    made = found()
    made.images.loc[4:6, "problem"] = "broken"
    given = Constraints().after(made, edits(made, ("merge", None, "new-01", "new-02")))
    assert numbers(given, "new-02")[0] == 7


def test_a_label_that_follows_from_a_merge_is_one_of_people_once_they_give_it() -> None:
    first = after(("merge", None, "new-01", "new-02"), ("confirm", 5, "new-01", "new-02"))
    assert len(first.follow) == 2 * TYPICAL_IMAGES
    assert first.follow == first.labels.keys() - {PATHS[5]}
    assert first.moved({PATHS[4]: "elsewhere"}).follow == first.follow - {PATHS[4]} | {"elsewhere"}
    made = made_discovery(
        "r-2", {"a": GROUPS["a"], "new-02": [*range(4, len(PATHS))]}, ("a", "new-02"), PATHS
    )
    second = first.after(made, edits(made, ("confirm", 4, "new-02", "new-02"), ("reject", 6, "new-02", "")))
    assert second.follow == first.follow - {PATHS[4], PATHS[6]}
    table = Table(np.array(PATHS, dtype=object), np.array([""] * len(PATHS), dtype=object), ("a", "new-02"))
    assert set(table.path[second.follows(table)]) == second.follow


def test_the_later_round_counts() -> None:
    first = after(
        ("confirm", 4, "new-01", "new-01"),
        ("confirm", 5, "new-01", "new-01"),
        ("reject", 16, "", ""),
        ("reject", 17, "", ""),
        ("reject", 18, "", ""),
        ("rename", None, "new-01", "boots"),
        ("rename", None, "new-02", "hats"),
    )
    groups = {**GROUPS, "new-02": [*range(19, 28)]}
    made = made_discovery("r-2", {**groups, "": [16, 17, 18]}, ("a", "new-01"), PATHS)
    made.categories = [category for category in made.categories if category.id]
    made.images.loc[16:18, "note"] = "rejected"
    made = made.called(first.names)
    second = first.after(
        made,
        edits(
            made,
            ("reject", 4, "", ""),
            ("move", 5, "new-01", "a"),
            ("confirm", 16, "", "new-02"),
            ("move", 17, "", "a"),
            ("rename", None, "new-01", "new-01"),
        ),
    )
    assert second.labels == {PATHS[5]: "a", PATHS[16]: "new-02", PATHS[17]: "a"}
    assert second.rejected == {PATHS[4], PATHS[18]}
    assert second.names == {"new-01": "new-01", "new-02": "hats"}


def test_a_label_follows_its_class_into_another() -> None:
    """A file that came late made a class of what the next round still took for new, and somebody merged that."""
    made = found("r-2")
    late = Constraints({PATHS[4]: "new-01"})
    assert late.after(made, edits(made, ("merge", None, "new-01", "new-02"))).labels[PATHS[4]] == "new-02"


def test_the_table_has_the_labels_and_without_the_rejected_ones() -> None:
    label = np.array(["a", "b", "b", *[""] * 9], dtype=object)
    table = Table(
        np.array([f"photos/{i}" for i in range(12)], dtype=object), label, ("a", "b"), root="photos"
    )
    given = Constraints({"1": "a", "5": "boots", "6": "ants"}, frozenset({"2", "7"}))
    more = given.apply(table)
    assert more.known == ("a", "b", "ants", "boots")
    assert list(more.label[[0, 1, 2, 5, 6, 7]]) == ["a", "a", "", "boots", "ants", ""]
    assert np.flatnonzero(given.out(table)).tolist() == [2, 7]
    plain = Constraints().apply(table)
    assert (list(plain.label), plain.known) == (list(table.label), table.known)


def test_paths_are_those_from_the_root() -> None:
    made = found()
    made.images["path"] = [f"photos/{path}" for path in PATHS]
    made.facts = replace(made.facts, root="photos")
    told = [Edit("r-1", "t", "confirm", "photos/04", "", "new-01"), Edit("r-1", "t", "reject", "photos/05")]
    given = Constraints().after(made, apply_edits(made, told))
    assert (given.labels, given.rejected) == ({"04": "new-01"}, {"05"})


def copies(*groups: tuple[int, ...], labels: dict[int, str] | None = None) -> Collection:
    """The images as a round saw them, those of a group with the same content."""
    content = {n: f"c{min(group)}" for group in groups for n in group}
    label = labels or {}
    return Collection(
        "", {path: ImageEntry("1", content.get(n, str(n)), label.get(n, "")) for n, path in enumerate(PATHS)}
    )


def test_what_was_said_of_a_copy_counts_more_than_what_follows_from_a_merge() -> None:
    made, seen = found(), copies((4, 5), (6, 30), (7, 31), (8, 17), (9, 0), labels={0: "a", 1: "a"})
    rows = (
        ("merge", None, "new-02", "new-01"),
        ("move", 4, "new-01", "odd"),
        ("move", 30, "new-03", "a"),
        ("reject", 31, "new-03", ""),
        ("confirm", 17, "new-01", "new-01"),  # the very label that would follow
    )
    given = Constraints().after(made, edits(made, *rows), seen)
    assert numbers(given, "odd") == [4]
    merged = [16, 17, *range(18, 26)]
    assert numbers(given, "new-01") == [8, *range(10, 16), *merged]  # 5, 6, 7 and 9 have other copies
    assert numbers(Constraints().after(made, edits(made, *rows)), "new-01") == [*range(5, 14), *merged]


def test_a_split_says_nothing_of_a_copy_that_stayed() -> None:
    made = found()
    given = Constraints().after(made, edits(made, ("move", 4, "new-01", "odd")), copies((4, 5), (6, 30)))
    assert given.labels == {PATHS[4]: "odd"}


def test_what_is_said_later_of_a_copy_takes_a_label_back_that_only_followed() -> None:
    made = found()
    first = Constraints().after(
        made, edits(made, ("merge", None, "new-01", "new-02"), ("confirm", 20, "new-02", "new-02")), copies()
    )
    assert {PATHS[4], PATHS[5], PATHS[20]} <= first.labels.keys()
    later = made_discovery(
        "r-2", {"a": GROUPS["a"], "new-02": [*range(4, len(PATHS))]}, ("a", "new-02"), PATHS
    )
    told = edits(later, ("move", 39, "new-02", "a"), ("move", 38, "new-02", "a"))
    second = first.after(later, told, copies((4, 39), (20, 38)))
    assert PATHS[4] not in second.labels  # it had followed from the merge
    assert second.labels[PATHS[20]] == "new-02"  # somebody had said so
    assert second.labels[PATHS[5]] == "new-02"
