"""Dataclasses come back from JSON as they were, and what is wrong with a file is told by its key."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from holotype.utils.serialization import SchemaError, from_dict, to_dict


@dataclass(frozen=True)
class Inner:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outer:
    k: int | None
    rate: float
    mode: Literal["fast", "slow"]
    inner: Inner
    place: tuple[str, int]
    by_name: dict[str, float] = field(default_factory=dict)
    told: bool = False
    anything: Any = None


MADE = Outer(3, 0.1 + 0.2, "slow", Inner("Käfer", (1, 2)), ("a", 1), {"x": 1.5}, True, {"a": [1]})


def test_it_comes_back_as_it_was() -> None:
    assert from_dict(Outer, json.loads(json.dumps(to_dict(MADE)))) == MADE


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"k": "many"}, "k is 'many', not a whole number"),
        ({"k": True}, "k is True, not a whole number"),
        ({"rate": "0.1"}, "rate is '0.1', not a number"),
        ({"mode": "medium"}, "mode is 'medium', not one of fast, slow"),
        ({"inner": []}, "inner is [], not a group of keys"),
        ({"inner": {"name": "a", "sizes": [1, "2"]}}, "inner.sizes[1] is '2', not a whole number"),
        ({"inner": {"sizes": []}}, "inner.name is missing"),
        ({"place": ["a"]}, "place holds 1 values, not 2"),
        ({"place": "ab"}, "place is 'ab', not a list"),
        ({"by_name": {"x": None}}, "by_name.x is None, not a number"),
        ({"told": 1}, "told is 1, not true or false"),
        ({"extra": 1}, "extra is not known"),
    ],
)
def test_what_is_wrong_is_told_by_its_key(change: dict, says: str) -> None:
    with pytest.raises(SchemaError) as told:
        from_dict(Outer, to_dict(MADE) | change)
    assert str(told.value) == says


def test_keys_with_a_default_may_be_missing_where_that_is_said() -> None:
    content = to_dict(MADE)
    del content["told"]
    with pytest.raises(SchemaError, match="told is missing"):
        from_dict(Outer, content)
    assert from_dict(Outer, content, every=False).told is False
    for content in (None, 3, [], "text"):
        with pytest.raises(SchemaError, match="not a group of keys"):
            from_dict(Outer, content)
