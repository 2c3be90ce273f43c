"""Terminal output: console options, best-effort streams, progress bars.

On a terminal it moves. In a pipe it is a plain line now and then, ever more rarely; in a notebook, one line that
changes.

Hours of training are worth more than a line about them, so that a line which cannot be written is dropped. What a
command was asked to say on stdout is another matter: that it was lost is told when the command ends.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from holotype.utils.text import format_duration

if TYPE_CHECKING:
    from rich.console import Console

ConsoleKind = Literal["terminal", "notebook", "pipe"]

_options = {"quiet": False, "no_color": False}
"""What the flags of all commands have asked for: no bars, no colours. NO_COLOR is seen to by rich."""


@contextlib.contextmanager
def console_options(quiet: bool = False, no_color: bool = False) -> Iterator[None]:
    """Set what the flags have asked for as long as the block lasts."""
    before = dict(_options)
    _options.update(quiet=quiet, no_color=no_color)
    try:
        yield
    finally:
        _options.update(before)


def is_quiet() -> bool:
    return _options["quiet"]


def console() -> Console:
    """Return rich's console on stderr as it is now."""
    from rich.console import Console

    return Console(file=sys.stderr, no_color=_options["no_color"] or None)


def console_kind() -> ConsoleKind:
    """Return where stderr is read. A terminal that cannot move its cursor is a pipe."""
    shown = console()
    if shown.is_jupyter:
        return "notebook"
    return "terminal" if shown.is_terminal and not shown.is_dumb_terminal else "pipe"


def plain_characters() -> None:
    """Write characters that stdout cannot encode as escapes, as stderr does, instead of ending the command."""
    # surrogateescape gives the bytes of odd file names back, and whoever chose another handler meant it
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


SECONDS_BETWEEN_LINES = 5.0
"""In a pipe; nothing is written about work that takes less."""
SHARE_BETWEEN_LINES = 0.1
"""Of the time so far, where that is longer: a night of training is some dozens of lines."""
SECONDS_BETWEEN_CHANGES = 0.5
"""In a notebook."""


@contextlib.contextmanager
def progress_bar(title: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """Show a bar for work that is not training; yield a function that is told how much more is done."""
    if not show or is_quiet():
        yield lambda more: None
        return
    if console_kind() != "terminal":
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
        self.notebook, self.width = console_kind() == "notebook", 0

    def show(self, done: int, note: str = "") -> None:
        """Say how far it is, if it is time to. note: what else there is to say."""
        self.done, self.note = done, note or self.note
        now = time.monotonic()
        wait = max(SECONDS_BETWEEN_LINES, SHARE_BETWEEN_LINES * (now - self.started))
        if now - self.last >= (SECONDS_BETWEEN_CHANGES if self.notebook else wait):
            self._write(now, end="" if self.notebook else "\n")

    def close(self, always: bool = False) -> None:
        """Write the last state, where there was one before it or `always`."""
        if self.told or always:
            self._write(time.monotonic())

    def line(self, now: float) -> str:
        parts = [f"{self.done:,}/{self.total:,}{self.unit}"]
        if self.total:
            parts.append(f"{100 * self.done // self.total} %")
        if self.before < self.done < self.total:
            left = (now - self.started) / (self.done - self.before) * (self.total - self.done)
            parts.append(f"{format_duration(left)} left")
        return f"{self.title}: {', '.join(parts)}" + (f"; {self.note}" if self.note else "")

    def _write(self, now: float, end: str = "\n") -> None:
        self.last, self.told, text = now, True, self.line(now)
        start = "\r" if self.notebook else ""  # over the line before it
        print(start + text.ljust(self.width), end=end, file=sys.stderr, flush=True)
        self.width = len(text) if self.notebook else 0


class BestEffortStream:
    """A stream that drops what it cannot write."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.problem: OSError | None = None
        """Why it has dropped something; None where it has not."""

    def write(self, text: str) -> int:
        self._try(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def _try(self, action: Callable[..., object], *text: str) -> None:
        if self.problem is not None:
            return
        try:
            action(*text)
        except OSError as problem:
            self.problem = problem
            # what is still in its buffer goes nowhere, else Python would complain of it at its end
            with contextlib.suppress(OSError, ValueError):  # a stream in memory has no descriptor
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.stream.fileno())
                os.close(nowhere)


@contextlib.contextmanager
def best_effort_streams() -> Iterator[BestEffortStream]:
    """Make stdout and stderr such streams for the time of the block; yield that of stdout."""
    before = sys.stdout, sys.stderr
    _fill_gaps()
    lasting: list[Any] = [BestEffortStream(io.StringIO() if stream is None else stream) for stream in before]
    sys.stdout, sys.stderr = lasting
    try:
        yield lasting[0]
    finally:
        for stream in lasting:
            stream.flush()
        sys.stdout, sys.stderr = before


def _fill_gaps() -> None:
    """Open what is closed: with `2>&-` the first file that is opened would get the number of stderr, and whatever a
    library says there would be written into it."""
    if None not in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        return
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
