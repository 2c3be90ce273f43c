"""How this process talks to whoever reads it: on a terminal, in a pipe or in a notebook, quietly, without colour, and
in characters that the console has."""

from __future__ import annotations

import codecs
import contextlib
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console

Place = Literal["terminal", "notebook", "pipe"]
REPLACES = "holotype.plain"
"""Name under which Python finds `_plain`."""
PLAIN = {
    "–": "-", "—": "-", "−": "-", "━": "-", "‘": "'", "’": "'", "“": '"', "”": '"', "«": '"', "»": '"',
    "×": "x", "·": ".", "•": "*", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "≈": "~", "±": "+-",
    "°": " deg", "µ": "u", "ß": "ss", "æ": "ae", "Æ": "AE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L",
}  # fmt: skip
"""What Unicode itself does not take apart."""


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


# -- characters that a console does not have ----------------------------------------------------------


@contextlib.contextmanager
def plain_characters() -> Iterator[None]:
    """What stdout and stderr cannot encode is written in plain letters instead of ending the command."""
    codecs.register_error(REPLACES, _plain)
    changed = []
    for stream in (sys.stdout, sys.stderr):
        before = getattr(stream, "errors", None)
        # surrogateescape gives the bytes of odd file names back, and whoever chose another handler meant it
        if before in ("strict", "backslashreplace") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=REPLACES)
            changed.append((stream, before))
    try:
        yield
    finally:
        for stream, before in changed:
            _restore(stream, before)


def _restore(stream: Any, errors: str) -> None:
    with contextlib.suppress(ValueError, OSError):  # closed meanwhile, or its reader is gone
        stream.reconfigure(errors=errors)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """The handler: each character as the letters it is made of, else as a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(_letters(character) for character in wrong), error.end


def _letters(character: str) -> str:
    if character in PLAIN:
        return PLAIN[character]
    apart = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return apart.strip() or (" " if character.isspace() else "?")
