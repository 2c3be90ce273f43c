"""Values and text become what a setting's type says, or are refused; types in words; and back to text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from holotype.config.parse import CastError, cast, describe_type, value_text
from holotype.config.types import Constraint, Count, Epochs, Factor, Gigabytes, Seed

INF = float("inf")
Even = Annotated[int, Constraint("even", lambda number: number % 2 == 0)]


@dataclass
class Point:
    x: int = 0
    y: float = 0.5


@pytest.mark.parametrize(
    ("value", "hint", "wanted"),
    [
        ("200", int, 200),
        (" 7 ", int, 7),
        ("-3", int, -3),
        (np.int64(5), int, 5),
        ("0.1", float, 0.1),
        ("1e-4", float, 1e-4),
        ("3", float, 3.0),
        (3, float, 3.0),
        (np.float32(0.5), float, 0.5),
        (".inf", float, INF),
        ("-.inf", float, -INF),
        (INF, float, INF),
        ("true", bool, True),
        ("False", bool, False),
        (True, bool, True),
        ("16+8", str, "16+8"),
        ("null", str, "null"),
        ("", str, ""),
        (Path("a/b"), str, "a/b"),
        ("null", str | None, None),
        (None, str | None, None),
        ("2024", str | None, "2024"),
        ("null", int | None, None),
        ("5", int | None, 5),
        ("5", str | int, 5),
        ("5", float | int, 5),
        ("5.0", float | int, 5.0),
        ("auto", int | Literal["auto"] | None, "auto"),
        ("4", Count | Literal["auto"] | None, 4),
        ("high", Literal["high", "low"], "high"),
        ("2", Literal[1, 2], 2),
        ("true", Literal[True, "auto"], True),
        ("6", Even, 6),
        (2.5, Gigabytes | None, 2.5),
        (0, Seed, 0),
        ("[1, 2]", tuple[int, ...], (1, 2)),
        ([1, "2"], tuple[int, ...], (1, 2)),
        ((1, 2), list[int], [1, 2]),
        ("[]", list[int], []),
        ("[1, off]", tuple[int, str], (1, "off")),
        ("[0.5, null]", Sequence[float | None], (0.5, None)),
        ("[[1], [2, 3]]", list[list[int]], [[1], [2, 3]]),
        ([1, "a"], list, [1, "a"]),
        ({"x": "3"}, Point, Point(3)),
        (Point(1), Point | None, Point(1)),
        ("null", Point | None, None),
        ({"a": 1}, dict[str, int], {"a": 1}),
        (object, Any, object),
    ],
)
def test_what_a_setting_takes(value: object, hint: object, wanted: object) -> None:
    found = cast(value, hint)
    assert (found, type(found)) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("value", "hint", "words"),
    [
        ("3.0", int, "a whole number"),
        (3.0, int, "a whole number"),
        (True, int, "a whole number"),
        ("nan", Count, "a whole number"),
        ("many", Count, "a whole number"),
        ("", int, "a whole number"),
        (None, int, "a whole number"),
        ([1], int, "a whole number"),
        (True, float, "a number"),
        ("nan", float, "a number"),
        (float("nan"), float, "a number"),
        (10**400, float, "a number"),
        ("many", float | None, "a number or null"),
        ("None", int | None, "a whole number or null"),
        ("yes", bool, "true or false"),
        (1, bool, "true or false"),
        (2024, str, "text"),
        (b"bytes", str, "text"),
        (None, str, "text"),
        ("ram", Literal["host", "disk"], "host or disk"),
        (1, Literal[True], "true"),
        (True, int | Literal["auto"] | None, "a whole number, auto or null"),
        ("0", Count, "at least 1"),
        (0, Count | Literal["auto"] | None, "at least 1"),
        ("0", Gigabytes | None, "above 0 GB and finite"),
        ("inf", Gigabytes | None, "above 0 GB and finite"),
        (0, Epochs, "at least 1"),
        ("2147483648", Epochs, "at most 100,000"),
        (1e9, Factor, "above 0 and at most 100"),
        (-1, Seed, "at least 0 and below 2**63"),
        (2**63, Seed, "at least 0 and below 2**63"),
        ([0, 2], list[Count], "at least 1"),
        ("1, 2", list[int], "a list [a whole number, ...]"),
        ("[1", list[int], "a list [a whole number, ...]"),
        ([1, 2, 3], tuple[int, str], "a list [a whole number, text]"),
        ({"x": "a"}, Point, "a group of settings"),
        ({"z": 1}, Point | None, "a group of settings or null"),
        ("x", dict[str, int], "of type dict"),
    ],
)
def test_what_it_does_not_take(value: object, hint: object, words: str) -> None:
    with pytest.raises(CastError) as refused:
        cast(value, hint)
    assert str(refused.value) == words


def test_types_in_words_with_their_rules() -> None:
    k = Count | Literal["auto"] | None
    assert describe_type(k) == "a whole number, auto or null"
    assert describe_type(k, rules=True) == "a whole number (at least 1), auto or null"
    assert describe_type(Epochs, rules=True) == "a whole number (at least 1, at most 100,000)"
    name = Annotated[str, Constraint("auto or the name of a bird", bool)]
    assert describe_type(name) == describe_type(name, rules=True) == "auto or the name of a bird"
    assert describe_type(tuple[float, ...]) == "a list [a number, ...]"
    assert describe_type(Any) == "anything"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "null"), (True, "true"), (5e-05, "5e-05"), ("off", "off"), ((1, "a, b"), '[1, "a, b"]')],
)
def test_text(value: object, text: str) -> None:
    assert value_text(value) == text
