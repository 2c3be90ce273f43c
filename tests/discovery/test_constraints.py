"""What each kind of edit says to the next round, that what is said later counts, and what leaves nothing to do."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.discovery.collection import Collection, ImageEntry
from holotype.discovery.constraints import (
    TYPICAL_IMAGES,
    Constraints,
    is_all_labelled,
    unreadable_labels,
    visible_classes,
)
from holotype.discovery.dry_run import preview_plan
from holotype.discovery.pipeline import discover_table
from holotype.discovery.plan import plan_round
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import AppliedEdits, Edit, apply_edits, read_log
from tests.discovery.made_round import edits_file, made_discovery

PATHS = [f"{i:02d}" for i in range(40)]
GROUPS = {"a": [*range(4)], "new-01": [*range(4, 16)], "new-02": [*range(16, 28)], "new-03": [*range(28, 40)]}
Row = tuple[str, int | None, str, str]
"""Action, number of the image, category, value."""


def found(run: str = "r-1") -> Discovery:
    """The first images of a category are its most typical ones; the first two of `a` came with their label."""
    made = made_discovery(run, GROUPS, ("a",), PATHS)
    made.images["typicality"] = np.linspace(1, 0, len(PATHS))
    made.images.loc[:1, "label"] = "a"
    return made


def with_copies(made: Discovery, *groups: tuple[int, ...]) -> Discovery:
    """Those of a group have the same content."""
    same = {n: PATHS[min(group)] for group in groups for n in group}
    made.images["digest"] = [same.get(n, path) for n, path in enumerate(PATHS)]
    return made


def edited(made: Discovery, *rows: Row) -> AppliedEdits:
    edits = [
        Edit(made.run_id, f"t{i}", action, "" if n is None else PATHS[n], category, value)
        for i, (action, n, category, value) in enumerate(rows)
    ]
    return apply_edits(made, edits)


def after(*rows: Row) -> Constraints:
    made = found()
    return Constraints().after(made, edited(made, *rows))


def numbers(given: Constraints, id: str) -> list[int]:
    return sorted(int(path) for path, label in given.labels.items() if label == id)


MERGE: Row = ("merge", None, "new-01", "new-02")
FIRST, SECOND = [*range(4, 4 + TYPICAL_IMAGES)], [*range(16, 16 + TYPICAL_IMAGES)]
"""The most typical images of new-01 and of new-02."""
CASES: dict[str, tuple[list[Row], dict[str, list[int]], list[int]]] = {
    "nothing": ([], {}, []),
    "confirmed and moved images are labels by id": (
        [
            ("confirm", 4, "new-01", "new-01"),
            ("confirm", 16, "new-02", "some word"),
            ("move", 17, "new-02", "a"),
            ("move", 0, "a", "new-01"),
        ],
        {"new-01": [0, 4], "some word": [16], "a": [17]},
        [],
    ),
    "rejected images and those of rejected categories stay out": (
        [("reject", 0, "a", ""), ("reject", None, "new-03", ""), ("confirm", 28, "", "a")],
        {"a": [28]},
        [0, *range(29, 40)],
    ),
    "both parts of a merged category carry one label": (
        [MERGE, ("confirm", 15, "new-02", "new-02"), ("reject", 16, "", "")],
        {"new-02": [*FIRST, 15, *range(17, 17 + TYPICAL_IMAGES)]},
        [16],
    ),
    "what is merged into a known class carries its label": (
        [MERGE, ("merge", None, "new-02", "a")],
        {"a": [*FIRST, *SECOND]},  # the class has its own labels
        [],
    ),
    "a split labels what was moved and no other": (
        [("move", 4, "new-01", "odd"), ("move", 30, "new-03", "odd"), ("move", 2, "a", "odd")],
        {"odd": [2, 4, 30]},
        [],
    ),
    "a split-off category takes another one in": (
        [("move", 4, "new-01", "odd"), ("merge", None, "new-02", "odd")],
        {"odd": [4, *SECOND]},
        [],
    ),
    "each part that is left of a merged category speaks for it": (
        [MERGE, ("move", 4, "new-02", "odd")],
        {"odd": [4], "new-02": [*range(5, 5 + TYPICAL_IMAGES), *SECOND]},
        [],
    ),
    "merged, split and rejected": (
        [MERGE, ("move", 4, "new-02", "odd"), ("reject", None, "new-02", "")],
        {"odd": [4]},
        [*range(5, 28)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_edits_say(case: str) -> None:
    rows, labels, rejected = CASES[case]
    given = after(*rows)
    assert {id: numbers(given, id) for id in set(given.labels.values())} == labels
    assert given.rejected == {PATHS[n] for n in rejected}
    assert given.follow <= given.labels.keys()


def test_names_and_what_was_said_before_stay() -> None:
    assert after(("rename", None, "new-01", "boots")) == Constraints(names={"new-01": "boots"})
    before, made = Constraints({PATHS[4]: "new-01"}, frozenset({PATHS[5]}), {"new-01": "boots"}), found()
    assert before.after(made, edited(made)) == before
    late = before.after(made, edited(made, MERGE))  # a label follows its class into another
    assert late.labels[PATHS[4]] == "new-02"
    made.images.loc[4:6, "problem"] = "broken"  # what cannot be read does not speak for a category
    assert numbers(Constraints().after(made, edited(made, MERGE)), "new-02")[0] == 7


def test_a_label_that_follows_from_a_merge_is_one_of_people_once_they_give_it() -> None:
    first = after(MERGE, ("confirm", 5, "new-01", "new-02"))
    assert len(first.follow) == 2 * TYPICAL_IMAGES
    assert first.follow == first.labels.keys() - {PATHS[5]}
    groups = {"a": GROUPS["a"], "new-02": [*range(4, len(PATHS))]}
    made = made_discovery("r-2", groups, ("a", "new-02"), PATHS)
    second = first.after(made, edited(made, ("confirm", 4, "new-02", "new-02"), ("reject", 6, "new-02", "")))
    assert second.follow == first.follow - {PATHS[4], PATHS[6]}
    assert {PATHS[row] for row in np.flatnonzero(second.follows(PATHS))} == second.follow


def test_the_later_round_counts() -> None:
    first = after(
        *(("confirm", n, "new-01", "new-01") for n in (4, 5)),
        *(("reject", n, "", "") for n in (16, 17, 18)),
        ("rename", None, "new-01", "boots"),
        ("rename", None, "new-02", "hats"),
    )
    groups = {**GROUPS, "new-02": [*range(19, 28)], "": [16, 17, 18]}
    made = made_discovery("r-2", groups, ("a", "new-01"), PATHS)
    made.categories = [category for category in made.categories if category.id]
    made.images.loc[16:18, "note"] = "rejected"
    made = made.called(first.names)
    rows = [("reject", 4, "", ""), ("move", 5, "new-01", "a"), ("confirm", 16, "", "new-02")]
    rows += [("move", 17, "", "a"), ("rename", None, "new-01", "new-01")]
    second = first.after(made, edited(made, *rows))
    assert second.labels == {PATHS[5]: "a", PATHS[16]: "new-02", PATHS[17]: "a"}
    assert second.rejected == {PATHS[4], PATHS[18]}
    assert second.names == {"new-01": "new-01", "new-02": "hats"}


def test_what_is_said_of_one_copy_holds_for_all_and_no_merge_says_otherwise() -> None:
    made = with_copies(found(), (4, 5), (6, 30), (7, 31), (8, 17), (0, 9))
    rows = [("merge", None, "new-02", "new-01"), ("move", 5, "new-01", "odd"), ("move", 30, "new-03", "a")]
    rows += [("reject", 31, "new-03", ""), ("confirm", 17, "new-01", "new-01")]
    given = Constraints().after(made, edited(made, *rows))
    assert (numbers(given, "odd"), numbers(given, "a"), given.rejected) == ([4], [6], {PATHS[7]})
    # 9 has a labelled copy, and counts as often as others: not at all
    assert numbers(given, "new-01") == [8, *range(10, 16), 16, *range(18, 26)]
    made = with_copies(found(), (0, 28), (29, 30))  # of a rejected category those without a copy elsewhere
    given = Constraints().after(made, edited(made, ("reject", None, "new-03", "")))
    assert given.rejected == {PATHS[29], *PATHS[31:]}


def test_what_was_said_of_an_image_counts_when_it_was_repaired_until_more_is_said() -> None:
    given = Constraints({"1": "a", "2": "b", "9": "c"}, frozenset({"3"}), follow=frozenset({"2"}))
    images = {key: ImageEntry("1-1", key) for key in ("1", "4", "5", "6", "7", "9")}
    aliases = {"4": "1", "5": "4", "6": "2", "7": "3", "9": "1"}
    now = given.of_repaired(Collection("", images, aliases=aliases))
    assert now.labels == {"1": "a", "2": "b", "4": "a", "5": "a", "6": "b", "9": "c"}
    assert (now.rejected, now.follow) == ({"3", "7"}, {"2", "6"})


def test_the_table_has_the_labels_and_is_without_the_rejected_ones() -> None:
    label = np.array(["a", "b", "b", *[""] * 9], dtype=object)
    keys = [f"d{i}" for i in range(12)]
    table = Table(np.array(keys, dtype=object), label, ("a", "b"))
    given = Constraints({"d1": "a", "d5": "boots", "d6": "ants"}, frozenset({"d2", "d7"}))
    more = given.apply(table, keys)
    assert more.known == ("a", "b", "ants", "boots")
    assert list(more.label[[0, 1, 2, 5, 6, 7]]) == ["a", "a", "", "boots", "ants", ""]
    assert np.flatnonzero(given.out(keys)).tolist() == [2, 7]
    assert list(Constraints().apply(table, keys).label) == list(table.label)


# -- what cannot take part


def table(problem: list[str]) -> Table:
    label = ["a", "a", "b", "b", "c", "", ""]
    path = np.array([f"photos/{i}" for i in range(7)], dtype=object)
    return Table(path, np.array(label, dtype=object), ("a", "b", "c", "d"), problem=problem, root="photos")


def test_labels_and_classes_that_cannot_be_read_are_told_and_take_no_part() -> None:
    given = Constraints({"d2": "b", "d4": "c"}, names={"c": "kites"})
    images = Collection("photos", {f"{i}": ImageEntry("1-1", f"d{i}") for i in range(7)})
    (line,) = unreadable_labels(table(["", "", "", "", "broken", "broken", ""]), given, images)
    assert "'kites' of 4" in line
    broken = table(["broken", "", "broken", "broken", "broken", "", ""])
    left, lines = visible_classes(broken, {"b": "buzzards"})
    assert left.known == ("a",)
    assert list(left.label) == ["a", "a", "", "", "", "", ""]
    words = ("'buzzards'", "'c'", "'d' takes no part in this round: edits")
    for line, word in zip(lines, words, strict=True):
        assert word in line
    whole = left.with_problems([""] * 7)
    assert visible_classes(whole, {}) == (whole, [])


def test_one_frame_speaks_for_its_burst_where_everything_is_said() -> None:
    made = made_discovery("r", {"a": [0, 1], "new-01": [2, 3, 4]}, paths=PATHS[:5])
    made.images["group"] = ["", "", "burst", "burst", ""]
    made.images.loc[0, "label"], made.images.loc[1, "problem"] = "a", "broken"
    given = Constraints({PATHS[2]: "new-01"}, frozenset({PATHS[4]}))
    assert is_all_labelled(made, given)
    assert not is_all_labelled(made, Constraints({PATHS[2]: "new-01"}))


def confirmed_throughout(run: Path) -> list[tuple[str, str, str, str]]:
    images = Discovery.load(run).images
    free = images[images.label == ""]
    return [("confirm", path, id, id) for path, id in zip(free.path, free.category_id, strict=True)]


@pytest.mark.parametrize("unread", [False, True])
def test_edits_that_leave_nothing_to_place_are_not_lost_and_no_round_is_begun(
    unread, run, squares_folder, small, tmp_path, caplog
) -> None:
    """Also where an image is left that cannot be read. The sentence says what to do with what is there."""
    caplog.set_level("INFO")
    *edits, (_, path, id, _) = confirmed_throughout(run)
    table = load_table(squares_folder / "squares.csv")
    if unread:
        (tmp_path / "broken.png").write_bytes(b"none")
        paths = [str(tmp_path / "broken.png") if one == path else one for one in table.path]
        table = replace(table, path=np.array(paths, dtype=object))
    else:
        edits.append(("reject", path, id, ""))
    file = edits_file(run, *edits)
    nothing_left = r"labelled or rejected, .*holotype report .* applies the edits, .* --folders DIR takes"
    with pytest.raises(InputError, match=nothing_left):
        preview_plan(plan_round(run, table, small(), file))
    with pytest.raises(InputError, match=nothing_left):
        discover_table(table, small(), run, progress=False, edits=file)
    assert "Another round is needed" not in caplog.text
    assert [path.name for path in (run / "rounds").iterdir()] == ["1"]
    assert len(read_log(run)) == len(edits)
