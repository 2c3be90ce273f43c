"""What became of each category of the round before, in a table and in words."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from holotype.discovery.collection import Collection
from holotype.discovery.round_diff import (
    CHANGES_FILE,
    MAX_CHANGE_LINES,
    CategoryChange,
    category_changes,
    changes_text,
    write_changes,
)
from holotype.discovery.rounds import round_folder
from holotype.results.apply_edits import apply_edits
from holotype.results.edits import Edit, append_edits
from tests.discovery.made_round import made_discovery

PATHS = [f"{i:02d}" for i in range(32)]
FIRST = {"a": [*range(4)]} | {f"new-0{n}": [*range(4 * n, 4 * n + 4)] for n in range(1, 8)}
SECOND = {
    "a": [0, 1, 2, 3, 4, 5],
    "new-01": [6, 7],  # has lost half to a
    "new-08": [8, 9, 16],  # new-02 fell apart
    "new-09": [10, 11, 17],
    "new-03": [12, 13, 14, 15, 18],
    "new-10": [19, 20, 21, 22, 23],  # has all of new-05
    "new-06": [24, 25, 26, 27, 28, 29, 30, 31],  # took new-07 in, by hand
}


def rows(made: list[CategoryChange]) -> list[tuple[str, str, str, str, int]]:
    return [(c.category_id, c.became, c.by, c.now_id, c.shared) for c in made]


def compared() -> list[CategoryChange]:
    found = made_discovery("r-1", FIRST, paths=PATHS)
    merge = Edit("r-1", "t", "merge", "", "new-07", "new-06")
    rename = Edit("r-1", "t", "rename", "", "new-02", "=hats")
    after = made_discovery("r-2", SECOND, ("a", "new-06"), PATHS)
    return category_changes(found, apply_edits(found, [merge, rename]).discovery, after)


def test_every_category_of_before_and_every_new_one_is_told() -> None:
    assert rows(compared()) == [
        ("a", "kept", "training", "a", 4),
        ("new-01", "split", "training", "new-01", 2),
        ("new-01", "split", "training", "a", 2),
        ("new-02", "split", "training", "new-08", 2),
        ("new-02", "split", "training", "new-09", 2),
        ("new-03", "kept", "training", "new-03", 4),
        ("new-04", "gone", "training", "", 0),
        ("new-05", "merged", "training", "new-10", 4),
        ("new-06", "kept", "training", "new-06", 8),
        ("new-07", "merged", "edits", "new-06", 0),
        ("", "new", "training", "new-08", 0),
        ("", "new", "training", "new-09", 0),
        ("", "new", "training", "new-10", 0),
    ]


def test_the_few_images_that_are_still_there_do_not_speak_for_a_category() -> None:
    """Most files of new-01 and new-02 were taken away, and what is left lies elsewhere."""
    found = made_discovery("r-1", FIRST, paths=PATHS)
    after = made_discovery("r-2", {"a": [*range(9)], "new-03": [*range(9, 32)]}, paths=PATHS)
    after.images = after.images[~after.images.path.isin([*PATHS[5:8], *PATHS[10:12]])]
    made = [row for row in rows(category_changes(found, found, after)) if row[0] in ("new-01", "new-02")]
    assert made == [("new-01", "gone", "training", "", 0), ("new-02", "gone", "training", "", 0)]


def test_what_edits_have_ended_is_told_as_theirs() -> None:
    found = made_discovery("r-1", FIRST, paths=PATHS)
    edits = [Edit("r-1", "t", "reject", "", "new-01")]
    edits += [Edit("r-1", "t", "move", PATHS[i], "new-02", "a") for i in FIRST["new-02"]]
    before = apply_edits(found, edits).discovery
    made = category_changes(found, before, made_discovery("r-2", {"a": [*range(32)]}, paths=PATHS))
    assert [row for row in rows(made) if row[2] == "edits"] == [
        ("new-01", "rejected", "edits", "", 0),
        ("new-02", "gone", "edits", "", 0),
    ]


def test_a_few_sentences(tmp_path: Path) -> None:
    lines = changes_text(compared(), 1, tmp_path / CHANGES_FILE)
    assert lines == [
        "Kept from round 1: 3 categories (a, new-03, new-06).",
        "new-01 was split into new-01 (2 images) and a (2 images).",
        "=hats was split into new-08 (2 images) and new-09 (2 images).",
        "new-04 is gone; its images are in several others or in none.",
        "new-05 was merged into new-10.",
        "new-07 was merged into new-06.",
        "New: new-08 (3 images), new-09 (3 images), new-10 (5 images).",
    ]
    one = [CategoryChange("a", "a", 1, "kept", "training", "a", "a", 1, 1)]
    assert changes_text(one, 1, tmp_path / CHANGES_FILE) == ["Kept from round 1: 1 category (a)."]
    many = [CategoryChange(f"new-{i}", f"new-{i}", 1, "gone", "training") for i in range(30)]
    lines = changes_text(many, 1, tmp_path / CHANGES_FILE)
    assert len(lines) == MAX_CHANGE_LINES + 1
    assert lines[-1] == f"19 more lines are in {tmp_path / CHANGES_FILE}."


def test_the_table_is_written_once_and_safe_for_spreadsheets(tmp_path: Path) -> None:
    first, second = (round_folder(tmp_path, n) for n in (1, 2))
    made_discovery("r-1", FIRST, paths=PATHS).save(first)
    made_discovery("r-2", SECOND, ("a", "new-06"), PATHS).save(second)
    for folder in (first, second):
        (folder / "scores.json").write_text("{}")
    append_edits(tmp_path, [Edit("r-1", "t", "rename", "", "new-02", "=hats")])
    assert write_changes(tmp_path, 1, Collection()) == []
    assert write_changes(tmp_path, 2, Collection())[0].startswith("Kept from round 1")
    assert write_changes(tmp_path, 2, Collection()) == []
    frame = pd.read_csv(second / CHANGES_FILE, keep_default_na=False)
    assert set(frame.category_id) == {*FIRST, ""}
    assert "'=hats" in set(frame.category)
