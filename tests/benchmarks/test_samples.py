"""The collections of the benchmarks: parts of the sample, and what is right in them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from samples import Case, draw_part, find_case, given_words, is_right, write_record

from holotype.data.table import Table
from holotype.errors import InputError


def whole() -> tuple[Table, np.ndarray]:
    truth = np.array([f"c{i % 10}" for i in range(1000)], dtype=object)
    return Table(np.array([f"{i}.png" for i in range(1000)], dtype=object), np.full(1000, ""), ()), truth


@pytest.mark.parametrize("seed", range(6))
def test_a_part_has_half_of_its_classes_known_and_true_labels(seed) -> None:
    case = draw_part(*whole(), seed)
    classes = set(case.truth)
    assert len(classes) in (6, 8, 10)
    assert len(case.table.known) == len(classes) // 2
    assert case.k == (len(classes) if seed % 2 else "auto")
    labelled = case.table.labelled
    assert (case.table.label[labelled] == case.truth[labelled]).all()
    assert all((case.table.label == name).sum() >= 2 for name in case.table.known)
    again = draw_part(*whole(), seed)
    assert list(again.table.path) == list(case.table.path)
    assert list(again.table.label) == list(case.table.label)


def test_one_category_is_right_for_each_class() -> None:
    truth = np.array(list("aaaabbbbcc"), dtype=object)
    label = np.array(["a", *[""] * 9], dtype=object)
    case = Case("made", Table(np.array(list("0123456789"), dtype=object), label, ("a",)), truth, 3, 0)
    category = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2])
    assert is_right(case, category).tolist() == [*[True] * 3, False, *[True] * 3, False, True, True]


def test_another_name_is_one_sentence(tmp_path) -> None:
    with pytest.raises(InputError, match="'whole' is no collection"):
        find_case("whole", tmp_path)


def test_a_record_says_how_it_was_made(tmp_path) -> None:
    write_record(tmp_path / "a" / "b.json", "labelling.py", ["full0"], {"rows": []})
    record = json.loads((tmp_path / "a" / "b.json").read_text())
    assert record["command"] == "python benchmarks/labelling.py full0"
    assert {"commit", "hardware", "backbone", "steps", "rows"} <= set(record)
    assert record["backbone"] == "embedded"


def test_a_record_does_not_name_the_folders_of_whoever_made_it() -> None:
    words = ["full0", "--work", "/somewhere", "--seeds", "0", "1", "--out", "a.json"]
    assert given_words(words) == ["full0", "--seeds", "0", "1"]
    assert given_words(["cub0", "--cub", "/somewhere", "--way", "whole"]) == ["cub0", "--way", "whole"]
    assert given_words(["part1"]) == ["part1"]
