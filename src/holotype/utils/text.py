"""Text helpers: counts, lists, sizes and durations in words, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
import os
import unicodedata
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

MAX_SUGGESTIONS = 5000
"""Names of a folder that are looked at: a person who mistypes one of a million images is not helped in time."""


def plural(n: int, one: str, more: str = "") -> str:
    """Return a count with its noun: 1 edit, 2,000 edits, 3 categories."""
    ends = one[:-1] + "ies" if one.endswith("y") else one + ("es" if one.endswith("s") else "s")
    return f"{n:,} {one if n == 1 else more or ends}"


def join_or(names: Iterable[str]) -> str:
    """Return `a, b or c`."""
    *parts, last = names
    return f"{', '.join(parts)} or {last}" if parts else last


def format_duration(seconds: float) -> str:
    """Return 40 s, 12 min, 3 h 20 min, 5 days."""
    if not seconds < 1e9:
        return "an unknown time"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes >= 48 * 60:
        return f"{round(minutes / 1440)} days"
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def format_bytes(n: int) -> str:
    """Return bytes in decimal units: 1.6 GB, 31.0 MB."""
    from rich.filesize import decimal

    return decimal(n)


def suggest(name: str, names: Iterable[str]) -> str:
    """Return ` (did you mean photos?)`, or nothing where no name is close."""
    hint = did_you_mean(name, names, "")
    return f" ({hint})" if hint else ""


def did_you_mean(name: str, names: Iterable[str], otherwise: str) -> str:
    """Return `did you mean photos?`, or `otherwise` where no name is close."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean {close[0]}?" if close else otherwise


def suggest_path(path: Path | str) -> str:
    """Return the suggestion for a file or folder among what lies beside it."""
    wanted = Path(path)
    try:
        with os.scandir(wanted.parent) as entries:
            names = [entry.name for entry in islice(entries, MAX_SUGGESTIONS)]
    except (OSError, ValueError):  # the folder does not exist either, or the path is none
        return ""
    close = difflib.get_close_matches(wanted.name, names, n=1)
    return f" (did you mean {wanted.with_name(close[0])}?)" if close and wanted.name else ""


def nfc(name: str) -> str:
    """Return the name with each letter and its accents in one (NFC). Folders that were made on a Mac have them apart,
    browsers and lists do not, and both look the same."""
    return unicodedata.normalize("NFC", name)
