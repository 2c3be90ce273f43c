"""Reading files that somebody else may have put there: a pipe or a device is refused, where it would be waited for, or
read, without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

AT_ONCE = getattr(os, "O_NONBLOCK", 0)
"""A pipe that nobody writes to is opened without waiting."""


def read_bytes(path: Path) -> bytes:
    """All of a file. Raises OSError, also for what is no file."""
    with open(path, "rb", opener=only_a_file) as stream:
        return stream.read()


def check_file(path: Path) -> None:
    """The same for whoever opens it by himself."""
    os.close(only_a_file(str(path), os.O_RDONLY))


def only_a_file(path: str, flags: int) -> int:
    """An opener, which fails where the path leads to a pipe or to a device; of folders Python says so itself."""
    descriptor = os.open(path, flags | AT_ONCE)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is a pipe or a device, no file", path)
