"""What all commands share: output, and the argument parser of a dataclass of options.

The options of a command are a dataclass. A field without a default is a positional argument, every other one a flag;
its type says what the value may be (config/parse.py), and the docstring under it is its help. A field `settings`
takes every flag that the dataclass does not name.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import inspect
import json
import logging
import operator
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from holotype.config.parse import CastError, cast, describe_type, field_docs
from holotype.errors import InputError
from holotype.utils.text import did_you_mean


def is_rank0_output() -> bool:
    """Return whether this process speaks: the first of those that share a run."""
    return os.environ.get("RANK", "0") == "0"


CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Signs that a terminal obeys, or that turn a line around; and what no terminal can be sent."""


def escape_control(text: str) -> str:
    """Return a text with such signs written out: names of files and classes may hold anything."""
    return CONTROL_CHARACTERS.sub(lambda sign: repr(sign[0])[1:-1], text)


def echo(text: object, *, end: str = "\n", error: bool = False) -> None:
    """Print a text, from the first process alone; error: on stderr."""
    if is_rank0_output():
        print(escape_control(str(text)), end=end, file=sys.stderr if error else sys.stdout, flush=True)


def echo_json(value: object) -> None:
    """Print it as JSON in ASCII: signs that a terminal obeys are written out as JSON does it."""
    echo(json.dumps(value, indent=1).replace("\x7f", "\\u007f"))


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Return the rows of a table as lines. right: columns that end at the same place."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


class _OnStderr(logging.Handler):
    """Prints the bare message; looks stderr up each time, because a progress bar may have replaced it."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(self.format(record), error=True)


@contextlib.contextmanager
def logged_to_stderr(level: int = logging.INFO) -> Iterator[None]:
    """Show the library's messages, from `level` on, for as long as a command runs; DEBUG adds time and place."""
    logger, handler = logging.getLogger("holotype"), _OnStderr(level)
    if level == logging.DEBUG:
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(funcName)s: %(message)s", "%H:%M:%S"))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class Option(NamedTuple):
    """An argument of a command."""

    name: str
    hint: Any
    """Its type, without None, which is what it has where it is not used."""
    default: Any
    help: str
    metavar: str
    positional: bool

    @property
    def flag(self) -> str:
        """The name as it is typed; of a positional argument, the one that its help shows."""
        return self.metavar if self.positional else f"--{self.name.replace('_', '-')}"

    @property
    def text(self) -> str:
        """The help with type and default."""
        if self.help == argparse.SUPPRESS:  # a setting that another one decides
            return self.help
        words = describe_type(self.hint, rules=True)
        plain = self.hint is bool or get_origin(self.hint) in (list, tuple)
        parts = [] if plain or words in ("text", "a path", "a name") else [words]
        if isinstance(self.default, str | int | float | Path) and self.default is not False:
            parts.append(f"default {self.default}")
        return f"{self.help} [{'; '.join(parts)}]" if parts else self.help

    def read(self, text: str) -> Any:
        """Return the value of one word; raise InputError."""
        hint, several = self.hint, get_origin(self.hint) in (list, tuple)
        try:
            return cast(text, get_args(hint)[0] if several else hint)
        except CastError as error:
            raise InputError(f"{self.flag} must be {error}, not {text!r}.") from error


def options_of(kind: type) -> list[Option]:
    """Return the options of a dataclass, its own before those of its bases; a field that is a dataclass is a group."""
    hints, docs = get_type_hints(kind, include_extras=True), field_docs(kind)
    fields = {field.name: field for field in dataclasses.fields(kind) if field.name != "settings"}
    options: list[Option] = []
    for name in dict.fromkeys(name for base in kind.__mro__ for name in inspect.get_annotations(base)):
        if (field := fields.get(name)) is None:
            continue
        hint, factory = _without_none(hints[name]), field.default_factory
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            options += options_of(hint)
            continue
        metavar = next(_metavars(hint), name.upper())
        default = field.default if factory is dataclasses.MISSING else factory()
        positional = default is dataclasses.MISSING or metavar.startswith("[")
        hidden = argparse.SUPPRESS if field.metadata.get("hidden") else ""
        text = hidden or docs.get(name) or field.metadata.get("help", "")
        options.append(Option(name, hint, default, text, metavar.strip("[]"), positional))
    return options


def _without_none(hint: Any) -> Any:
    if type(None) not in get_args(hint):
        return hint
    return functools.reduce(operator.or_, (part for part in get_args(hint) if part is not type(None)))


def _metavars(hint: Any) -> Iterator[str]:
    if get_origin(hint) is Annotated:
        yield from (note for note in hint.__metadata__ if isinstance(note, str))
    else:
        for part in get_args(hint):
            yield from _metavars(part)


COMMON_FLAGS = "--quiet, --verbose and --no-color go with every command: holotype --help."
"""Under the help of each."""


class Parser(argparse.ArgumentParser):
    """argparse for a dataclass of options, without abbreviations, whose complaints are one sentence."""

    def __init__(self, name: str, kind: type) -> None:
        self.kind, self.given = kind, options_of(kind)
        doc = " ".join((kind.__doc__ or "").split()).replace("%", "%%")
        own_help = any(option.name == "help" for option in self.given)
        super().__init__(
            f"holotype {name}", None, doc, COMMON_FLAGS, allow_abbrev=False, add_help=not own_help
        )
        for option in self.given:
            self._add(option)

    def _add(self, option: Option) -> None:
        origin, settings = get_origin(option.hint), dict[str, Any](help=option.text.replace("%", "%%"))
        if option.hint is bool:
            self.add_argument(option.flag, action="store_true", **settings)
            return
        several = origin is list or (origin is tuple and ... in get_args(option.hint))
        settings["metavar"] = option.metavar
        if several or origin is not tuple:  # text such as 0.5,0.5,0.5 is for the dataclass to parse
            settings["type"] = option.read
        if option.default is not dataclasses.MISSING:
            settings["default"] = option.default
        if option.positional and option.default is not dataclasses.MISSING:
            settings["nargs"] = "*" if several else "?"
        elif option.positional and several:
            settings["nargs"] = "+"
        elif origin is list:
            settings["action"] = "append"
        elif several:
            settings["nargs"] = "+"
        self.add_argument(option.name if option.positional else option.flag, **settings)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Return the options as an instance of their dataclass."""
        words, settings = list(sys.argv[1:] if args is None else args), dict[str, str]()
        if any(field.name == "settings" for field in dataclasses.fields(self.kind)):
            words, settings = self._split_settings(words)
        values, rest = self.parse_known_intermixed_args([dashed_flag(word) for word in words], namespace)
        if rest:
            flags = [flag for action in self._actions for flag in action.option_strings]
            hint = did_you_mean(rest[0].partition("=")[0], flags, f"{self.prog} --help lists what there is.")
            raise InputError(f"{self.prog} does not know {rest[0]!r}; {hint}")
        return _build(self.kind, vars(values) | {"settings": settings})

    def _split_settings(self, argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """Take the flags that are no options off, as settings: dotted name -> text."""
        words: list[str] = []
        settings: dict[str, str] = {}
        own, rest = {option.flag for option in self.given}, iter(argv)
        for word in rest:
            flag, equals, value = word.partition("=")
            if not word.startswith("--") or dashed_flag(flag) in own:
                words.append(word)
                continue
            if not equals and (value := next(rest, "--")).startswith("--"):
                raise InputError(f"The flag {word} needs a value; write {word} VALUE.")
            settings[flag[2:].replace("-", "_")] = value
        return words, settings

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message}; {self.prog} --help says more.")


def _build(kind: type, values: Mapping[str, Any]) -> Any:
    """Return the dataclass with the values, and the groups in it with theirs."""
    hints, built = get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            built[field.name] = _build(hint, values)
        else:
            value = values[field.name]
            built[field.name] = tuple(value) if get_origin(hint) is tuple else value
    return kind(**built)


def dashed_flag(word: str) -> str:
    """Return a flag in the spelling of the parser: --no_progress is --no-progress, --backbone.arch is --arch."""
    flag, equals, value = word.partition("=")
    flag = flag.replace("_", "-").replace("--backbone.name", "--backbone").replace("--backbone.", "--")
    if word == "-h":
        return "--help"
    return flag + equals + value if word.startswith("--") else word
