"""What all commands share: output, the argument parser, common flags."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from holotype.errors import InputError
from holotype.utils.device import NAMES, is_device_name
from holotype.utils.text import did_you_mean

SOURCES = (
    "folder of images, CSV or Parquet file that lists them, Parquet file or tars that hold them ('{000..099}.tar'), "
    "or an address (s3://bucket/photos, gs://, abfs://, hf://datasets/...)"
)
"""What a command takes, for its help."""


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


def dashed_flag(word: str) -> str:
    """A flag in the spelling of the commands with few flags: --no_progress is --no-progress."""
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value if word.startswith("--") else word


COMMON_FLAGS = "--quiet, --verbose and --no-color go with every command: holotype --help."
"""Under the help of each."""
ARGPARSE_MESSAGES = {
    r"the following arguments are required: (?P<names>.+)": "{prog} needs {names}; {prog} --help says what that is.",
    r"argument (?P<flag>.+?): expected .*argument": "{flag} needs a value; {prog} --help says which.",
    r"argument (?P<flag>.+?): not allowed with argument (?P<other>.+)": "{other} and {flag} do not go together; give "
    "one of the two.",
    r"argument (?P<flag>.+?): invalid choice: (?P<value>.+?) \(choose from (?P<names>.+)\)": "{flag} cannot be "
    "{value}; it is one of {names}.",
    r"argument (?P<flag>.+?): ignored explicit argument (?P<value>.+)": "{flag} takes no value; leave out {value}.",
}
"""What argparse says, and what is said instead."""


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, whose complaints become one sentence."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**{"epilog": COMMON_FLAGS, **settings, "allow_abbrev": False})  # type: ignore[arg-type]

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        words: Sequence[str] = sys.argv[1:] if args is None else args
        given, rest = self.parse_known_args([dashed_flag(word) for word in words], namespace)
        if rest:
            flags = [flag for action in self._actions for flag in action.option_strings]
            hint = did_you_mean(rest[0].partition("=")[0], flags, f"{self.prog} --help lists what there is.")
            raise InputError(f"{self.prog} does not know {rest[0]!r}; {hint}")
        return given

    def error(self, message: str) -> NoReturn:
        for pattern, sentence in ARGPARSE_MESSAGES.items():
            if found := re.fullmatch(pattern, message):
                parts = found.groupdict()
                parts["names"] = (parts.get("names") or "").replace(
                    "'", ""
                )  # Python 3.11 has choices in quotes
                raise InputError(sentence.format(prog=self.prog, **parts))
        raise InputError(f"{self.prog}: {message}; {self.prog} --help says more.")


def add_labels_flag(parser: Parser) -> None:
    """Of the commands that take a collection of one's own."""
    parser.add_argument(
        "--labels",
        metavar="FILE",
        help="CSV or Parquet file with the columns path and label (default: sub-folders)",
    )


def add_box_flags(parser: Parser) -> None:
    """Of the commands that may look at parts of pictures."""
    parser.add_argument(
        "--boxes",
        metavar="FILE",
        help="JSON of MegaDetector, or COCO annotations: the images are the boxes of animals in it",
    )
    parser.add_argument(
        "--box-confidence",
        metavar="SHARE",
        help="with --boxes: least confidence of the detector, from 0 to 1 (default: 0.2)",
    )


def box_options(boxes: str | None, confidence: str | None) -> dict[str, Any]:
    """Those flags as load_table takes them; InputError for what cannot be."""
    if confidence is None:
        return {"boxes": Path(boxes) if boxes else None}
    if boxes is None:
        raise InputError("--box-confidence says nothing without --boxes; name a file of boxes.")
    try:
        least = float(confidence)
    except ValueError:
        least = -1.0
    if not 0 <= least <= 1:
        raise InputError(f"--box-confidence {confidence} is not a number from 0 to 1; give one, such as 0.2.")
    return {"boxes": Path(boxes), "box_confidence": least}


def device_name(text: str) -> str:
    if not is_device_name(text):
        raise InputError(f"--device {text} is unknown; use {NAMES}.")
    return text


def typed_argument(flag: str, hint: Any) -> Callable[[str], Any]:
    """Reads the value of a flag as a type with its rules (config/types.py); what it cannot be is one sentence."""

    def read(text: str) -> Any:
        from holotype.config.parse import CastError, cast

        try:
            return cast(text, hint)
        except CastError as error:
            raise InputError(f"{flag} must be {error}, not {text!r}.") from error

    return read


ALLOW_CODE = "--allow-code"


def code_allowed(words: Sequence[str]) -> bool:
    """Do the words of a command say so? Whether the command has that flag, its parser knows."""
    return any(dashed_flag(word) == ALLOW_CODE for word in words)


def add_overwrite_flag(parser: Parser, what: str) -> None:
    """Of every command that writes outside of a run folder. what: it may replace."""
    parser.add_argument("--overwrite", action="store_true", help=f"replace {what}")


def add_code_flag(parser: Parser) -> None:
    """Of the commands that read files in which a method may be named as package.module:Class."""
    parser.add_argument(
        ALLOW_CODE,
        action="store_true",
        help="import the method that a file names as package.module:Class; it can do whatever you can",
    )


def add_running_flags(parser: Parser) -> None:
    """Where a command computes, and whether it shows how far it is."""
    parser.add_argument(
        "--device",
        metavar="NAME",
        type=device_name,
        default="auto",
        help=f"where to compute: {NAMES} (default: auto)",
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
