"""Whether an image file is still the one that it was, without reading it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from holotype.data.containers import file_of


def stamps(paths: Sequence[str]) -> list[str]:
    """ "size-mtime_ns" of each image's file, "" where it is gone; "file#index" has that of the container."""
    known: dict[str, str] = {}
    found = []
    for path in paths:
        file = file_of(path)
        if file not in known:
            known[file] = _stamp(file)
        found.append(known[file])
    return found


def _stamp(file: str) -> str:
    try:
        stat = os.stat(file)
    except (OSError, ValueError):
        return ""
    return f"{stat.st_size}-{stat.st_mtime_ns}"
