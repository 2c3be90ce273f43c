"""From a value or its text to the type that a setting has, and back to text.

Text is what stands on a command line or in a YAML file: 200, 0.1, true, null, [1, 2]. A value of Python is taken
where nothing is lost: 1 is a number, 3.0 is no whole number, and True is not 1.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import numbers
import os
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from holotype.machine.rules import Rule

LISTS = (list, tuple, collections.abc.Sequence)


class Unfit(ValueError):
    """A value that a setting cannot have; the message completes the sentence `epochs must be ...`."""


class RuleBroken(Unfit):
    """The type is right, and the value breaks a rule that goes with it."""


def cast(value: Any, hint: Any) -> Any:
    """The value as a setting with this type hint has it; raises Unfit."""
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        return _cast_ruled(value, hint)
    if origin in (Union, types.UnionType):
        return _cast_union(value, hint)
    try:
        if origin is Literal:
            return next(one for one in get_args(hint) if _is_choice(value, one))
        if (origin or hint) in LISTS:
            return _cast_list(value, hint)
        if dataclasses.is_dataclass(hint):
            return _cast_group(value, hint)
        if hint in CASTS:
            return CASTS[hint](value)
        if isinstance(value, origin or hint):
            return value
    except RuleBroken:
        raise
    except (ValueError, TypeError, LookupError, OverflowError, StopIteration) as error:
        raise Unfit(describe_type(hint)) from error
    raise Unfit(describe_type(hint))


def as_text(value: Any) -> str:
    """As it is written on the command line; `cast` reads it back."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(json.dumps(one) if isinstance(one, str) else as_text(one) for one in value)}]"
    return str(value)


# -- types in words -----------------------------------------------------------------------------------


def describe_type(hint: Any, *, rules: bool = False) -> str:
    """A type in words: `a whole number`, `auto, cpu or cuda`. rules: with the rules that go with it."""
    *parts, last = _in_words(hint, rules)
    return f"{', '.join(parts)} or {last}" if parts else last


def _in_words(hint: Any, rules: bool) -> list[str]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        said = [rule.words for rule in parts[1:] if isinstance(rule, Rule)]
        if parts[0] is str and said:  # text of a certain form: the rule says it all
            return said
        words = describe_type(parts[0])
        return [f"{words} ({', '.join(said)})" if said and rules else words]
    if origin is Literal:
        return [as_text(choice) for choice in parts]
    if origin in (Union, types.UnionType):
        return [word for part in parts for word in _in_words(part, rules)]
    if (origin or hint) in LISTS:
        items = [describe_type(part) for part in parts if part is not ...]
        return [f"a list [{', '.join(items if _has_fixed_length(hint) else [*items, '...'])}]"]
    if dataclasses.is_dataclass(hint):
        return ["a group of settings"]
    return [WORDS.get(hint, f"of type {getattr(hint, '__name__', hint)}")]


WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    Any: "anything",
}


# -- one kind each ------------------------------------------------------------------------------------


def _cast_int(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    raise ValueError


def _cast_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | numbers.Real):
        raise ValueError
    if isinstance(value, str) and value.strip().lower() in (".inf", "+.inf", "-.inf"):  # as YAML has it
        value = value.replace(".", "")
    number = float(value)
    if math.isnan(number):
        raise ValueError
    return number


def _cast_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError


def _cast_text(value: Any) -> str:
    """A path is text, too."""
    text = os.fspath(value)
    if not isinstance(text, str):
        raise ValueError
    return text


def _cast_null(value: Any) -> None:
    if value is not None and value != "null":
        raise ValueError


CASTS = {
    int: _cast_int,
    float: _cast_float,
    bool: _cast_bool,
    str: _cast_text,
    type(None): _cast_null,
}


def _is_choice(value: Any, choice: Any) -> bool:
    """Whether a value is that of a Literal, as it is or as text."""
    return (
        value == as_text(choice)
        if isinstance(value, str)
        else type(value) is type(choice) and value == choice
    )


def _cast_ruled(value: Any, hint: Any) -> Any:
    kind, *rules = get_args(hint)
    try:
        found = cast(value, kind)
    except RuleBroken:
        raise
    except Unfit as error:
        raise Unfit(describe_type(hint)) from error
    for rule in rules:
        if isinstance(rule, Rule) and not rule.holds(found):
            raise RuleBroken(rule.words)
    return found


def _cast_union(value: Any, hint: Any) -> Any:
    """The first of the types that takes the value, narrow ones before wide ones: text is the widest."""
    broken = None
    for part in sorted(get_args(hint), key=_width):
        try:
            return cast(value, part)
        except RuleBroken as error:
            broken = error
        except Unfit:
            continue
    raise broken or Unfit(describe_type(hint))


def _width(hint: Any) -> int:
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if get_origin(kind) is Literal:
        return 1
    order = (type(None), Literal, bool, int, float)
    return order.index(kind) if kind in order else len(order) + (kind in (str, Any))


def _has_fixed_length(hint: Any) -> bool:
    return get_origin(hint) is tuple and ... not in get_args(hint)


def _cast_list(value: Any, hint: Any) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, str):
        from holotype.runs.yaml_text import parse_yaml

        value = parse_yaml(value)
    if not isinstance(value, list | tuple):
        raise ValueError
    parts = [part for part in get_args(hint) if part is not ...] or [Any]
    kinds = parts if _has_fixed_length(hint) else parts[:1] * len(value)
    found = [cast(one, kind) for one, kind in zip(value, kinds, strict=True)]
    return found if (get_origin(hint) or hint) is list else tuple(found)


def _cast_group(value: Any, kind: Any) -> Any:
    """A dataclass from what its fields are; one that is not there by default, as in `extra: Extra | None = None`."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise ValueError
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{str(name): cast(one, hints[str(name)]) for name, one in value.items()})
