"""What the scripts here have in common: mistakes end them with one sentence, and records are read with care."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec

from holotype.errors import InputError
from holotype.machine.named_code import allowing_code

P = ParamSpec("P")


def one_sentence(main: Callable[P, int]) -> Callable[P, int]:
    """Of a script's main: bad input is told on stderr and ends it with 2."""

    @functools.wraps(main)
    def called(*words: P.args, **settings: P.kwargs) -> int:
        try:
            with allowing_code():  # runs and studies of one's own
                return main(*words, **settings)
        except InputError as error:
            print(error, file=sys.stderr)
            return 2

    return called


def add_roots(parser: argparse.ArgumentParser) -> None:
    """Flags for the folders of images that twenty.py draws collections from."""
    parser.add_argument("--cub", type=Path, help="folder of CUB-200-2011")
    parser.add_argument("--cifar", type=Path, help="folder of the CIFAR-100 sample")


def roots_of(given: argparse.Namespace) -> dict[str, Path]:
    """Those that were given."""
    return {name: getattr(given, name) for name in ("cub", "cifar") if getattr(given, name)}


def add_record(parser: argparse.ArgumentParser, record: Path) -> None:
    """Flags for the record of a study: where it is, and to print its table alone."""
    parser.add_argument("--out", type=Path, default=record, help=f"the record (default: {record})")
    parser.add_argument(
        "--table", action="store_true", help="print the table of the record, and nothing else"
    )


def read_rows(path: Path, script: str) -> dict[str, Any]:
    """Of a record, by collection; none where there is no record yet."""
    return read_record(path, ["rows"], script)["rows"] if path.is_file() else {}


def read_record(path: Path, keys: Sequence[str], script: str) -> dict[str, Any]:
    """The JSON object that `script` wrote, which holds at least `keys`."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        absent = [key for key in keys if key not in record]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path} cannot be read ({error}); measure again.") from error
    if absent:
        raise InputError(f"{path} is no file of benchmarks/{script}: it lacks {', '.join(absent)}.")
    return record
