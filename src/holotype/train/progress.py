"""What a person sees and does during training: the bar, and Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from torch import Tensor

from holotype.errors import Stopped

SECONDS_BETWEEN_READINGS = 0.5
"""Reading a loss waits for the device; twice a second is enough for a bar."""


class StopRequest:
    """Turns Ctrl-C and SIGTERM into a flag that the loop reads between two steps."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._request)
        return self

    def _request(self, number: int, frame: FrameType | None) -> None:
        self.requested = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def leave(self, where: str) -> None:
        raise Stopped(where)


class TrainingBar:
    """A progress bar with the time left, and the loss terms in a line below; silent where `show` is False."""

    def __init__(self, show: bool, stage: str, total: int) -> None:
        self.show = show
        self.last_reading = 0.0
        if not show:
            return
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.text import Text

        self.progress = Progress(
            TextColumn(f"[bold]{stage}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps,"),
            TimeRemainingColumn(),
        )
        self.task = self.progress.add_task(stage, total=total)
        self.terms = Text("", style="dim")
        shown = Group(self.progress, self.terms)
        self.live = Live(shown, console=Console(file=sys.stderr), refresh_per_second=4)

    def __enter__(self) -> TrainingBar:
        if self.show:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.show:
            self.live.stop()

    def advance_to(self, step: int) -> None:
        if self.show:
            self.progress.update(self.task, completed=step)

    def step(self, terms: dict[str, Tensor]) -> None:
        if not self.show:
            return
        self.progress.advance(self.task)
        if time.monotonic() - self.last_reading > SECONDS_BETWEEN_READINGS:
            self.last_reading = time.monotonic()
            self.terms.plain = "  ".join(f"{name} {float(value):.3f}" for name, value in terms.items())

    def say(self, line: str) -> None:
        """A line above the bar."""
        if self.show:
            self.live.console.print(line, highlight=False, soft_wrap=True)
