"""Bursts among categories: counted once, and doubtful where the model parts them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from holotype.results.describe import burst_counts, burst_events, burst_text, note_bursts


def test_a_burst_counts_once_in_each_category() -> None:
    images = pd.DataFrame(
        {"category_id": ["fox", "fox", "fox", "deer", "", "fox"], "group": ["1", "1", "", "1", "1", ""]}
    )
    assert burst_events(images) == {"fox": 3, "deer": 1}
    assert not burst_events(images.drop(columns="group"))


def test_in_words() -> None:
    assert burst_text(["1", "1", "2", "2", "2", "3", ""]) == "5 frames of 2 bursts"
    assert burst_text(["1", "1"]) == "2 frames of 1 burst"
    assert burst_text(["1", "2", ""]) == ""


def test_frames_apart_from_their_burst_are_doubtful() -> None:
    group = np.array(["1", "1", "1", "2", "2", "3", "3", "", "3"], dtype=object)
    category = np.array([0, 0, 1, 0, 1, 1, 1, 0, -1])
    labelled = np.zeros(9, dtype=bool)
    labelled[4] = True
    note, odd = note_bursts(["", "", "cut", *[""] * 6], group, category, labelled, ["fox", "deer", ""])
    assert odd.tolist() == [False, False, True, True, False, False, False, False, False]
    assert note[2] == "cut; most frames of its burst are in fox"
    assert note[3] == "the frames of its burst lie in several categories"
    assert note[4] == ""


def test_a_table_of_categories_tells_bursts_times_and_cameras() -> None:
    images = pd.DataFrame(
        {
            "category_id": ["fox", "fox", "deer", ""],
            "group": ["1", "1", "", ""],
            "taken": ["2024-05-02T01:00:00", "2024-05-01T01:00:00", "", "1999-01-01T00:00:00"],
            "camera": ["a", "b", "a", "c"],
        }
    )
    assert burst_counts(images, ["fox", "deer"]) == {
        "bursts": ["1", "1"],
        "first_taken": ["2024-05-01T01:00:00", ""],
        "last_taken": ["2024-05-02T01:00:00", ""],
        "cameras": ["2", "1"],
    }
    assert burst_counts(images[["category_id"]], ["fox"]) == {}
