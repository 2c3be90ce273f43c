"""Rounds of a discovery: their folders, what they were begun with, the labels that lead from one to the next."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.collection import Collection, ImageEntry
from holotype.discovery.constraints import Constraints
from holotype.discovery.plan import RoundPlan
from holotype.discovery.round_config import RoundConfig
from holotype.discovery.rounds import (
    EditHistory,
    corrected_rounds,
    count_edits,
    edits_in,
    finished_rounds,
    inputs_of,
    last_round,
    pending_edits,
    replay_edits,
    round_folder,
    save_corrected,
    started_rounds,
)
from holotype.errors import InputError
from holotype.results.discovery import Discovery
from holotype.results.edits import Edit, append_edits, edits_csv
from tests.discovery.made_round import PATHS, made_discovery


def first() -> Discovery:
    return made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})


SETTINGS = {"k": 4, "bursts": "auto", "seeds": "auto"}
ASKED = RoundConfig(SETTINGS, SETTINGS, "cpu", "photos")


ONE_IMAGE = Collection("photos", {"a.png": ImageEntry("3-1", "1")})
TABLE = Table(path=np.array([], dtype=object), label=np.array([], dtype=object), known=())


def start(
    folder: Path, given: Constraints | None = None, seen: Collection = ONE_IMAGE, asked: RoundConfig = ASKED
) -> int:
    """Begin a round or resume it; its number."""
    history = EditHistory(given=given or Constraints())
    return RoundPlan(folder, DiscoverConfig(), TABLE, seen, asked, history).start()


def end_round(
    folder: Path, found: Discovery, labels: dict[str, str] | None = None, seen: Collection | None = None
) -> int:
    """A round that has come to its end."""
    number = start(folder, Constraints(labels or {}), seen or Collection("photos"))
    found.save(round_folder(folder, number))
    (round_folder(folder, number) / "scores.json").write_text("{}")
    return number


def edit(
    run: str, action: str, image: str = "", category: str = "", value: str = "", second: int = 0
) -> Edit:
    return Edit(run, f"2026-01-01T00:00:{second:02d}Z", action, image, category, value)


def test_rounds_are_numbered_and_know_what_they_were_given(tmp_path: Path) -> None:
    assert (started_rounds(tmp_path), finished_rounds(tmp_path), last_round(tmp_path)) == ([], [], 0)
    assert end_round(tmp_path, first()) == 1
    assert end_round(tmp_path, first(), {"04.png": "boots"}) == 2
    assert (finished_rounds(tmp_path), last_round(tmp_path)) == ([1, 2], 2)
    assert inputs_of(tmp_path, 2).labels == {"04.png": "boots"}
    for name, contents in (("labels.json", ("{", "[]", '{"a": 1}')), ("rejected.json", ("{}", "[1]"))):
        before = (tmp_path / "rounds" / "1" / name).read_text()
        for content in contents:
            (tmp_path / "rounds" / "1" / name).write_text(content)
            with pytest.raises(InputError, match=name):
                inputs_of(tmp_path, 1)
        (tmp_path / "rounds" / "1" / name).write_text(before)


def test_a_stopped_round_goes_on_and_one_of_other_labels_or_images_is_left_alone(tmp_path: Path) -> None:
    """Nothing that was trained is ever taken for something else, and nothing is deleted."""
    boots = Constraints({"a.png": "boots"})
    other = Collection("photos", {"a.png": ImageEntry("3-1", "2")})
    assert start(tmp_path) == 1
    (round_folder(tmp_path, 1) / "state.json").write_text("{}")
    assert start(tmp_path, Constraints(names={"new-01": "hats"})) == 1  # a name changes nothing
    assert start(tmp_path, boots) == 2
    assert start(tmp_path, boots, other) == 3
    (round_folder(tmp_path, 3) / "round.json").unlink()  # killed while it was begun
    assert start(tmp_path, boots, other) == 3  # nothing was trained: it is begun anew
    (round_folder(tmp_path, 3) / "round.json").unlink()
    (round_folder(tmp_path, 3) / "identity.json").write_text("{}")  # was trained
    assert start(tmp_path, boots, other) == 4
    out = replace(boots, rejected=frozenset({"b.png"}))
    assert start(tmp_path, out, other) == 5
    assert start(tmp_path, out, other) == 5
    assert inputs_of(tmp_path, 5) == out
    assert started_rounds(tmp_path) == [1, 2, 3, 4, 5]
    assert (round_folder(tmp_path, 1) / "state.json").is_file()
    (round_folder(tmp_path, 5) / "scores.json").write_text("{}")
    assert (finished_rounds(tmp_path), last_round(tmp_path)) == ([5], 5)
    assert start(tmp_path, out, other) == 6  # a finished one is not gone on with


@pytest.mark.parametrize("change", [{"taken": SETTINGS | {"k": 5}}, {"device": "cuda"}, {"title": "archive"}])
def test_a_stopped_round_of_other_settings_is_left_alone(change: dict, tmp_path: Path) -> None:
    """Its training would be another one."""
    assert start(tmp_path) == 1
    assert start(tmp_path, asked=replace(ASKED, **change)) == 2


def test_a_stopped_round_whose_images_were_renamed_or_labelled_is_left_alone(tmp_path: Path) -> None:
    assert start(tmp_path) == 1
    for number, seen in enumerate(
        ({"b.png": ImageEntry("3-1", "1")}, {"b.png": ImageEntry("3-1", "1", "red")}), start=2
    ):
        assert start(tmp_path, seen=Collection("photos", seen)) == number
    touched = {"b.png": ImageEntry("3-2", "1", "red"), "c.png": ImageEntry("3-1", "2", here=False)}
    assert start(tmp_path, seen=Collection("archive", touched)) == 3


def test_a_later_label_counts_and_not_the_edit_before_it(tmp_path: Path) -> None:
    """A person moved two images in the report, and later gave one of them a label of its own."""
    found = first()
    found.facts = replace(found.facts, root="photos")
    end_round(tmp_path, found)
    found.save(tmp_path)
    said = [edit("r-1", "move", PATHS[4], "new-01", "a"), edit("r-1", "reject", PATHS[5], "new-01", "", 1)]
    append_edits(tmp_path, said)
    second = replace(found, run_id="r-2", facts=replace(found.facts, round=2, earlier_runs=("r-1",)))
    labelled = {
        "04.png": ImageEntry("1-1", "4", "b", relabelled=True),
        "05.png": ImageEntry("1-1", "5", "a", relabelled=True),
    }
    played = replay_edits(tmp_path)
    assert (played.given.labels, played.given.rejected) == ({"04.png": "a"}, {"05.png"})
    end_round(tmp_path, second, seen=Collection("photos", labelled))
    second.save(tmp_path)
    played = replay_edits(tmp_path)
    assert (played.given.labels, played.given.rejected) == ({}, frozenset())
    (line,) = played.told(3, {"04.png", "05.png"}, tmp_path)
    assert "take part in round 3: none; 2 more were overruled by later edits or labels" in line
    append_edits(tmp_path, [edit("r-2", "move", PATHS[4], "new-01", "a", 2)])
    assert replay_edits(tmp_path).given.labels == {"04.png": "a"}  # and this was said later still


def two_rounds(folder: Path) -> None:
    """In the second one new-01 is a class, and the other new category has kept its id."""
    end_round(folder, first())
    groups = {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]}
    second = made_discovery("r-2", groups, ("a", "new-01"))
    second.facts = replace(second.facts, earlier_runs=("r-1",), round=2)
    end_round(folder, second, {PATHS[4]: "new-01", PATHS[5]: "new-01"})
    second.save(folder)


def test_edits_of_all_rounds_add_up_and_the_later_one_wins(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    append_edits(
        tmp_path,
        [
            edit("r-1", "confirm", PATHS[4], "new-01", "new-01"),
            edit("r-1", "confirm", PATHS[5], "new-01", "new-01", 1),
            edit("r-2", "confirm", PATHS[5], "boots", "a", 2),
            edit("r-2", "rename", "", "new-02", "hats", 3),
            edit("r-2", "rename", "", "new-09", "caps", 4),
            edit("r-9", "rename", "", "new-02", "caps", 5),
        ],
    )
    played = replay_edits(tmp_path)
    assert played.given.labels == {PATHS[4]: "new-01", PATHS[5]: "a"}
    assert played.before.labels == {PATHS[4]: "new-01", PATHS[5]: "new-01"}
    assert played.runs == ("r-1", "r-2")
    assert played.taken >= {"a", "new-01", "new-02", "hats"}
    assert played.applied is not None
    assert played.applied.discovery.category("new-02").name == "hats"
    lines = played.told(3, set(PATHS), tmp_path)
    assert "2 confirmed" in lines[0]
    assert "1 renamed" in lines[0]
    assert "1 more was overruled" in lines[0]
    for words in ("'new-09' is not in this run", "1 edit of run 'r-9'"):
        assert len([line for line in lines if words in line]) == 1
    assert pending_edits(tmp_path) == (1, 0)


def test_a_file_of_the_round_before_is_not_lost(tmp_path: Path) -> None:
    """Somebody corrected the first report, and hands the file in when the second round is done."""
    two_rounds(tmp_path)
    file = tmp_path / "late.csv"
    file.write_text(
        edits_csv(
            [
                edit("r-1", "rename", "", "new-02", "hats"),
                edit("r-1", "rename", "", "new-01", "boots", 1),
                edit("r-1", "reject", PATHS[9], "new-02", "", 2),
                edit("r-1", "confirm", PATHS[4], "new-01", "new-01", 3),
                edit("r-1", "confirm", PATHS[5], "new-01", "new-01", 4),
            ]
        )
    )
    append_edits(tmp_path, edits_in(tmp_path, file))
    played = replay_edits(tmp_path)
    assert played.applied is not None
    assert {c.id: c.name for c in played.applied.discovery.categories} == {
        "a": "a",
        "new-01": "boots",
        "new-02": "hats",
    }
    assert played.given.rejected == {PATHS[9]}
    assert pending_edits(tmp_path) == (0, 1)


def test_what_a_late_file_takes_back_stays_taken_back(tmp_path: Path) -> None:
    """An image was rejected, and the second round was made without it; a file of the first report moves it, and comes
    when the second round is done."""
    two_rounds(tmp_path)
    own = round_folder(tmp_path, 2)
    second = Discovery.load(own)
    row = second.images.path == PATHS[9]
    second.images.loc[row, ["category", "category_id", "kind"]] = ""
    second.images.loc[row, "note"] = "rejected"
    second.save(own)
    append_edits(tmp_path, [edit("r-1", "reject", PATHS[9], "new-02")])
    assert replay_edits(tmp_path).given.rejected == {PATHS[9]}
    append_edits(tmp_path, [edit("r-1", "move", PATHS[9], "", "a", 1)])
    played = replay_edits(tmp_path)
    assert played.given.rejected == frozenset()
    assert played.given.labels == {PATHS[9]: "a"}
    append_edits(tmp_path, [edit("r-2", "reject", PATHS[8], "new-02", "", 2)])
    assert replay_edits(tmp_path).given.rejected == {PATHS[8]}


def test_the_corrected_table_of_a_round_is_kept(tmp_path: Path) -> None:
    end_round(tmp_path, first())
    first().save(tmp_path)
    append_edits(tmp_path, [edit("r-1", "merge", "", "new-01", "new-02")])
    assert corrected_rounds(tmp_path) == []
    save_corrected(tmp_path, replay_edits(tmp_path))
    (kept,) = corrected_rounds(tmp_path)
    assert Discovery.load(kept).category("new-02").n == 8
    assert Discovery.load(round_folder(tmp_path, 1)).category("new-02").n == 4


def test_a_file_of_edits_in_words() -> None:
    assert count_edits(3, 3) == "3 edits"
    assert count_edits(3, 1) == "3 edits, 1 of them new and the others applied already"
    assert count_edits(1, 0) == "1 edit, applied already"
    assert count_edits(0, 0) == "0 edits"


def test_labels_are_kept_by_path_from_the_root(tmp_path: Path) -> None:
    found = first()
    found.facts = replace(found.facts, root="photos")
    end_round(tmp_path, found)
    found.save(tmp_path)
    append_edits(tmp_path, [edit("r-1", "confirm", PATHS[4], "new-01", "boots")])
    assert replay_edits(tmp_path).given.labels == {"04.png": "boots"}


def test_edits_need_a_discovery_of_theirs(tmp_path: Path) -> None:
    file = tmp_path / "edits.csv"
    file.write_text(edits_csv([edit("r-1", "rename", "", "new-01", "boots")]))
    with pytest.raises(InputError, match="without --edits first"):
        edits_in(tmp_path / "run", file)


def test_what_a_round_was_given_reads_as_json(tmp_path: Path) -> None:
    start(tmp_path, Constraints({"Käfer.png": "=boots"}, frozenset({"ö.png"})))
    given = round_folder(tmp_path, 1)
    assert json.loads((given / "labels.json").read_text(encoding="utf-8"))["by_path"] == {
        "Käfer.png": "=boots"
    }
    assert json.loads((given / "rejected.json").read_text(encoding="utf-8"))["by_path"] == ["ö.png"]
    assert json.loads((given / "round.json").read_text(encoding="utf-8"))["settings"] == SETTINGS
