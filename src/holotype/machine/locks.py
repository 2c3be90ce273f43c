"""One process at a time in a run folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType

from holotype.errors import InputError

FILE = ".lock"


class FolderLock:
    """Holds a folder until `release`, the end of a `with` block, or the end of the process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(folder / FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise InputError(f"{folder} cannot be written to ({error.strerror}); choose another.") from error
        if not _lock(self._file):
            self.release()
            raise InputError(
                f"Another process is at work in {folder}; wait until it is done, or choose another folder with --out."
            )

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def hold(folder: Path) -> FolderLock:
    """Take the folder; raises InputError where another process has it."""
    return FolderLock(Path(folder))


def _lock(file: int) -> bool:
    with contextlib.suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
    return True
