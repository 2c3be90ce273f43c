"""How this process talks to whoever reads it: on a terminal, in a pipe or in a notebook, quietly, without colour, and
in characters that the console has."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console

Place = Literal["terminal", "notebook", "pipe"]


@dataclass
class Habits:
    """What the flags of all commands have asked for."""

    quiet: bool = False
    """No bars."""
    no_color: bool = False
    """Colours are also off where NO_COLOR is set, which rich sees to."""


_habits = Habits()


@contextlib.contextmanager
def habits(quiet: bool = False, no_color: bool = False) -> Iterator[None]:
    """Talk so for as long as the block lasts."""
    before = (_habits.quiet, _habits.no_color)
    _habits.quiet, _habits.no_color = quiet, no_color
    try:
        yield
    finally:
        _habits.quiet, _habits.no_color = before


def is_quiet() -> bool:
    return _habits.quiet


def console() -> Console:
    """rich's, on stderr as it is now."""
    from rich.console import Console

    return Console(file=sys.stderr, no_color=True if _habits.no_color else None)


def place() -> Place:
    """Where stderr is read. A terminal that cannot move its cursor is a pipe."""
    if in_notebook():
        return "notebook"
    shown = console()
    return "terminal" if shown.is_terminal and not shown.is_dumb_terminal else "pipe"


def in_notebook() -> bool:
    """Jupyter and its kin run cells in a kernel; IPython on a terminal has none."""
    found: Any = sys.modules.get("IPython")
    shell = found.get_ipython() if found is not None else None
    return getattr(shell, "kernel", None) is not None


def plain_characters() -> None:
    """Write characters that stdout cannot encode as escapes, as stderr does, instead of ending the command."""
    # surrogateescape gives the bytes of odd file names back, and whoever chose another handler meant it
    if getattr(sys.stdout, "errors", None) == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
