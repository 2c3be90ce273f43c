"""Dataclasses as plain JSON values and back. What is missing, unknown or of another type is told by its key."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")
KINDS: dict[type[Any], dict[str, Any]] = {}
"""Class -> the types of its fields: Python works them out anew each time, and a discovery has many categories."""
TOLD = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}


class NotPlain(ValueError):
    """Why values do not make a dataclass: the middle of a sentence, such as `k is 'many', not a whole number`."""


def as_plain(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, with those of dataclasses inside it; tuples become lists on their way to JSON."""
    return dataclasses.asdict(value)


def from_plain(cls: type[T], content: Any, *, every: bool = True) -> T:
    """The dataclass that `content`, as read from JSON, holds the fields of. Raises NotPlain.

    every: a key that has a default must be there as well.
    """
    return typing.cast(T, _dataclass(cls, content, "", every))


def from_value(kind: type[T], value: Any) -> T:
    """The same of another type, such as dict[str, list[str]]."""
    return typing.cast(T, _value(kind, value, "the content", every=True))


def _dataclass(cls: type[Any], content: Any, key: str, every: bool) -> Any:
    if not isinstance(content, Mapping):
        raise NotPlain(f"{key or 'the content'} is {_short(content)}, not a group of keys")
    kinds = _kinds(cls)
    own = {one.name: one for one in dataclasses.fields(cls) if one.init}
    for name in content:
        if name not in own:
            raise NotPlain(f"{_join(key, str(name))} is not known")
    for name, one in own.items():
        optional = one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING
        if name not in content and (every or not optional):
            raise NotPlain(f"{_join(key, name)} is missing")
    return cls(
        **{name: _value(kinds[name], value, _join(key, name), every) for name, value in content.items()}
    )


def _kinds(cls: type[Any]) -> dict[str, Any]:
    if cls not in KINDS:
        KINDS[cls] = typing.get_type_hints(cls)
    return KINDS[cls]


def _value(kind: Any, value: Any, key: str, every: bool) -> Any:
    """The value as its type wants it: lists become tuples where these are asked for."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, value, key, every)
    if origin in (Union, types.UnionType):
        return _one_of(inner, value, key, every)
    if origin is Literal:
        if value not in inner:
            raise NotPlain(f"{key} is {_short(value)}, not one of {', '.join(map(str, inner))}")
        return value
    if origin in (tuple, list):
        return _row(origin, inner, value, key, every)
    if origin in (dict, Mapping):
        if not isinstance(value, Mapping):
            raise NotPlain(f"{key} is {_short(value)}, not a group of keys")
        return {name: _value(inner[1], part, f"{key}.{name}", every) for name, part in value.items()}
    if kind in TOLD:
        right = isinstance(value, int | float if kind is float else kind)
        if not right or (isinstance(value, bool) and kind is not bool):
            raise NotPlain(f"{key} is {_short(value)}, not {TOLD[kind]}")
    return value


def _one_of(kinds: tuple[Any, ...], value: Any, key: str, every: bool) -> Any:
    problems = []
    for kind in kinds:
        try:
            return _value(kind, value, key, every)
        except NotPlain as problem:
            problems.append(str(problem))  # the exception itself would keep every caller's objects alive
    raise NotPlain(problems[0])


def _row(origin: Any, inner: tuple[Any, ...], value: Any, key: str, every: bool) -> Any:
    if not isinstance(value, list | tuple):
        raise NotPlain(f"{key} is {_short(value)}, not a list")
    fixed = origin is tuple and Ellipsis not in inner
    if fixed and len(inner) != len(value):
        raise NotPlain(f"{key} holds {len(value)} values, not {len(inner)}")
    kinds = inner if fixed else inner[:1] * len(value)
    return origin(
        _value(k, v, f"{key}[{i}]", every) for i, (k, v) in enumerate(zip(kinds, value, strict=True))
    )


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
