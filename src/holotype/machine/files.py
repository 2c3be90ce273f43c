"""Writing files so that a kill or a full disk at any moment leaves the old content or the new one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from holotype.errors import InputError


def write_beside(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file beside `path`, then fsync it and rename it into place."""
    beside = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
        _sync_folder(path.parent)
    except OSError as error:
        _remove(beside)
        raise InputError(
            f"{path} could not be written ({error.strerror or error}); what was there before is untouched: "
            "free some space or choose another place, then run the same command again."
        ) from error
    except BaseException:
        _remove(beside)
        raise


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def write_bytes(path: Path, content: bytes) -> None:
    def write(beside: Path) -> None:
        beside.write_bytes(content)

    write_beside(path, write)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
