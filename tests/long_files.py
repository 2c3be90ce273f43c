"""The files of tests that take longest. They begin first, so that no process is left alone with one in the end.

Seconds are those of one core, roughly; a file that is not here takes fewer than ten.
"""

from __future__ import annotations

from pathlib import Path

SECONDS = {
    "torture/test_short.py": 60,
}


def turn(file: Path) -> int:
    """Where a file of tests stands in the queue: those with the smallest number begin."""
    return -SECONDS.get(file.relative_to(Path(__file__).parent).as_posix(), 0)
