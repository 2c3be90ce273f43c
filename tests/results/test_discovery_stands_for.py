"""Sizes in the collection that a sample was drawn from."""

from __future__ import annotations

import pandas as pd

from holotype.results.describe import burst_counts
from holotype.results.discovery import weighted_sizes


def test_weights_are_summed_by_category() -> None:
    images = pd.DataFrame({"category_id": ["a", "b", "a", ""], "weight": [2.5, 1.0, 4.0, 9.0]})
    assert weighted_sizes(images) == {"a": 6, "b": 1}
    assert burst_counts(images, ["a", "b", "empty"])["in_collection"] == ["6", "1", "0"]


def test_nothing_is_said_of_what_is_no_sample() -> None:
    images = pd.DataFrame({"category_id": ["a"]})
    assert weighted_sizes(images) == {}
    assert "in_collection" not in burst_counts(images, ["a"])
