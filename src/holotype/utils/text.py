"""Text helpers: counts in words, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

MAX_SUGGESTIONS = 5000
"""Names of a folder that are looked at: a person who mistypes one of a million images is not helped in time."""


def plural(n: int, one: str, more: str = "") -> str:
    """Return a count with its noun: 1 edit, 2,000 edits, 3 categories."""
    return f"{n:,} {one if n == 1 else more or one + 's'}"


def suggest(name: str, there: Iterable[str]) -> str:
    """` (did you mean photos?)`; nothing where no name is close."""
    close = difflib.get_close_matches(name, list(there), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def suggest_path(path: Path | str) -> str:
    """The same of a file or folder: what lies where it should."""
    wanted = Path(path)
    try:
        with os.scandir(wanted.parent) as entries:
            close = difflib.get_close_matches(
                wanted.name, [one.name for one in islice(entries, MAX_SUGGESTIONS)], n=1
            )
    except (OSError, ValueError):  # the folder is not there either, or the path is none
        return ""
    return f" (did you mean {wanted.with_name(close[0])}?)" if close and wanted.name else ""
