"""What tells that an image file was replaced: its size and the time of its last change."""

from __future__ import annotations

import os
from collections.abc import Sequence

from holotype.data.containers import split_container


def stamps(paths: Sequence[str]) -> list[str]:
    """`size-mtime_ns` per image, "" for a file that is gone. An image inside a container has its container's."""
    return [_stamp(inside[0] if (inside := split_container(path)) else path) for path in paths]


def _stamp(file: str) -> str:
    try:
        found = os.stat(file)
    except OSError:
        return ""
    return f"{found.st_size}-{found.st_mtime_ns}"
