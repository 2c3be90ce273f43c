"""The exceptions that speak to users: bad input, said in a sentence, and a stop that was asked for."""

from __future__ import annotations

import signal
from typing import Self


class InputError(Exception):
    """Something the user gave cannot be used.

    The message is one clear sentence that says what is wrong, where, and what to do about it.
    The command line prints it and exits with code 2; it never shows a traceback.
    """

    def alone(self) -> Self:
        """The sentence without the frames that it came through, for whoever keeps it: they hold all that was there."""
        self.__traceback__ = self.__cause__ = self.__context__ = None
        return self


class Stopped(Exception):
    """Training was asked to stop and saved its state; the message says where."""

    def __init__(self, where: str, number: int = signal.SIGINT) -> None:
        """number: of the signal that asked."""
        super().__init__(where)
        self.number = int(number)


class Interrupted(KeyboardInterrupt):
    """What Ctrl-C is, by another signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = int(number)


def signal_of(error: BaseException) -> int:
    """The signal that a stop was asked for with; Ctrl-C's, where it does not say."""
    return int(getattr(error, "number", signal.SIGINT))
