"""What is read and said: the parser of the commands with few flags, and which of several processes speaks."""

from __future__ import annotations

import argparse
import difflib
import os
from typing import NoReturn

from holotype.errors import InputError


def speaks() -> bool:
    """Of the processes that share a run, which all read and find the same, the first one speaks."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, whose complaints become one sentence."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**{**settings, "allow_abbrev": False})  # type: ignore[arg-type]

    def parse_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        given, rest = self.parse_known_args(args, namespace)
        if rest:
            flags = [flag for action in self._actions for flag in action.option_strings]
            close = difflib.get_close_matches(rest[0].partition("=")[0], flags, n=1)
            hint = f"did you mean {close[0]}?" if close else f"{self.prog} --help lists what there is."
            raise InputError(f"{self.prog} does not know {rest[0]!r}; {hint}")
        return given

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{self.prog}: {message}; {self.prog} --help says more.")
