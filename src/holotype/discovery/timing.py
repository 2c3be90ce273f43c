"""How long each step of a discovery took, and where it was stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from holotype.errors import Stopped, signal_of
from holotype.utils.heartbeat import update_heartbeat


class Clock:
    """Seconds by step. Ctrl-C or another signal within a step becomes a stop that can be gone on from."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: of the discovery, whose heartbeat names the step."""
        self.folder = folder
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        if self.folder is not None:
            update_heartbeat(self.folder, phase=name)
        try:
            yield
        except KeyboardInterrupt as stop:
            raise Stopped(name, signal_of(stop)) from stop
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.monotonic() - started, 1)
