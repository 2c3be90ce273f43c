"""Rounds of a discovery: their names, the labels that lead from one to the next, and names that stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from holotype.categories.edits import Edit, append_edits, to_csv
from holotype.categories.found import Category, Discovery
from holotype.data.table import Table
from holotype.discovery.rounds import (
    carry_names,
    confirmed_labels,
    corrected,
    finished_rounds,
    labels_of_round,
    run_id,
    save_round,
    take_edits,
    with_labels,
)
from holotype.errors import InputError

PATHS = [f"photos/{i:02d}.png" for i in range(12)]


def make(run: str, groups: dict[str, list[int]], known: tuple[str, ...] = ("a",)) -> Discovery:
    """groups: category id and the numbers of its images."""
    id_of = {i: id for id, rows in groups.items() for i in rows}
    ids = [id_of[i] for i in range(len(PATHS))]
    frame = pd.DataFrame({"path": PATHS, "label": "", "category": ids, "category_id": ids})
    frame["kind"] = ["known" if id in known else "novel" for id in ids]
    frame = frame.assign(
        probability=0.9, known_score=0.5, typicality=0.5, doubtful=False, x=0.0, y=0.0, problem="", note=""
    )
    categories = [
        Category(id, id, "known" if id in known else "novel", len(rows), signature=[0.5] * len(known))
        for id, rows in groups.items()
    ]
    return Discovery(run, known, frame, categories, None, {"round": 1})


def first() -> Discovery:
    return make("r-1", {"a": [0, 1, 2, 3], "new-01": [4, 5, 6, 7], "new-02": [8, 9, 10, 11]})


def edit(
    run: str, action: str, image: str = "", category: str = "", value: str = "", second: int = 0
) -> Edit:
    return Edit(run, f"2026-01-01T00:00:{second:02d}Z", action, image, category, value)


def test_a_folder_keeps_its_name_and_rounds_are_numbered(tmp_path: Path) -> None:
    assert run_id(tmp_path, 1) == run_id(tmp_path, 1) != run_id(tmp_path, 2)
    assert run_id(tmp_path, 1) != run_id(tmp_path / "other", 1)
    assert finished_rounds(tmp_path) == 0
    save_round(tmp_path, 1, first(), {})
    save_round(tmp_path, 2, make("r-2", {"a": list(range(12))}), {PATHS[4]: "boots"})
    assert finished_rounds(tmp_path) == 2
    assert labels_of_round(tmp_path, 2) == {PATHS[4]: "boots"}
    (tmp_path / "rounds" / "2" / "labels.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        labels_of_round(tmp_path, 2)


def test_labels_of_all_rounds_add_up_and_the_later_one_wins(tmp_path: Path) -> None:
    save_round(tmp_path, 1, first(), {})
    second = make("r-2", {"a": [0, 1, 2, 3], "boots": [4, 5, 6, 7], "new-01": [8, 9, 10, 11]}, ("a", "boots"))
    second.facts["earlier_runs"] = ["r-1"]
    save_round(tmp_path, 2, second, {})
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


def test_edits_need_a_discovery_of_theirs(tmp_path: Path) -> None:
    file = tmp_path / "edits.csv"
    file.write_text(to_csv([edit("r-1", "rename", "", "new-01", "boots")]))
    run = tmp_path / "run"
    with pytest.raises(InputError, match="without --edits first"):
        take_edits(run, file)
    save_round(run, 1, first(), {})
    first().save(run)
    take_edits(run, file)
    take_edits(run, file)
    assert corrected(run)[0].category("new-01").name == "boots"
    assert len((run / "edits.csv").read_text().splitlines()) == 2


def test_confirmed_labels_join_the_table() -> None:
    label = np.array(["a", "b", *[""] * 10], dtype=object)
    table = Table(np.array(PATHS, dtype=object), label, ("a", "b"))
    assert with_labels(table, {}) is table
    more = with_labels(table, {PATHS[1]: "a", PATHS[5]: "boots", PATHS[6]: "ants"})
    assert more.known == ("a", "ants", "boots")  # nobody is labelled b any more
    assert list(more.label[[0, 1, 5, 6]]) == ["a", "a", "boots", "ants"]


def test_names_stay_with_the_images() -> None:
    before = first()
    before.category("new-02").name = "hats"
    before.images.loc[8:, "category"] = "hats"
    found = make("r-2", {"a": [0, 1, 2, 3, 4], "new-01": [8, 9, 10, 11], "new-02": [5, 6, 7]})
    carry_names(before, found)
    assert found.category("new-01").name == "hats"
    assert set(found.images.category[8:]) == {"hats"}
    assert found.category("new-02").name == "new-02"


def test_a_name_is_not_given_to_something_else() -> None:
    before = first()
    before.category("new-02").name = "hats"
    before.images.loc[8:, "category"] = "hats"
    apart = make("r-2", {"a": [0, 1, 8, 9], "new-01": [2, 3, 4, 10], "new-02": [5, 6, 7, 11]})
    carry_names(before, apart)
    assert {c.name for c in apart.categories} == {"a", "new-01", "new-02"}
    known = make("r-2", {"a": [0, 1, 2, 3], "hats": [4, 5, 6, 7], "new-01": [8, 9, 10, 11]}, ("a", "hats"))
    carry_names(before, known)
    assert known.category("new-01").name == "new-01"
