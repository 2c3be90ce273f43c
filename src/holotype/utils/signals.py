"""Handle the signals that ask a command to stop: Ctrl-C, SIGTERM, SIGHUP.

All three are taken the same way: what can be saved is saved, and the exit code is 128 and the number of the signal. A
signal that is ignored, as `nohup` does with SIGHUP, stays ignored.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from holotype.errors import Interrupted

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


_last_signal: Interrupted | None = None


def handled_signals() -> tuple[signal.Signals, ...]:
    """Those that this process can take, and does not ignore on somebody's wish."""
    if threading.current_thread() is not threading.main_thread():
        return ()
    hangup = getattr(signal, "SIGHUP", None)
    return tuple(n for n in STOP_SIGNALS if n != hangup or signal.getsignal(n) != signal.SIG_IGN)


@contextmanager
def interrupting() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP interrupt as Ctrl-C does, where they would end the process at once."""
    global _last_signal
    before, _last_signal = {}, None
    for number in handled_signals():
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            before[number] = signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_signal() -> Interrupted | None:
    """The last signal that has interrupted within the block: a library may have made an error of its own of it."""
    return _last_signal


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _last_signal
    _last_signal = Interrupted(number)
    raise _last_signal
