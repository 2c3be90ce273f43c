"""What the scripts here have in common: mistakes end them with one sentence, and records are read with care."""

from __future__ import annotations

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
