"""Edits of an earlier round that never reached the run folder: which fit the new round, which do not and why."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from holotype.report.build import unreported_data
from holotype.report.page_data import page_data, select_shown
from holotype.report.redact import build_redactor, redact_names_in_data
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit
from report.javascript import run_javascript
from report.made import make_discovery

OLD, NEW = "run-old-1", "run-made-1"


def discovery(tmp_path: Path) -> Discovery:
    found = make_discovery(tmp_path / "now", 40)
    found.images["digest"] = [f"{i:04x}" for i in range(len(found.images))]
    facts = dataclasses.replace(found.facts, round=2, earlier_runs=(OLD,), root=str(tmp_path / "now"))
    return dataclasses.replace(found, facts=facts)


def carry(found, stored, edits=(), log=(), nameless_by=None) -> Any:
    digest = dict(zip(found.images["path"], found.images["digest"], strict=True))
    data = page_data(found, select_shown(found), Path("run"), list(log), None)
    data["earlier_log"] = unreported_data(log, data["log"])
    data = redact_names_in_data(data, nameless_by) if nameless_by else data
    given = {
        "discovery": json.loads(json.dumps(data)),
        "stored": [dataclasses.asdict(edit) for edit in stored],
        "edits": [dataclasses.asdict(edit) | {"digest": digest[edit.image]} for edit in edits],
    }
    (result,) = run_javascript("carryOver", [given])
    return [Edit(**edit) for edit in result["take"]], [(Edit(**edit), why) for edit, why in result["left"]]


def test_what_fits_becomes_an_edit_of_this_round_and_the_rest_says_why(tmp_path):
    found = discovery(tmp_path)
    one, two, three = found.images["path"][found.images["category_id"] == "new-01"][:3]
    stored = [
        Edit(OLD, "t1", "rename", "", "new-01", "Hawk"),
        Edit(OLD, "t2", "move", one, "new-01", "Owl"),
        Edit(OLD, "t3", "confirm", two, "new-01", "new-01"),
        Edit(OLD, "t4", "move", "gone.png", "new-01", "new-02"),
        Edit(OLD, "t5", "move", three, "new-01", "new-77"),
        Edit(OLD, "t6", "merge", "", "new-78", "new-01"),
        Edit(OLD, "t7", "merge", "", "new-03", "new-02"),
        Edit(OLD, "t8", "reject", three, "new-01"),
    ]
    take, left = carry(found, stored)
    digest = dict(zip(found.images["path"], found.images["digest"], strict=True)) | {"": ""}
    fits = [stored[at] for at in (0, 1, 2, 6, 7)]
    assert take == [dataclasses.replace(edit, run_id=NEW, digest=digest[edit.image]) for edit in fits]
    assert [(edit.time, why.split()[3]) for edit, why in left] == [
        ("t4", "image"), ("t5", "category"), ("t6", "category")
    ]  # fmt: skip


def test_the_later_edit_counts_wherever_it_was_made(tmp_path):
    found = discovery(tmp_path)
    one, two, three = found.images["path"][:3]
    stored = [Edit(OLD, "2026-01-01", "move", image, "", "new-01") for image in (one, two, three)]
    log = (Edit(OLD, "2026-01-03", "confirm", two, "", "Bag"), Edit(OLD, "2025-12-31", "reject", three, ""))
    take, left = carry(found, stored, edits=(Edit(NEW, "2026-01-02", "reject", one, ""),), log=log)
    assert [edit.image for edit in take] == [three]
    why = "A later edit says what counts."
    assert [(edit.image, said) for edit, said in left] == [(image, why) for image in (one, two)]


def test_what_the_run_folder_or_this_round_has_is_not_offered(tmp_path):
    """Not those in the log, of whichever round, and not those that were taken over and are not exported yet."""
    found = discovery(tmp_path)
    paths = list(found.images["path"][:4])
    stored = [Edit(OLD, f"t{i}", "move", path, "", "new-01") for i, path in enumerate(paths)]
    log = (stored[0], dataclasses.replace(stored[1], run_id=NEW))
    take, left = carry(found, stored * 2, edits=(dataclasses.replace(stored[2], run_id=NEW),), log=log)
    assert [edit.image for edit in take] == paths[3:]
    assert left == []


def test_it_follows_images_that_were_moved(tmp_path):
    found = discovery(tmp_path)
    stored = [Edit(OLD, "t", "move", "/then/x.png", "", "new-01", found.images["digest"][0])]
    assert carry(found, stored)[0] == [dataclasses.replace(stored[0], run_id=NEW)]
    here = str(found.images["path"][0])
    assert carry(found, stored, log=(dataclasses.replace(stored[0], image=here),)) == ([], [])


def test_a_short_name_of_an_image_that_is_gone_means_no_other_image(tmp_path):
    """The page calls images from their root: fox/one.png is not the one.png that lies there."""
    found = discovery(tmp_path)
    paths = [str(path) for path in found.images["path"]]
    hide = build_redactor(paths, found.facts.root, tmp_path / "run")
    folder, _, one = hide.image(paths[0]).rpartition("/")
    assert folder
    hide = dataclasses.replace(hide, names={**hide.names, paths[0]: one})
    stored = [Edit(OLD, "t1", "reject", f"filed away/{one}"), Edit(OLD, "t2", "reject", paths[1])]
    take, left = carry(found, stored, nameless_by=hide)
    # told by its whole path in an older report
    assert [edit.image for edit in take] == [hide.image(paths[1])]
    assert [why for _, why in left] == [f"There is no image filed away/{one} in this report."]
