"""What the rounds of a discovery and their edits come to where images have copies and files of edits come late."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from holotype.discovery.collection import Collection, ImageEntry
from holotype.discovery.rounds import replay_edits, round_folder
from holotype.results.apply_edits import apply_log
from holotype.results.discovery import Discovery
from holotype.results.edits import append_edits
from tests.discovery.made_round import PATHS
from tests.discovery.test_rounds import edit, end_round, first, two_rounds


def test_a_name_that_comes_late_is_in_the_words_of_the_round_after_it(tmp_path: Path) -> None:
    two_rounds(tmp_path)
    second = Discovery.load(round_folder(tmp_path, 2))
    second.category("new-02").words, second.category("new-02").suggested = (
        "closest to new-01 0.50 and a 0.40",
        "near new-01, new 1",
    )
    second.save(round_folder(tmp_path, 2))
    append_edits(tmp_path, [edit("r-1", "rename", "", "new-01", "boots")])
    played = replay_edits(tmp_path)
    assert played.applied is not None
    told = (played.applied.discovery, apply_log(tmp_path, played.before.names).discovery)
    for category in (found.category("new-02") for found in told):
        assert (category.words, category.suggested) == (
            "closest to boots 0.50 and a 0.40",
            "near boots, new 1",
        )


def test_a_round_knows_copies_by_the_content_that_it_saw(tmp_path: Path) -> None:
    """What a person said of one of two copies is not contradicted by what follows from a merge of the other's."""
    names = [Path(path).name for path in PATHS]
    same = {"05.png": "4"}
    seen = Collection("photos", {name: ImageEntry("1", same.get(name, str(int(name[:2])))) for name in names})
    found = first()
    found.facts = replace(found.facts, root="photos")
    end_round(tmp_path, found, seen=seen)
    append_edits(
        tmp_path,
        [edit("r-1", "move", PATHS[4], "new-01", "odd"), edit("r-1", "merge", "", "new-02", "new-01")],
    )
    merged = dict.fromkeys(names[6:], "new-01")
    assert replay_edits(tmp_path).given.labels == {"04.png": "odd"} | merged


def test_an_edit_counts_again_when_the_label_that_overruled_it_is_taken_away(tmp_path: Path) -> None:
    """As where --unlabelled was forgotten once: a heap was a class for a round, and nobody meant it."""
    found = first()
    found.facts = replace(found.facts, root="photos")
    end_round(tmp_path, found)
    append_edits(
        tmp_path,
        [edit("r-1", "confirm", PATHS[4], "new-01", "a"), edit("r-1", "reject", PATHS[5], "new-01", "", 1)],
    )
    heap = {name: ImageEntry("1-1", name, "heap", relabelled=True) for name in ("04.png", "05.png")}
    second = replace(found, run_id="r-2", facts=replace(found.facts, round=2, earlier_runs=("r-1",)))
    end_round(tmp_path, second, seen=Collection("photos", heap))
    Collection("photos", heap).save(tmp_path)
    assert (replay_edits(tmp_path).given.labels, replay_edits(tmp_path).given.rejected) == ({}, frozenset())
    Collection("photos", heap | {"05.png": ImageEntry("1-1", "05.png")}).save(tmp_path)
    assert (replay_edits(tmp_path).given.labels, replay_edits(tmp_path).given.rejected) == ({}, {"05.png"})
    played = replay_edits(tmp_path, labels={"04.png": "", "05.png": ""})
    assert (played.given.labels, played.given.rejected) == ({"04.png": "a"}, {"05.png"})
    assert "1 rejected, 1 confirmed. They give 1 label" in played.told(3, heap.keys(), tmp_path)[0]
