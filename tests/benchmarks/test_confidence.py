"""The study of confidence: its error is the one that is told, and collections of twenty classes count nothing."""

from __future__ import annotations

import confidence
import numpy as np
import pandas as pd
import pytest
from confidence import calibration_error, case_of, measure, numbered, of_one_class
from samples import Case, Found
from twenty import Collection

from holotype.data.table import Table
from holotype.errors import InputError


def test_the_error_is_what_was_promised_less_what_came_true() -> None:
    promised, right = np.array([0.95] * 10 + [0.55] * 10), np.array([True] * 9 + [False] + [True, False] * 5)
    assert calibration_error(promised, right) == pytest.approx(0.5 * 0.05 + 0.5 * 0.05)
    assert calibration_error(np.ones(4), np.ones(4, dtype=bool)) == 0


def test_twenty_classes_are_found_without_their_truth_and_without_a_number(monkeypatch, tmp_path) -> None:
    truth = np.array(["a", "a", "b"], dtype=object)
    table = Table(
        np.array(["1.png", "2.png", "3.png"], dtype=object),
        np.array(["a", "", ""], dtype=object),
        ("a",),
        truth,
    )
    monkeypatch.setattr(confidence, "find_collection", lambda word, roots, work: Collection(word, table, 2))
    case = case_of("cub12-uneven", {"cub": tmp_path}, tmp_path)
    assert case.table.truth is None
    assert case.truth.tolist() == ["a", "a", "b"]
    assert (case.k, case.seed) == ("auto", 12)


def test_a_collection_without_its_folder_is_told(tmp_path) -> None:
    with pytest.raises(InputError, match="--cub"):
        case_of("cub1", {}, tmp_path)


def test_two_categories_of_one_class_are_both_of_one_class(tmp_path) -> None:
    truth = np.array(["a", "a", "b", "b", "b", "c"], dtype=object)
    paths = np.array([f"{i}.png" for i in range(6)], dtype=object)
    table = Table(paths, np.array(["a", "", "", "", "", ""], dtype=object), ("a",))
    category = np.array([0, 0, 1, 2, 2, 2])
    nothing = np.zeros((6, 2), dtype=np.float32)
    found = Found(Case("made", table, truth, "auto", 0), 3, category, np.ones(6), nothing, nothing)
    shares = [of_one_class(found, category == c, c) for c in range(3)]
    assert shares == pytest.approx([1.0, 1.0, 2 / 3])


def test_what_the_discovery_wrote_is_judged_and_the_model_by_its_own_places() -> None:
    """The model errs on one image, of which it is sure; the discovery does not."""
    truth = np.array(["a", "a", "b", "b", "b", "b"], dtype=object)
    paths = np.array([f"{i}.png" for i in range(6)], dtype=object)
    table = Table(paths, np.array(["a", "", "", "", "", ""], dtype=object), ("a",))
    nothing = np.zeros((6, 2), dtype=np.float32)
    said = np.array([0, 1, 1, 1, 1, 1])
    found = Found(Case("made", table, truth, "auto", 0), 2, said, np.ones(6), nothing, nothing)
    images = pd.DataFrame(
        {
            "category_id": ["a", "a", "new-01", "new-01", "new-01", "new-01"],
            "probability": [1.0, 0.9, 0.9, 0.9, 0.9, 0.9],
            "doubtful": [False, True, False, False, False, False],
        }
    )
    assert numbered(list(images["category_id"]), ("a",)).tolist() == [0, 0, 1, 1, 1, 1]
    row = measure(found, images)
    assert (row["all"], row["labelled"], row["categories"]) == (1.0, 1, 2)
    assert row["own_error"] == pytest.approx(0.2)
    assert row["error"] == pytest.approx(0.1)
    assert (row["doubtful"], row["mistakes"]) == (pytest.approx(1 / 6), 0.0)
