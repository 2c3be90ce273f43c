"""Labels as people hold them in Python: lists, arrays and columns, with gaps of any kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from holotype.errors import InputError


def as_labels(y: Iterable[Any] | None, n: int) -> list[str]:
    """Labels as text, "" for none. y: None, or n of anything.

    None, "", NaN, NaT and pandas' NA mean none, and so does -1 where all others are whole numbers.
    """
    if y is None:
        return [""] * n
    values = [None if _is_missing(value) else value for value in y]
    if len(values) != n:
        raise InputError(f"There are {n} images but {len(values)} labels; give one per image, or None.")
    whole = all(value is None or _is_whole(value) for value in values)
    return [_as_label(value, whole) for value in values]


def _is_missing(value: Any) -> bool:
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _is_whole(value: Any) -> bool:
    """Whole numbers with gaps come as floats from pandas."""
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and float(value).is_integer()


def _as_label(value: Any, whole: bool) -> str:
    if value is None or (whole and value == -1):
        return ""
    return str(int(value)) if _is_whole(value) else str(value).strip()
