"""Values and text become what a setting's type says, or are refused; types in words; and back to text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from holotype.config.parse import (
    CastError,
    cast,
    describe_type,
    field_docs,
    first_line,
    flatten,
    parse_yaml,
    plain_tree,
    value_text,
    write_yaml,
)
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
        ("a/b", Path, Path("a/b")),
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
        ("", Path, "a path"),
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


# -- YAML ---------------------------------------------------------------------------------------------


def test_values_stay_text() -> None:
    text = "a: off\nb: 1e-4\nc: 2024-01-01\nd: [1, yes]\ne: {f: 0x10}\ng: 'null'\nh: 007"
    assert parse_yaml(text) == {
        "a": "off",
        "b": "1e-4",
        "c": "2024-01-01",
        "d": ["1", "yes"],
        "e": {"f": "0x10"},
        "g": "null",
        "h": "007",
    }
    assert parse_yaml("a: null\nb: ~\nc:") == {"a": None, "b": None, "c": None}


def test_merge_keys_are_merged() -> None:
    text = "one: &one {a: 1, b: 2}\ntwo: {<<: *one, b: 3}"
    assert parse_yaml(text)["two"] == {"a": "1", "b": "3"}


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a: 1\na: 2", "a stands twice"),
        ("t: {b: 1, b: 2}", "b stands twice"),
        ("a: [1", "expected"),
        ("a: !!int many", "many"),
        ("a: !!python/tuple [1]", "python/tuple"),
        ("? {a: 1}\n: 2", "unhashable"),
    ],
)
def test_what_is_not_yaml_is_said_on_one_line(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=word) as refused:
        parse_yaml(text)
    assert "\n" not in str(refused.value)


def test_what_is_written_is_read_back() -> None:
    content = {"a": "off", "b": "1e5", "c": "grün", "d": None, "e": {"f": "null x"}, "g": ["yes", "3"]}
    assert parse_yaml(write_yaml(content)) == content


def test_what_is_too_deep_is_no_yaml():
    with pytest.raises(ValueError, match="recursion"):
        parse_yaml("[" * 20_000)


# -- docstrings ---------------------------------------------------------------------------------------


@dataclass
class Base:
    """Of the base.

    And more.
    """

    a: int = 1
    """What a
    is."""
    b: int = 2
    c: int = 3
    """What c is."""


@dataclass
class Further(Base):
    c: int = 4
    """What c is now."""
    shared = 5
    """Not a field of the dataclass."""


def test_docs_of_a_class_and_its_bases() -> None:
    assert field_docs(Base) == {"a": "What a is.", "c": "What c is."}
    assert field_docs(Further) == {"a": "What a is.", "c": "What c is now."}
    assert (first_line(Base), first_line(Further)) == ("Of the base.", "")


def test_a_class_within_a_function() -> None:
    @dataclass
    class Within:
        a: str = "%"
        """100 % of it."""

    assert field_docs(Within) == {"a": "100 % of it."}


def test_without_source_there_are_none() -> None:
    assert field_docs(make_dataclass("Made", [("a", int)])) == {}
    space: dict = {}
    exec("from dataclasses import dataclass\n@dataclass\nclass Typed:\n    a: int = 1\n    'lost'", space)
    assert field_docs(space["Typed"]) == {}


# -- trees --------------------------------------------------------------------------------------------


def test_a_tree_is_flat_by_dotted_names() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": [2, 3]}, "e": None}) == {"a.b.c": 1, "a.d": [2, 3], "e": None}
    assert flatten({}) == flatten({"a": {}}) == {}


def test_plain_is_what_a_file_would_give_back() -> None:
    assert plain_tree({"a": (1, 2.5), "b": {"c": ("x",)}}) == {"a": [1, 2.5], "b": {"c": ["x"]}}
