"""Reading a file; only sealed.py and sealed_table.py use it."""

from __future__ import annotations

from pathlib import Path


def read_bytes(path: Path) -> bytes:
    """Return all of a file."""
    return path.read_bytes()
