"""Rounds of a discovery: their folders, the labels that lead from one to the next, images that were replaced."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holotype.categories.edits import Edit, append_edits, to_csv
from holotype.categories.found import Discovery
from holotype.data.table import Table
from holotype.discovery import rounds
from holotype.discovery.rounds import (
    SHARED,
    begin_round,
    begun_rounds,
    changed_images,
    confirmed_labels,
    corrected,
    finished_rounds,
    labels_of_round,
    last_round,
    round_folder,
    share_round,
    stamp_images,
    stamps_of_round,
    take_edits,
    with_labels,
)
from holotype.errors import InputError
from tests.discovery.made_round import PATHS, made_discovery


def first() -> Discovery:
    return made_discovery("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})


def end_round(folder: Path, found: Discovery, labels: dict[str, str] | None = None) -> int:
    """A round that has come to its end."""
    number = begin_round(folder, labels or {}, {})
    found.save(round_folder(folder, number))
    (round_folder(folder, number) / "scores.json").write_text("{}")
    return number


def edit(
    run: str, action: str, image: str = "", category: str = "", value: str = "", second: int = 0
) -> Edit:
    return Edit(run, f"2026-01-01T00:00:{second:02d}Z", action, image, category, value)


def test_rounds_are_numbered_and_know_what_they_were_given(tmp_path: Path) -> None:
    assert (begun_rounds(tmp_path), finished_rounds(tmp_path), last_round(tmp_path)) == ([], [], 0)
    assert end_round(tmp_path, first()) == 1
    assert end_round(tmp_path, first(), {"04.png": "boots"}) == 2
    assert (finished_rounds(tmp_path), last_round(tmp_path)) == ([1, 2], 2)
    assert labels_of_round(tmp_path, 2) == {"04.png": "boots"}
    for content in ("{", "[]", '{"a": 1}'):
        (tmp_path / "rounds" / "2" / "labels.json").write_text(content)
        with pytest.raises(InputError, match=r"labels\.json"):
            labels_of_round(tmp_path, 2)


def test_a_stopped_round_goes_on_and_one_of_other_labels_or_images_is_left_alone(tmp_path: Path) -> None:
    """Nothing that was trained is ever taken for something else, and nothing is deleted."""
    assert begin_round(tmp_path, {}, {"a.png": "1-1"}) == 1
    (round_folder(tmp_path, 1) / "state.json").write_text("{}")
    assert begin_round(tmp_path, {}, {"a.png": "1-1"}) == 1
    assert begin_round(tmp_path, {"a.png": "boots"}, {"a.png": "1-1"}) == 2
    assert begin_round(tmp_path, {"a.png": "boots"}, {"a.png": "2-1"}) == 3
    (round_folder(tmp_path, 3) / "labels.json").unlink()  # killed while it was begun
    assert begin_round(tmp_path, {"a.png": "boots"}, {"a.png": "2-1"}) == 4
    assert begun_rounds(tmp_path) == [1, 2, 3, 4]
    assert (round_folder(tmp_path, 1) / "state.json").is_file()
    (round_folder(tmp_path, 4) / "scores.json").write_text("{}")
    assert (finished_rounds(tmp_path), last_round(tmp_path)) == ([4], 4)
    assert (
        begin_round(tmp_path, {"a.png": "boots"}, {"a.png": "2-1"}) == 5
    )  # a finished one is not gone on with


def test_images_that_were_replaced_are_counted(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"one")
        os.utime(tmp_path / name, ns=(1, 1))
    paths = np.array([str(tmp_path / name) for name in ("a.png", "b.png")], dtype=object)
    table = Table(paths, np.array(["", ""], dtype=object), (), root=str(tmp_path))
    before = stamp_images(table)
    assert before == {"a.png": "3-1", "b.png": "3-1"}
    begin_round(tmp_path / "run", {}, before)
    assert stamps_of_round(tmp_path / "run", 1) == before
    assert changed_images(tmp_path / "run", 1, stamp_images(table)) == 0
    (tmp_path / "b.png").write_bytes(b"repaired")
    assert changed_images(tmp_path / "run", 1, stamp_images(table)) == 1


@pytest.mark.parametrize("links", [True, False])
def test_the_run_folder_shares_what_its_last_round_has(tmp_path: Path, monkeypatch, links) -> None:
    if not links:

        def refuse(*_: object) -> None:
            raise OSError("no hard links here")

        monkeypatch.setattr(rounds.os, "link", refuse)
    for number in (1, 2):
        round_folder(tmp_path, number).mkdir(parents=True)
        for name in SHARED:
            (round_folder(tmp_path, number) / name).write_text(f"{name} of {number}")
        for _ in range(2):
            share_round(tmp_path, number)
        for name in SHARED:
            assert (tmp_path / name).read_text() == f"{name} of {number}"
            assert os.path.samefile(tmp_path / name, round_folder(tmp_path, number) / name) == links
    assert (round_folder(tmp_path, 1) / SHARED[0]).read_text() == f"{SHARED[0]} of 1"
    assert not list(tmp_path.glob(".*"))


def test_labels_of_all_rounds_add_up_and_the_later_one_wins(tmp_path: Path) -> None:
    end_round(tmp_path, first())
    groups = {"a": [0, 1, 2, 3], "boots": [4, 5, 6, 7], "new-01": [8, 9, 10, 11]}
    second = made_discovery("r-2", groups, ("a", "boots"))
    second.facts = replace(second.facts, earlier_runs=("r-1",), round=2)
    end_round(tmp_path, second)
    second.save(tmp_path)
    append_edits(
        tmp_path,
        [
            edit("r-1", "confirm", PATHS[4], "new-01", "boots"),
            edit("r-1", "confirm", PATHS[5], "new-01", "boots", 1),
            edit("r-2", "confirm", PATHS[5], "boots", "a", 2),
            edit("r-2", "rename", "", "new-01", "hats", 3),
        ],
    )
    assert confirmed_labels(tmp_path) == {PATHS[4]: "boots", PATHS[5]: "a"}
    found, problems = corrected(tmp_path)
    assert found.category("new-01").name == "hats"
    assert not [problem for problem in problems if "r-1" in problem]


def test_labels_are_kept_by_path_from_the_root(tmp_path: Path) -> None:
    found = first()
    found.facts = replace(found.facts, root="photos")
    end_round(tmp_path, found)
    found.save(tmp_path)
    append_edits(tmp_path, [edit("r-1", "confirm", PATHS[4], "new-01", "boots")])
    assert confirmed_labels(tmp_path) == {"04.png": "boots"}


def test_edits_need_a_discovery_of_theirs(tmp_path: Path) -> None:
    file = tmp_path / "edits.csv"
    file.write_text(to_csv([edit("r-1", "rename", "", "new-01", "boots")]))
    run = tmp_path / "run"
    with pytest.raises(InputError, match="without --edits first"):
        take_edits(run, file)
    end_round(run, first())
    first().save(run)
    take_edits(run, file)
    take_edits(run, file)
    assert corrected(run)[0].category("new-01").name == "boots"
    assert len((run / "edits.csv").read_text().splitlines()) == 2


def test_confirmed_labels_join_the_table() -> None:
    label = np.array(["a", "b", *[""] * 10], dtype=object)
    table = Table(np.array(PATHS, dtype=object), label, ("a", "b"), root="photos")
    assert with_labels(table, {}) is table
    more = with_labels(table, {"01.png": "a", "05.png": "boots", "06.png": "ants"})
    assert more.known == ("a", "ants", "boots")  # nobody is labelled b any more
    assert list(more.label[[0, 1, 5, 6]]) == ["a", "a", "boots", "ants"]


def test_what_a_round_was_given_reads_as_json(tmp_path: Path) -> None:
    begin_round(tmp_path, {"Käfer.png": "=boots"}, {"Käfer.png": "1-2"})
    given = round_folder(tmp_path, 1)
    assert json.loads((given / "labels.json").read_text(encoding="utf-8")) == {"Käfer.png": "=boots"}
    assert json.loads((given / "stamps.json").read_text(encoding="utf-8")) == {"Käfer.png": "1-2"}
