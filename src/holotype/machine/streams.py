"""stdout and stderr that end no work: their reader may be gone (`| head`), their disk full, or they may be closed.

Hours of training are worth more than a line about them, so that a line which cannot be written is dropped. What a
command was asked to say on stdout is another matter: that it was lost is told when the command ends.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any


class Lasting:
    """A stream that drops what it cannot write."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.problem: OSError | None = None
        """Why it has dropped something; None where it has not."""

    def write(self, text: str) -> int:
        if self.problem is None:
            try:
                self.stream.write(text)
            except OSError as problem:
                self._give_up(problem)
        return len(text)

    def flush(self) -> None:
        if self.problem is None:
            try:
                self.stream.flush()
            except OSError as problem:
                self._give_up(problem)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def _give_up(self, problem: OSError) -> None:
        """What is still in its buffer goes nowhere, else Python would complain of it at its end."""
        self.problem = problem
        with contextlib.suppress(OSError, ValueError):  # a stream in memory has no descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def lasting_streams() -> Iterator[Lasting]:
    """stdout and stderr are such for the time of the block. Gives that of stdout."""
    before = sys.stdout, sys.stderr
    _fill_gaps()
    lasting: list[Any] = [Lasting(io.StringIO() if stream is None else stream) for stream in before]
    sys.stdout, sys.stderr = lasting
    try:
        yield lasting[0]
    finally:
        for stream in lasting:
            stream.flush()
        sys.stdout, sys.stderr = before


def _fill_gaps() -> None:
    """Where a stream is closed (`2>&-`), the first file that is opened would get its number, and whatever a library
    says on stderr would be written into it."""
    if None not in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        return
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
