"""What all commands share: output, options as dataclasses, the argument parser, common options.

The options of a command are a dataclass. A field without a default is a positional argument, every other one a flag;
its type says what the value may be (config/types.py), and the docstring under it is its help.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from holotype.config.parse import CastError, cast, describe_type, field_docs
from holotype.config.types import DeviceName, UnitInterval
from holotype.errors import InputError
from holotype.utils.text import did_you_mean

# -- output -------------------------------------------------------------------------------------------


def is_rank0_output() -> bool:
    """Of the processes that share a run, which all read and find the same, the first one speaks."""
    return os.environ.get("RANK", "0") == "0"


CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Signs that a terminal obeys, or that turn a line around; and what no terminal can be sent."""


def escape_control(text: str) -> str:
    """A text with such signs written out: names of files and classes may hold anything."""
    return CONTROL_CHARACTERS.sub(lambda sign: repr(sign[0])[1:-1], text)


def echo(text: object, *, end: str = "\n", error: bool = False, flush: bool = False) -> None:
    """Print what a command has to say; error: on stderr."""
    print(escape_control(str(text)), end=end, file=sys.stderr if error else sys.stdout, flush=flush)


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
        if is_rank0_output():
            echo(self.format(record), error=True)


@contextlib.contextmanager
def logged_to_stderr(level: int = logging.INFO) -> Iterator[None]:
    """Show what the library has to say, from `level` on, for as long as a command runs; DEBUG adds time and place."""
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


# -- options ------------------------------------------------------------------------------------------

Dir = Annotated[Path, "DIR"]
File = Annotated[Path, "FILE"]
RunDir = Annotated[Path, "RUN"]
"""A string in `Annotated` names the value in the help; in brackets, "[NAME]", it makes an optional positional."""


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
        return f"--{self.name.replace('_', '-')}"

    @property
    def text(self) -> str:
        """The help with type and default."""
        words = describe_type(self.hint, rules=True)
        plain = self.hint is bool or get_origin(self.hint) in (list, tuple)
        parts = [] if plain or words in ("text", "a path", "a name") else [words]
        if isinstance(self.default, str | int | float | Path) and self.default is not False:
            parts.append(f"default {self.default}")
        return f"{self.help} [{'; '.join(parts)}]" if parts else self.help


def options_of(kind: type) -> list[Option]:
    """Return the options of a dataclass, its own before those of its bases; a field that is a dataclass is a group."""
    hints, docs = get_type_hints(kind, include_extras=True), field_docs(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    options: list[Option] = []
    for name in dict.fromkeys(name for base in kind.__mro__ for name in inspect.get_annotations(base)):
        hint, field = _without_none(hints[name]), fields[name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            options += options_of(hint)
            continue
        metavar = next(_metavars(hint), name.upper())
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        positional = default is dataclasses.MISSING or metavar.startswith("[")
        text = docs.get(name) or field.metadata.get("help", "")
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

    def __init__(self, name: str, options: type, **settings: Any) -> None:
        self.options = options
        doc = " ".join((options.__doc__ or "").split()).replace("%", "%%")
        settings = {"description": doc, "epilog": COMMON_FLAGS} | settings
        super().__init__(prog=f"holotype {name}", allow_abbrev=False, **settings)
        for option in options_of(options):
            self._add(option)

    def _add(self, option: Option) -> None:
        origin, settings = get_origin(option.hint), dict[str, Any](help=option.text.replace("%", "%%"))
        if option.hint is bool:
            self.add_argument(option.flag, action="store_true", **settings)
            return
        several = origin is list or (origin is tuple and ... in get_args(option.hint))
        hint = get_args(option.hint)[0] if several else option.hint
        settings["metavar"] = option.metavar
        if several or origin is not tuple:  # text such as 0.5,0.5,0.5 is for the dataclass to parse
            settings["type"] = _reader(option, hint)
        if option.positional:
            if option.default is not dataclasses.MISSING:
                settings |= {"nargs": "*" if origin is list else "?", "default": option.default}
            self.add_argument(option.name, **settings)
            return
        if origin is list:
            settings["action"] = "append"
        elif several:
            settings["nargs"] = "+"
        self.add_argument(option.flag, default=option.default, **settings)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Return the options as an instance of their dataclass."""
        words = [dashed_flag(word) for word in (sys.argv[1:] if args is None else args)]
        values, rest = self.parse_known_intermixed_args(words, namespace)
        if rest:
            flags = [flag for action in self._actions for flag in action.option_strings]
            hint = did_you_mean(rest[0].partition("=")[0], flags, f"{self.prog} --help lists what there is.")
            raise InputError(f"{self.prog} does not know {rest[0]!r}; {hint}")
        return _build(self.options, vars(values))

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message}; {self.prog} --help says more.")


def _reader(option: Option, hint: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return cast(text, hint)
        except CastError as error:
            name = option.metavar if option.positional else option.flag
            raise InputError(f"{name} must be {error}, not {text!r}.") from error

    return read


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
    """A flag in the spelling of the parser: --no_progress is --no-progress, --backbone.arch is --arch."""
    flag, equals, value = word.partition("=")
    flag = flag.replace("_", "-").replace("--backbone.name", "--backbone").replace("--backbone.", "--")
    return flag + equals + value if word.startswith("--") else word


# -- options that several commands have ---------------------------------------------------------------

ALLOW_CODE = "--allow-code"


def code_allowed(words: Sequence[str]) -> bool:
    """Do the words of a command say so? Whether the command has that flag, its parser knows."""
    return any(dashed_flag(word) == ALLOW_CODE for word in words)


@dataclass(kw_only=True)
class CodeOptions:
    allow_code: bool = False
    """Import the method that a file names as package.module:Class; it can do whatever you can."""


@dataclass(kw_only=True)
class ProgressOptions:
    no_progress: bool = False
    """Show no progress bars."""


@dataclass(kw_only=True)
class RunningOptions(ProgressOptions):
    device: DeviceName = "auto"
    """Where to compute."""


@dataclass(kw_only=True)
class LabelsOptions:
    labels: File | None = None
    """CSV or Parquet file with the columns path and label (default: sub-folders)."""


@dataclass(kw_only=True)
class BoxOptions:
    boxes: File | None = None
    """JSON of MegaDetector, or COCO annotations: the images are the boxes of animals in it."""
    box_confidence: Annotated[UnitInterval, "SHARE"] | None = None
    """With --boxes: least confidence of the detector (default: 0.2)."""
    skip_missing: bool = False
    """Leave out rows of a file whose images are missing, and impossible boxes."""

    @property
    def box_options(self) -> dict[str, Any]:
        """These options as load_table takes them."""
        if self.box_confidence is not None and self.boxes is None:
            raise InputError("--box-confidence says nothing without --boxes; name a file of boxes.")
        chosen: dict[str, Any] = (
            {} if self.box_confidence is None else {"box_confidence": self.box_confidence}
        )
        return {"boxes": self.boxes, "skip_missing": self.skip_missing} | chosen
