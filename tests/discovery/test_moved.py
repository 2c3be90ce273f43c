"""Images that were moved: paths, edits and names follow them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from holotype.categories.edits import Edit, append_edits, read_log
from holotype.categories.found import Discovery
from holotype.data.table import Table
from holotype.discovery.moved import at_home, follow, relative
from tests.discovery.made_round import PATHS, made_discovery


def table(root: str, paths: list[str]) -> Table:
    return Table(np.array(paths, dtype=object), np.array([""] * len(paths), dtype=object), (), root=root)


def found_in(root: str) -> Discovery:
    found = made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": list(range(4, 12))})
    found.category("new-01").exemplars, found.category("new-01").borderline = PATHS[4:6], PATHS[6:7]
    found.facts = replace(found.facts, root=root)
    return found


def test_paths_are_seen_from_the_root() -> None:
    assert relative(["a/b/c.png", "a/d#3"], "a") == ["b/c.png", "d#3"]
    assert relative(["a/b.png"], "") == ["a/b.png"]


def test_a_round_and_its_edits_follow_the_images(tmp_path: Path) -> None:
    kept = tmp_path / "rounds" / "1"
    found_in("photos").save(kept)
    found_in("photos").save(tmp_path)
    append_edits(tmp_path, [Edit("r-1", "t", "move", PATHS[4], "new-01", "a")])
    append_edits(tmp_path, [Edit("r-1", "t", "rename", "", "new-01", "hats")])
    now = [path.replace("photos", "archive/photos") for path in PATHS]
    for _ in range(2):  # the second time nothing is left to do
        follow(tmp_path, [kept], table("archive/photos", now))
        moved = Discovery.load(kept)
        assert list(moved.images.path) == now
        assert moved.category("new-01").exemplars == now[4:6]
        assert moved.category("new-01").borderline == now[6:7]
        assert (moved.facts.root, moved.facts.earlier_roots) == ("archive/photos", ("photos",))
        assert [edit.image for edit in read_log(tmp_path)] == [now[4], ""]
    back = table("photos", PATHS)
    follow(tmp_path, [kept], back)
    assert Discovery.load(kept).facts.earlier_roots == ("archive/photos",)


def test_other_images_are_not_taken_for_moved_ones(tmp_path: Path) -> None:
    found_in("photos").save(tmp_path)
    before = (tmp_path / "discovery.json").read_bytes()
    follow(tmp_path, [tmp_path], table("elsewhere", [f"elsewhere/other-{i}.png" for i in range(12)]))
    assert (tmp_path / "discovery.json").read_bytes() == before


def test_edits_made_in_an_old_report_find_their_images() -> None:
    found = found_in("photos")
    found.facts = replace(found.facts, earlier_roots=("once", "before/photos"))
    edits = [
        Edit("r-1", "t", "move", image, "", "a")
        for image in ("before/photos/04.png", PATHS[5], "nowhere.png")
    ]
    assert [edit.image for edit in at_home(edits, found)] == [PATHS[4], PATHS[5], "nowhere.png"]
    rename = Edit("r-1", "t", "rename", "", "new-01", "hats")
    assert at_home([rename], found) == [rename]
