"""Types of settings and their rules, and how text becomes one: `epochs: Count = 200` is at least 1.

In YAML files every value stays text, since the type of a setting says what its text means: `lr: 1e-4` is a number and
`out: 2024` a folder. null (or nothing) is None.

Text is what stands on a command line or in a YAML file: 200, 0.1, true, null, [1, 2]. A value of Python is taken
where nothing is lost: 1 is a number, 3.0 is no whole number, and True is not 1.
"""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import functools
import inspect
import json
import math
import numbers
import operator
import os
import re
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml


@dataclass(frozen=True)
class Constraint:
    """Stands in an `Annotated` type, such as Annotated[int, Constraint("even", lambda n: n % 2 == 0)]."""

    words: str
    """Completes the sentence `epochs must be ...`."""
    holds: Callable[[Any], bool]
    """Of a value of the right type."""


MAX_FLOAT = 1e30
"""Of a number that training reckons with: 32 bits hold no number above 3e38."""


def at_most(most: int) -> Constraint:
    """Return the rule that a number is no slip of the finger, which would train for years or fill memory."""
    return Constraint(f"at most {most:,}", lambda number: number <= most)


Count = Annotated[int, Constraint("at least 1", lambda number: number >= 1)]
"""A number of something."""
Natural = Annotated[int, Constraint("at least 0", lambda number: number >= 0)]
"""A number of something that there may be none of."""
Epochs = Annotated[Count, at_most(100_000)]
"""Passes over all images."""
Steps = Annotated[Count, at_most(1_000_000)]
"""Batches that are learnt from."""
Side = Annotated[Count, at_most(4_096)]
"""Of a picture, in pixels."""
Width = Annotated[Natural, at_most(100_000)]
"""Of a layer, in numbers; there may be none."""
LargeInt = Annotated[Count, at_most(100_000)]
"""A number of things that are held at once."""
RepeatCount = Annotated[Count, at_most(1_000)]
"""How often something is done anew, of which each time takes its time."""
SmallInt = Annotated[Count, at_most(100)]
"""A number of things that each take a good part of the whole."""
Port = Annotated[int, Constraint("from 1 to 65535", lambda number: 1 <= number <= 65_535)]
"""Of a computer, to listen on."""
UnitInterval = Annotated[float, Constraint("from 0 to 1", lambda part: 0 <= part <= 1)]
"""A part of something."""
Factor = Annotated[float, Constraint("above 0 and at most 100", lambda factor: 0 < factor <= 100)]
"""How many times something is taken."""
Positive = Annotated[float, Constraint("above 0 and at most 1e+30", lambda value: 0 < value <= MAX_FLOAT)]
"""A rate or a temperature."""
Weight = Annotated[float, Constraint("at least 0 and at most 1e+30", lambda value: 0 <= value <= MAX_FLOAT)]
"""How much something counts, or how long it lasts."""
Momentum = Annotated[float, Constraint("at least 0 and below 1", lambda part: 0 <= part < 1)]
"""What is kept of the past."""
LabelShare = Annotated[float, Constraint("above 0 and at most 1", lambda share: 0 < share <= 1)]
"""A part that there is."""
Cosine = Annotated[float, Constraint("from -1 to 1", lambda value: -1 <= value <= 1)]
"""How alike two directions are."""
Gigabytes = Annotated[float, Constraint("above 0 GB and finite", lambda gb: gb > 0 and math.isfinite(gb))]
"""An amount of memory."""
Seed = Annotated[int, Constraint("at least 0 and below 2**63", lambda seed: 0 <= seed < 2**63)]
"""What torch takes as a seed, without the negative ones."""
SplitSeed = Annotated[int, Constraint("from 0 to 4294967295", lambda seed: 0 <= seed < 2**32)]
"""What NumPy's legacy generator takes as a seed."""


def is_device_name(name: str) -> bool:
    """Return whether a device can be called so, on this machine or on another."""
    return re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name) is not None


def is_bursts(text: str) -> bool:
    """Return whether text is auto, no or a positive number of seconds."""
    try:
        return text.strip().lower() in ("auto", "no") or 0 < float(text) < math.inf
    except ValueError:
        return False


DEVICE_NAMES = "auto, cpu, mps, cuda, or cuda:1 for the second GPU"
DeviceName = Annotated[str, Constraint(DEVICE_NAMES, is_device_name)]
Bursts = Annotated[str, Constraint("auto, no or a number of seconds", is_bursts)]
Name = Annotated[str, Constraint("a name", bool)]
"""Of a file, a network or a method."""
Names = Annotated[str, Constraint("names, as in rpc,uno", lambda text: all(text.split(",")))]
"""With commas between them."""


NULL, MERGE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """The values stay text."""

    yaml_implicit_resolvers = {  # noqa: RUF012  a copy, since PyYAML's own is everybody's
        first: [(tag, pattern) for tag, pattern in tags if tag in (NULL, MERGE)]
        for first, tags in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Looked at before merge keys are resolved, after which a key may well come up twice."""
        node = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != MERGE]
        for i, key in enumerate(keys):
            if key.value in [earlier.value for earlier in keys[:i]]:
                raise yaml.MarkedYAMLError(problem=f"{key.value} stands twice", problem_mark=key.start_mark)
        return node


def parse_yaml(text: str) -> Any:
    """Return dictionaries, lists, text and None; raise ValueError with one line where it is not YAML."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: `!!int many`
        raise ValueError(" ".join(str(error).split())) from error


def write_yaml(content: dict[str, Any]) -> str:
    """What `parse_yaml` reads back."""
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


LIST_TYPES = (list, tuple, collections.abc.Sequence)


class CastError(ValueError):
    """A value that a setting cannot have; the message completes the sentence `epochs must be ...`."""


class ConstraintError(CastError):
    """The type is right, and the value breaks a rule that goes with it."""


def cast(value: Any, hint: Any) -> Any:
    """Return the value as a setting with this type hint has it; raise CastError."""
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        return _cast_constrained(value, hint)
    if origin in (Union, types.UnionType):
        return _cast_union(value, hint)
    try:
        if origin is Literal:
            return next(one for one in get_args(hint) if _is_choice(value, one))
        if (origin or hint) in LIST_TYPES:
            return _cast_list(value, hint)
        if dataclasses.is_dataclass(hint):
            return _cast_group(value, hint)
        if hint in CASTS:
            return CASTS[hint](value)
        if isinstance(value, origin or hint):
            return value
    except ConstraintError:
        raise
    except (ValueError, TypeError, LookupError, OverflowError, StopIteration) as error:
        raise CastError(describe_type(hint)) from error
    raise CastError(describe_type(hint))


def value_text(value: Any) -> str:
    """As it is written on the command line; `cast` reads it back."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(json.dumps(one) if isinstance(one, str) else value_text(one) for one in value)}]"
    return str(value)


def describe_type(hint: Any, *, rules: bool = False) -> str:
    """A type in words: `a whole number`, `auto, cpu or cuda`. rules: with the rules that go with it."""
    *parts, last = _type_words(hint, rules)
    return f"{', '.join(parts)} or {last}" if parts else last


def _type_words(hint: Any, rules: bool) -> list[str]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        said = [rule.words for rule in parts[1:] if isinstance(rule, Constraint)]
        if parts[0] is str and said:  # text of a certain form: the rule says it all
            return said
        words = describe_type(parts[0])
        return [f"{words} ({', '.join(said)})" if said and rules else words]
    if origin is Literal:
        return [value_text(choice) for choice in parts]
    if origin in (Union, types.UnionType):
        return [word for part in parts for word in _type_words(part, rules)]
    if (origin or hint) in LIST_TYPES:
        items = [describe_type(part) for part in parts if part is not ...]
        return [f"a list [{', '.join(items if _has_fixed_length(hint) else [*items, '...'])}]"]
    if dataclasses.is_dataclass(hint):
        return ["a group of settings"]
    return [TYPE_WORDS.get(hint, f"of type {getattr(hint, '__name__', hint)}")]


TYPE_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    type(None): "null",
    Any: "anything",
}


def _cast_int(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError
    return int(value) if isinstance(value, str) else operator.index(value)


def _cast_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | numbers.Real):
        raise ValueError
    if isinstance(value, str) and value.strip().lower() in (".inf", "+.inf", "-.inf"):  # as YAML has it
        value = value.replace(".", "")
    if math.isnan(number := float(value)):
        raise ValueError
    return number


def _cast_bool(value: Any) -> bool:
    return {"true": True, "false": False}[str(value).lower() if isinstance(value, bool | str) else ""]


def _cast_text(value: Any) -> str:
    """A path is text, too."""
    text = os.fspath(value)
    if not isinstance(text, str):
        raise ValueError
    return text


def _cast_path(value: Any) -> Path:
    if not (text := _cast_text(value)):
        raise ValueError
    return Path(text)


def _cast_null(value: Any) -> None:
    if value is not None and value != "null":
        raise ValueError


CASTS: dict[Any, Callable[[Any], Any]] = {
    int: _cast_int,
    float: _cast_float,
    bool: _cast_bool,
    str: _cast_text,
    Path: _cast_path,
    type(None): _cast_null,
}


def _is_choice(value: Any, choice: Any) -> bool:
    """Whether a value is that of a Literal, as it is or as text."""
    if isinstance(value, str):
        return value == value_text(choice)
    return type(value) is type(choice) and value == choice


def _cast_constrained(value: Any, hint: Any) -> Any:
    kind, *rules = get_args(hint)
    try:
        result = cast(value, kind)
    except ConstraintError:
        raise
    except CastError as error:
        raise CastError(describe_type(hint)) from error
    for rule in rules:
        if isinstance(rule, Constraint) and not rule.holds(result):
            raise ConstraintError(rule.words)
    return result


def _cast_union(value: Any, hint: Any) -> Any:
    """The first of the types that takes the value, narrow ones before wide ones: text is the widest."""
    broken = None
    for part in sorted(get_args(hint), key=_width):
        try:
            return cast(value, part)
        except ConstraintError as error:
            broken = error
        except CastError:
            continue
    raise broken or CastError(describe_type(hint))


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
        value = parse_yaml(value)
    if not isinstance(value, list | tuple):
        raise ValueError
    parts = [part for part in get_args(hint) if part is not ...] or [Any]
    kinds = parts if _has_fixed_length(hint) else parts[:1] * len(value)
    items = [cast(item, kind) for item, kind in zip(value, kinds, strict=True)]
    return items if (get_origin(hint) or hint) is list else tuple(items)


def _cast_group(value: Any, kind: Any) -> Any:
    """A dataclass from what its fields are; one that is not there by default, as in `extra: Extra | None = None`."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise ValueError
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{str(name): cast(one, hints[str(name)]) for name, one in value.items()})


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """Return name of a field -> its docstring on one line; classes without source have none."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # made at run time, or typed at a prompt
            continue
        for field, doc in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
            match field, doc:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                    docs[name] = " ".join(text.split())
    return docs


def first_line(kind: type) -> str:
    """Of the docstring of a class; empty where it has none of its own."""
    doc = inspect.cleandoc(kind.__dict__.get("__doc__") or "")
    generated = doc.startswith(f"{kind.__name__}(")  # what @dataclass writes where nobody did
    return "" if generated else doc.split("\n")[0]


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}, so that a difference can be named."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def plain_tree(value: Any) -> Any:
    """As JSON would give it back: tuples are lists."""
    return json.loads(json.dumps(value))
