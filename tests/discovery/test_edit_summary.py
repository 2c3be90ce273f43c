"""What takes part in a round is counted, and what cannot is told, a line each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from holotype.data.load import load_table
from holotype.data.table import Table
from holotype.discovery.constraints import Constraints
from holotype.discovery.dry_run import preview_plan
from holotype.discovery.edit_summary import (
    REFUSED_FILE,
    EditSummary,
    read_refused,
    store_refused,
    unreadable_labels,
    unreported,
    visible_classes,
)
from holotype.discovery.pipeline import discover_table
from holotype.discovery.plan import plan_round
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, edits_csv, read_edits, read_log
from tests.discovery.made_round import edits_file


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
    assert gone == "2 edits of 2 images that are gone are kept, and will count again if they come back: 2, 3."
    assert (
        "1 edit of an image that is gone is kept, and will count again if it comes back: 2."
        in account.told(2, given, {"1", "3"})
    )


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
    assert unreported(tmp_path, first[:1]) == [
        f"Told before, and still so: 1 line on edits that cannot take part, in {tmp_path / REFUSED_FILE}."
    ]
    changed = [first[0], "Move of '9' to 'b' was not applied: it was rejected.", "2 edits of run 'x' cannot."]
    *fresh, others = unreported(tmp_path, changed)
    assert fresh == changed[1:]
    assert "1 line on" in others
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
    assert told == [
        "The known class 'buzzards' takes no part in this round: none of its 2 labelled images can be read.",
        "The known class 'c' takes no part in this round: its one labelled image cannot be read.",
        "The known class 'd' takes no part in this round: edits have left it no labelled image.",
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
    assert f"2 lines on edits that cannot take part, in {run / 'refused.txt'}" in caplog.text
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
