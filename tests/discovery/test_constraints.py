"""What each kind of edit says to the next round, and that what is said later counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.discovery.collection import Collection, ImageEntry
from holotype.discovery.constraints import (
    REFUSED_FILE,
    TYPICAL_IMAGES,
    Constraints,
    EditSummary,
    read_refused,
    store_refused,
    unreadable_labels,
    unreported,
    visible_classes,
)
from holotype.discovery.dry_run import preview_plan
from holotype.discovery.pipeline import discover_table
from holotype.discovery.plan import plan_round
from holotype.errors import InputError
from holotype.results.apply_edits import AppliedEdits, apply_edits
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, edits_csv, read_edits, read_log
from tests.discovery.made_round import edits_file, made_discovery

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


# -- What takes part in a round is counted, and what cannot is told, a line each


def made(*rows: tuple[str, str]) -> list[tuple[str, Edit]]:
    """rows: action and image."""
    return [(image, Edit("r", f"t{i}", action, image)) for i, (action, image) in enumerate(rows)]


def test_edits_are_counted_by_kind_and_overruled_ones_are_not() -> None:
    rows = [("confirm", "1"), ("move", "1"), ("move", "2"), ("reject", "3"), ("rename", ""), ("merge", "")]
    account = EditSummary(
        made(*rows, ("confirm", "4"), ("reject", "")), ["Move of 9 was not applied: it is gone."]
    )
    given = Constraints({"1": "a", "2": "a"}, frozenset({"3", "4"}))
    standing = [edit.action for _, edit in account.standing(given)]
    assert sorted(standing) == ["merge", "move", "move", "reject", "reject", "rename"]
    assert account.told(2, given, {"1", "2", "3", "4"}) == [
        "Edits that take part in round 2: 1 renamed, 1 merged, 2 moved, 2 rejected; 2 more were overruled by later "
        "ones. They give 2 labels and keep 2 images out.",
        "Move of 9 was not applied: it is gone.",
    ]


def test_without_edits_nothing_is_said() -> None:
    assert EditSummary().told(1, Constraints(), {"1"}) == []


def test_edits_of_images_that_are_gone_are_kept_and_told() -> None:
    account = EditSummary(made(("confirm", "1"), ("move", "2"), ("reject", "3"), ("rename", "")))
    given = Constraints({"1": "a", "2": "a"}, frozenset({"3"}))
    taking, gone = account.told(2, given, {"1"})
    assert taking.startswith(
        "Edits that take part in round 2: 1 renamed, 1 confirmed. They give 1 label and keep 0"
    )
    assert gone.startswith("2 edits of 2 images now gone")
    assert account.told(2, given, {"1", "3"})[1].startswith("1 edit of 1 image now gone")


def test_edits_that_a_later_label_overrules_are_counted_as_such() -> None:
    account = EditSummary(made(("confirm", "1"), ("move", "2"))).without({"2"})
    (line,) = account.told(2, Constraints({"1": "a"}), {"1", "2"})
    assert "1 confirmed; 1 more was overruled by later edits or labels. They give 1 label" in line


def test_an_edit_that_cannot_take_part_is_told_once_and_counted_from_then_on(tmp_path) -> None:
    first = [
        "Rename of 'new-01' to 'a' was not applied: it is taken.",
        "Move of '9' to 'b' was not applied: gone.",
    ]
    assert read_refused(tmp_path) == []
    assert unreported(tmp_path, first) == first
    store_refused(tmp_path, first)
    assert unreported(tmp_path, []) == []
    (again,) = unreported(tmp_path, first[:1])
    assert again.startswith("1 edit is still not applied")
    assert REFUSED_FILE in again
    changed = [first[0], "Move of '9' to 'b' was not applied: it was rejected.", "2 edits of run 'x' cannot."]
    *fresh, others = unreported(tmp_path, changed)
    assert fresh == changed[1:]
    assert others.startswith("1 edit is still")
    store_refused(tmp_path, changed)
    assert (tmp_path / REFUSED_FILE).read_text().splitlines() == changed


def table(problem: list[str]) -> Table:
    label = ["a", "a", "b", "b", "c", "", ""]
    path = np.array([f"photos/{i}" for i in range(7)], dtype=object)
    return Table(path, np.array(label, dtype=object), ("a", "b", "c", "d"), problem=problem, root="photos")


def test_labels_of_images_that_cannot_be_read_are_told() -> None:
    given = Constraints({"2": "b", "4": "c"}, names={"c": "kites"})
    assert unreadable_labels(table(["", "", "", "", "broken", "broken", ""]), given) == [
        "The label 'kites' of 4 cannot take part: the image cannot be read."
    ]


def test_a_class_without_a_labelled_image_to_look_at_is_dropped_and_told() -> None:
    broken = table(["broken", "", "broken", "broken", "broken", "", ""])
    left, told = visible_classes(broken, {"b": "buzzards"})
    assert left.known == ("a",)
    assert list(left.label) == ["a", "a", "", "", "", "", ""]
    assert [("'buzzards'" in told[0], "'c'" in told[1], "'d'" in told[2], "edits" in told[2])] == [
        (True,) * 4
    ]
    whole = left.with_problems([""] * 7)
    assert visible_classes(whole, {}) == (whole, [])


def test_edits_that_label_everything_leave_nothing_to_place_and_are_not_lost(
    run, squares_folder, small, monkeypatch
) -> None:
    """No round is begun, and the sentence says what to do with what is there."""
    monkeypatch.setattr("holotype.discovery.pipeline.run_round", lambda round: pytest.fail("trained again"))
    images = Discovery.load(run).images
    free = images[images.label == ""]
    said = [("confirm", path, id, id) for path, id in zip(free.path, free.category_id, strict=True)]
    said[-1] = ("reject", *said[-1][1:3], "")
    file, table = edits_file(run, *said), load_table(squares_folder / "squares.csv")
    with pytest.raises(InputError, match=r"labelled or rejected, .*holotype report .* applies the edits"):
        discover_table(table, small(), run, progress=False, edits=file)
    assert [path.name for path in (run / "rounds").iterdir()] == ["1"]
    assert len(read_log(run)) == len(said)


def confirmed_throughout(run) -> list[tuple[str, str, str, str]]:
    images = Discovery.load(run).images
    free = images[images.label == ""]
    return [("confirm", path, id, id) for path, id in zip(free.path, free.category_id, strict=True)]


def test_where_only_images_that_cannot_be_read_are_left_no_round_is_announced_or_begun(
    run, squares_folder, small, tmp_path, caplog
) -> None:
    caplog.set_level("INFO")
    *said, (_, unsaid, _, _) = confirmed_throughout(run)
    table, broken = load_table(squares_folder / "squares.csv"), tmp_path / "broken.png"
    broken.write_bytes(b"none")
    path = [str(broken) if path == unsaid else path for path in table.path]
    table = replace(table, path=np.array(path, dtype=object))
    file = edits_file(run, *said)
    nothing_left = r"labelled or rejected, .* holotype write .* --folders DIR takes"
    with pytest.raises(InputError, match=nothing_left):
        preview_plan(plan_round(run, table, small(), file))
    with pytest.raises(InputError, match=nothing_left):
        discover_table(table, small(), run, progress=False, edits=file)
    assert "Another round is needed" not in caplog.text
    assert [path.name for path in (run / "rounds").iterdir()] == ["1"]


def test_edits_that_label_everything_are_named_also_where_images_come_with_one_class(
    run, squares_folder, small
) -> None:
    """Images without a label would be of no use: they are there, and edits have labelled them."""
    table = load_table(squares_folder / "squares.csv")
    one = replace(table, label=np.where(table.label == "green", "", table.label), known=("red",))
    green = [("confirm", path, "green", "green") for path in table.path[table.label == "green"]]
    file = edits_file(run, *confirmed_throughout(run), *green)
    with pytest.raises(InputError, match="With the edits every usable image"):
        discover_table(one, small(), run, progress=False, edits=file)
    throughout = replace(table, label=np.where(table.label == "", "red", table.label))
    with pytest.raises(InputError, match="put images without a label into"):
        discover_table(throughout, small(), run, progress=False, edits=file)


def test_edits_that_cannot_take_part_are_told_before_one_round_and_listed_from_then_on(
    run, squares_folder, small, caplog
) -> None:
    caplog.set_level("INFO")
    table, config = load_table(squares_folder / "squares.csv"), small(method="kmeans")
    blue = [path for path in table.path if "blue" in path][:2]
    file = edits_file(run, ("confirm", blue[0], "", "blue"), ("rename", "", "new-77", "Boots"))
    foreign = Edit("somebody-1", "2026-01-01T00:00:00Z", "rename", "", "new-01", "Boots")
    file.write_text(edits_csv([*read_edits(file), foreign]))
    refused = ("'new-77' is not in this run", "1 edit of run 'somebody-1'")
    discover_table(table, config, run, progress=False, edits=file)
    assert [caplog.text.count(words) for words in refused] == [1, 1]
    caplog.clear()
    more = edits_file(run, ("confirm", blue[1], "", "blue"))
    found = discover_table(table, config, run, progress=False, edits=more)
    assert found.facts.round == 3
    assert [caplog.text.count(words) for words in refused] == [0, 0]
    assert "2 edits are still not applied" in caplog.text
    assert all(words in (run / "refused.txt").read_text() for words in refused)


def test_a_heap_that_was_a_class_for_a_round_costs_no_edit(run, squares_folder, small, caplog) -> None:
    """--unlabelled was forgotten once. Where that leaves nothing to place, no round is begun."""
    caplog.set_level("INFO")
    table, config = load_table(squares_folder / "squares.csv"), small(method="kmeans")
    free = [path for path, label in zip(table.path, table.label, strict=True) if not label]
    file = edits_file(run, ("confirm", free[0], "", "blue"), ("reject", free[1], "", ""))
    known = (*table.known, "heap")
    throughout = replace(table, label=np.where(table.label == "", "heap", table.label), known=known)
    nothing_left = r"Every usable image .* is labelled, so nothing is left to place"
    with pytest.raises(InputError, match=nothing_left):
        preview_plan(plan_round(run, throughout, config, file))
    with pytest.raises(InputError, match=nothing_left):
        discover_table(throughout, config, run, progress=False, edits=file)
    assert [path.name for path in (run / "rounds").iterdir()] == ["1"]
    in_heap = (table.label == "") & np.isin(table.path, free[:40])
    some = replace(table, label=np.where(in_heap, "heap", table.label), known=known)
    assert discover_table(some, config, run, progress=False).facts.confirmed_labels == 0
    (line,) = [line for line in preview_plan(plan_round(run, table, config)) if "take part" in line]
    assert "round 3: 1 rejected, 1 confirmed. They give 1 label and keep 1 image out" in line
    found = discover_table(table, config, run, progress=False)
    assert (found.facts.round, found.facts.confirmed_labels) == (3, 1)
    assert found.images.set_index("path").label[free[0]] == "blue"
