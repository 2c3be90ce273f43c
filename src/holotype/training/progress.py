"""What a person sees and does during training: the bar, the line of scores, and Ctrl-C."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torch import Tensor

from holotype.errors import Interrupted, Stopped
from holotype.utils.console import PlainBar, console, console_kind, is_quiet
from holotype.utils.processes import handled_signals

SECONDS_BETWEEN_READINGS = 0.5
"""Reading a loss waits for the device; twice a second is enough for a bar."""


PATIENCE = 5.0
"""Seconds after a request from which on another one ends the run at once."""


class StopRequest:
    """Turns Ctrl-C, SIGTERM and SIGHUP into a flag that the loop reads between two steps.

    What lies between two steps may take minutes (all images through the backbone, for one). Whoever asks again after
    a while is not made to wait: the run ends there, with the state that was saved last.
    """

    def __init__(self) -> None:
        self.requested, self.number = False, int(signal.SIGINT)
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in handled_signals():
            self._before[number] = signal.signal(number, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested, self.number, self._since = True, number, time.monotonic()
        elif time.monotonic() - self._since > PATIENCE:
            raise Interrupted(number)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def leave(self, where: str) -> None:
        raise Stopped(where, self.number)


def score_line(scores: Mapping[str, Any]) -> str:
    """`All 44.4, Old 67.4, New 32.8, AUROC 0.53`: shares in per cent; what is not known is left out."""
    known = {key: value for key, value in scores.items() if isinstance(value, float) and math.isfinite(value)}
    parts = [f"{key.title()} {100 * known[key]:.1f}" for key in ("all", "old", "new") if key in known]
    return ", ".join([*parts, *([f"AUROC {known['auroc']:.2f}"] if "auroc" in known else [])])


class TrainingBar:
    """A progress bar with the time left, and the loss terms in a line below; silent where `show` is False.

    In a pipe and in a notebook, where nothing can be drawn over, it is utils/console.py's plain line.
    Several runs that train together share one: it counts the steps of all, and each run gets its `part`.
    """

    def __init__(self, show: bool, title: str, total: int) -> None:
        self.show, self.is_shared = show and not is_quiet(), False
        self.done, self.note, self.last_reading = 0, "", 0.0
        self.plain: PlainBar | None = None
        self.live: Any = None
        if self.show and console_kind() != "terminal":
            self.plain = PlainBar(title, total, " steps")
        elif self.show:
            from rich.console import Group
            from rich.live import Live
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
            from rich.text import Text

            columns = (TextColumn(f"[bold]{title}"), BarColumn(), MofNCompleteColumn(), TextColumn("steps,"))
            self.progress, self.terms = Progress(*columns, TimeRemainingColumn()), Text("", style="dim")
            self.task = self.progress.add_task(title, total=total)
            self.live = Live(Group(self.progress, self.terms), console=console(), refresh_per_second=4)

    def __enter__(self) -> TrainingBar:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.plain:
            self.plain.close(always=True)
        elif self.live:
            self.live.stop()

    def grow(self, steps: int) -> None:
        """Expect so many steps more than before, or fewer."""
        if self.plain and steps:
            self.plain.total += steps
        elif self.live and steps:
            self.progress.update(self.task, total=(self.progress.tasks[0].total or 0) + steps)

    def part(self, name: str) -> TrainingBar:
        """Return the bar as one of several runs sees it, whose lines begin with its name."""
        return _BarPart(self, name)

    def advance_to(self, step: int) -> None:
        """Count the steps that an interrupted run had done already."""
        if self.plain and self.plain.done == 0:
            self.plain.before = step
        self._draw(step)

    def step(self, terms: Mapping[str, Tensor]) -> None:
        """Count one step, and show its loss terms now and then."""
        self.count(1, terms)

    def count(self, steps: int, terms: Mapping[str, Tensor], name: str = "") -> None:
        """Count steps of the run of this name."""
        if self.show and terms and time.monotonic() - self.last_reading > SECONDS_BETWEEN_READINGS:
            self.last_reading = time.monotonic()
            note = "  ".join(f"{term} {float(value):.3f}" for term, value in terms.items())
            self.note = f"{name}: {note}" if name else note
        self._draw(self.done + steps)

    def _draw(self, done: int) -> None:
        self.done = done
        if self.plain:
            self.plain.show(done, self.note)
        elif self.live:
            self.terms.plain = self.note
            self.progress.update(self.task, completed=done)

    def say(self, line: str) -> None:
        """Write a line above the bar."""
        if self.plain:
            print(line, file=sys.stderr, flush=True)
        elif self.live:
            self.live.console.print(line, highlight=False, soft_wrap=True)


class _BarPart(TrainingBar):
    """Counts the steps of one run, of which the whole bar shows the sum."""

    def __init__(self, whole: TrainingBar, name: str) -> None:
        super().__init__(False, name, 0)
        self.show, self.whole, self.name, self.is_shared = whole.show, whole, name, True

    def grow(self, steps: int) -> None:
        self.whole.grow(steps)

    def advance_to(self, step: int) -> None:
        more = max(step - self.done, 0)  # the second stage of a run counts on
        self.count(more, {})

    def count(self, steps: int, terms: Mapping[str, Tensor], name: str = "") -> None:
        self.done += steps
        self.whole.count(steps, terms, self.name)

    def say(self, line: str) -> None:
        self.whole.say(f"{self.name}: {line}")
