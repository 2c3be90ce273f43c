"""Work that is cut into numbered slices, done one after the other in this process; ray_engine.py does the same on many.

A job is a plain object that can be pickled. It does one slice when it is called with its number, writes the answer to
disk, and returns a few words for the summary. Whoever is killed in between has lost the slices under way, no more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from holotype.errors import InputError, Stopped

IN_A_ROW = 8
"""Slices that fail with none done in between, after which the rest is not tried: a full disk fails them all."""

log = logging.getLogger("holotype")

Done = Callable[[int, Any], None]
"""Is told the number of a slice that was done, and what the job returned."""
Failed = dict[int, str]
"""Numbers of slices to the reason why they could not be done."""
Engine = Callable[[Iterable[int], Done], Failed]
"""Does slices of a job that it knows."""


class SliceJob(Protocol):
    """What is done with each slice."""

    def __call__(self, number: int) -> Any:
        """Write the answer of a slice; what is wrong with one image is part of the answer, and no exception."""

    def ready(self) -> None:
        """Raise InputError where this process cannot do slices at all."""


def run_slices(job: Callable[[int], Any], numbers: Iterable[int], done: Done) -> Failed:
    """Do slices in this process. A stop that was asked for ends it; any other exception is that slice's failure."""
    failed: Failed = {}
    in_a_row = 0
    for number in numbers:
        try:
            answer = job(number)
        except Stopped:
            raise
        except Exception as error:
            failed[number] = reason_of(error)
            in_a_row += 1
            if in_a_row == IN_A_ROW:
                break
        else:
            in_a_row = 0
            done(number, answer)
    return failed


def run_twice(engine: Engine, numbers: Iterable[int], done: Done, note: Callable[[Failed], None]) -> Failed:
    """Do slices, and those that failed once more; returns those that failed both times. note: is told after each."""
    failed = engine(numbers, done)
    note(failed)
    if not failed:
        return failed
    first = min(failed)
    log.info(f"{len(failed):,} slices failed, as slice {first} ({failed[first]}); they are tried again.")
    failed = engine(sorted(failed), done)
    note(failed)
    return failed


def reason_of(error: BaseException) -> str:
    """One line."""
    said = " ".join(str(error).split())[:400]
    return said if isinstance(error, InputError) else f"{type(error).__name__}: {said}"


def share(text: str) -> tuple[int, int]:
    """The value of --only: `2/4` is every fourth slice, from the second on; (1, 4), counted from 0."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(
            f"--only {text} is no share of the work; write i/n with i from 1 to n, as in 2/4 for the second of four."
        )
    return int(found[1]) - 1, int(found[2])
