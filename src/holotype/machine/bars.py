"""One bar for any work that can be counted: reading, caching, embedding, placing.

On a terminal it moves. In a pipe it is a plain line now and then, ever more rarely; in a notebook, one line that
changes.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from holotype.machine.terminal import console, in_notebook, is_quiet, place

SECONDS_BETWEEN_LINES = 5.0
"""In a pipe; nothing is written about work that takes less."""
SHARE_BETWEEN_LINES = 0.1
"""Of the time so far, where that is longer: a night of training is some dozens of lines."""
SECONDS_BETWEEN_CHANGES = 0.5
"""In a notebook."""


@contextlib.contextmanager
def counting(title: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """A bar for work that is not training; what it yields is told how much more is done."""
    if not show or is_quiet():
        yield lambda more: None
        return
    if place() != "terminal":
        line = PlainBar(title, total)
        yield lambda more: line.show(line.done + more)
        line.close()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console()) as bar:
        task = bar.add_task("", total=total)
        yield lambda more: bar.advance(task, more)


class PlainBar:
    """A bar without a cursor: `Reading images: 1,200/8,000, 15 %, 40 s left`."""

    def __init__(self, title: str, total: int, unit: str = "") -> None:
        self.title, self.total, self.unit, self.done, self.note = title, total, unit, 0, ""
        self.before = 0
        """Done before this process began, which says nothing about its speed."""
        self.started = self.last = time.monotonic()
        self.told = False
        """Whether a line was written that an end belongs to."""
        self._cell: Any = None
        """In a notebook, the output that changes."""

    def show(self, done: int, note: str = "") -> None:
        """Say how far it is, if it is time to. note: what else there is to say."""
        self.done, self.note = done, note or self.note
        now = time.monotonic()
        wait = max(SECONDS_BETWEEN_LINES, SHARE_BETWEEN_LINES * (now - self.started))
        if now - self.last >= (SECONDS_BETWEEN_CHANGES if in_notebook() else wait):
            self._write(now)

    def close(self, always: bool = False) -> None:
        """The last state, where there was one before it or `always`."""
        if self.told or always:
            self._write(time.monotonic())

    def line(self, now: float) -> str:
        parts = [f"{self.done:,}/{self.total:,}{self.unit}"]
        if self.total:
            parts.append(f"{100 * self.done // self.total} %")
        if self.before < self.done < self.total:
            left = (now - self.started) / (self.done - self.before) * (self.total - self.done)
            parts.append(f"{in_words(left)} left")
        return f"{self.title}: {', '.join(parts)}" + (f"; {self.note}" if self.note else "")

    def _write(self, now: float) -> None:
        self.last, self.told, text = now, True, self.line(now)
        if not in_notebook():
            print(text, file=sys.stderr, flush=True)
        elif self._cell is None:
            display = import_module("IPython.display").display  # there, since this runs in its kernel
            self._cell = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._cell.update({"text/plain": text}, raw=True)


def in_words(seconds: float) -> str:
    """40 s, 12 min, 3 h 20 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
