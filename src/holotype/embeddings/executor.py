"""Run numbered shards one after the other in this process; ray.py runs them on a cluster.

A job is a plain object that can be pickled. It does one slice when it is called with its number, writes the answer to
disk, and returns a few words for the summary. Whoever is killed in between has lost the slices under way, no more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from holotype.errors import InputError, Stopped

MAX_CONSECUTIVE_FAILURES = 8
"""Slices that fail with none done in between, after which the rest is not tried: a full disk fails them all."""

log = logging.getLogger("holotype")

OnDone = Callable[[int, Any], None]
"""Is told the number of a slice that was done, and what the job returned."""
OnFailed = dict[int, str]
"""Numbers of slices to the reason why they could not be done."""
Executor = Callable[[Iterable[int], OnDone], OnFailed]
"""Does slices of a job that it knows."""


class ShardJob(Protocol):
    """What is done with each slice."""

    def __call__(self, number: int) -> Any:
        """Write the answer of a slice; what is wrong with one image is part of the answer, and no exception."""

    def ready(self) -> None:
        """Raise InputError where this process cannot do slices at all."""


def run_shards(job: Callable[[int], Any], numbers: Iterable[int], done: OnDone) -> OnFailed:
    """Do slices in this process. A stop that was asked for ends it; any other exception is that slice's failure."""
    failed: OnFailed = {}
    in_a_row = 0
    for number in numbers:
        try:
            answer = job(number)
        except Stopped:
            raise
        except Exception as error:
            failed[number] = error_reason(error)
            in_a_row += 1
            if in_a_row == MAX_CONSECUTIVE_FAILURES:
                break
        else:
            in_a_row = 0
            done(number, answer)
    return failed


def run_with_retry(
    engine: Executor, numbers: Iterable[int], done: OnDone, note: Callable[[OnFailed], None]
) -> OnFailed:
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


def error_reason(error: BaseException) -> str:
    """One line."""
    said = " ".join(str(error).split())[:400]
    return said if isinstance(error, InputError) else f"{type(error).__name__}: {said}"


def shard_of_process(text: str) -> tuple[int, int]:
    """The value of --only: `2/4` is every fourth slice, from the second on; (1, 4), counted from 0."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(
            f"--only {text} is no share of the work; write i/n with i from 1 to n, as in 2/4 for the second of four."
        )
    return int(found[1]) - 1, int(found[2])
