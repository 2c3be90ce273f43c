"""Labels as people write them: whatever is missing is no label, and names stay names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from holotype.discovery.estimator import to_label_column
from holotype.errors import InputError

MISSING = [None, "", float("nan"), np.float32("nan"), np.float64("nan"), pd.NaT, np.datetime64("NaT"), pd.NA]


@pytest.mark.parametrize("nothing", MISSING)
def test_what_is_missing_is_no_label(nothing) -> None:
    assert to_label_column(["a", nothing], 2) == ["a", ""]
    assert to_label_column(pd.Series(["a", nothing], dtype=object), 2) == ["a", ""]


@pytest.mark.parametrize("kind", [np.float32, np.float64, "Int64", "string", "category", "datetime64[ns]"])
def test_what_is_missing_in_a_column_is_no_label(kind) -> None:
    value = "2026-01-02" if kind == "datetime64[ns]" else 7
    first, second = to_label_column(pd.Series([value, None], dtype=object).astype(kind), 2)
    assert first.startswith("2026-01-02" if kind == "datetime64[ns]" else "7")
    assert second == ""


def test_labels_as_people_write_them() -> None:
    assert to_label_column(None, 2) == ["", ""]
    assert to_label_column([" b ", "001"], 2) == ["b", "001"]
    assert to_label_column(np.array([0, -1, 2]), 3) == ["0", "", "2"]
    assert to_label_column([0, -1, None, np.int64(2)], 4) == ["0", "", "", "2"]
    assert to_label_column(np.array([1.0, np.nan, -1.0], dtype=np.float32), 3) == ["1", "", ""]
    assert to_label_column(["a", -1], 2) == ["a", "-1"]  # among names it is one
    assert to_label_column(["-1", "0"], 2) == ["-1", "0"]
    assert to_label_column([0.5, -1], 2) == ["0.5", "-1"]
    assert to_label_column([True, False], 2) == ["True", "False"]
    assert to_label_column(np.array(["a", "nan", "NaT", "None"]), 4) == ["a", "nan", "NaT", "None"]
    with pytest.raises(InputError, match="2 images but 1 labels"):
        to_label_column(["a"], 2)
