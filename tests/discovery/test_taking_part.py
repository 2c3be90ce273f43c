"""What takes part in a round is counted, and what cannot is told, a line each."""

from __future__ import annotations

import numpy as np

from holotype.categories.edits import Edit
from holotype.data.table import Table
from holotype.discovery.constraints import Constraints
from holotype.discovery.taking_part import Account, seen_classes, unread_labels


def made(*rows: tuple[str, str]) -> list[tuple[str, Edit]]:
    """rows: action and image."""
    return [(image, Edit("r", f"t{i}", action, image)) for i, (action, image) in enumerate(rows)]


def test_edits_are_counted_by_kind_and_overruled_ones_are_not() -> None:
    rows = [("confirm", "1"), ("move", "1"), ("move", "2"), ("reject", "3"), ("rename", ""), ("merge", "")]
    account = Account(
        made(*rows, ("confirm", "4"), ("reject", "")), ["Move of 9 was not applied: it is gone."]
    )
    given = Constraints({"1": "a", "2": "a"}, frozenset({"3", "4"}))
    assert account.taking_part(given) == {"move": 2, "reject": 2, "rename": 1, "merge": 1}
    assert account.told(2, given) == [
        "Edits that take part in round 2: 1 renamed, 1 merged, 2 moved, 2 rejected; 2 more were overruled by later "
        "ones. They give 2 labels and keep 2 images out.",
        "Move of 9 was not applied: it is gone.",
    ]


def test_without_edits_nothing_is_said() -> None:
    assert Account().told(1, Constraints()) == []


def table(problem: list[str]) -> Table:
    label = ["a", "a", "b", "b", "c", "", ""]
    path = np.array([f"photos/{i}" for i in range(7)], dtype=object)
    return Table(path, np.array(label, dtype=object), ("a", "b", "c", "d"), problem=problem, root="photos")


def test_labels_of_images_that_cannot_be_read_are_told() -> None:
    given = Constraints({"2": "b", "4": "c"}, names={"c": "kites"})
    assert unread_labels(table(["", "", "", "", "broken", "broken", ""]), given) == [
        "The label 'kites' of 4 cannot take part: the image cannot be read."
    ]


def test_a_class_without_a_labelled_image_to_look_at_is_dropped_and_told() -> None:
    broken = table(["broken", "", "broken", "broken", "broken", "", ""])
    left, told = seen_classes(broken, {"b": "buzzards"})
    assert left.known == ("a",)
    assert list(left.label) == ["a", "a", "", "", "", "", ""]
    assert told == [
        "The known class 'buzzards' takes no part in this round: none of its 2 labelled images can be read.",
        "The known class 'c' takes no part in this round: its one labelled image cannot be read.",
        "The known class 'd' takes no part in this round: edits have left it no labelled image.",
    ]
    whole = left.with_problems([""] * 7)
    assert seen_classes(whole, {}) == (whole, [])
