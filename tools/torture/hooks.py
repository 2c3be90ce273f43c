"""Audit hooks of a child: they count what it does to files, end it there, or let the system refuse.

Python tells its hooks of every file that is opened, renamed or removed, before it happens. So a kill at each of these
moments, and a full or broken disk, need no change of the product.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

CHANGES = {
    "os.rename": (0, 1),
    "os.remove": (0,),
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.utime": (0,),
}
"""Events that change files, and which of their arguments are the paths that are changed."""
FOLDERS = {"os.rename": 2, "os.remove": 1, "os.mkdir": 2, "os.rmdir": 1}
"""Which argument is the first descriptor of a folder that the paths start at."""
MAKES = ("open", "os.mkdir", "os.link", "os.symlink", "os.rename", "os.truncate")
"""Events that a full disk can refuse."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CLOCKWORK = "heartbeat.json"
"""A file that is written by the clock: its changes come at other moments each time."""
DEVICE = re.compile(r"/proc/|/dev/(?!shm/)|/dev/shm/pym-")
"""What is no file on a disk. Below /dev/shm lie ordinary files, and memory that processes share (pym-)."""
STARTS = (
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "os.startfile",
    "pty.spawn",
)
TALKS = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request")


@dataclass
class Watch:
    """What a child does to the outside. Install it in the child."""

    folders: tuple[str, ...] = ()
    """Changes in these are counted, and are the moments at which `at` happens; those elsewhere are listed."""
    at: int = -1
    """Number of the change before which it happens, from 0; -1 = never."""
    error: int = 0
    """What the system says from then on, for `last` changes; 0 = the child is killed."""
    last: int = 1
    count: int = 0
    seen: list[str] = field(default_factory=list)
    """The changes, in words."""
    outside: list[str] = field(default_factory=list)
    """Changes elsewhere."""
    started: list[str] = field(default_factory=list)
    """Programs that were started."""
    talked: list[str] = field(default_factory=list)
    """Hosts that were asked for something."""
    refused: int = 0
    """How often the system refused."""
    held_back: int = 0
    """A signal that waits until the command has opened its first file: before that, nobody could handle it."""

    def install_in(self, *folders: str) -> Watch:
        """Begin, with these folders."""
        self.folders = folders
        return self.install()

    def install(self) -> Watch:
        self.folders = tuple(os.path.realpath(folder) for folder in self.folders)
        sys.addaudithook(self._hear)
        return self

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.held_back and event == "open":
            sign, self.held_back = self.held_back, 0
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {sign})
        if event == "open" or event in CHANGES:
            for path in _changed(event, arguments):
                self._change(event, path)
        elif event in STARTS:
            self.started.append(f"{event} {arguments[:2]}")
        elif event in TALKS:
            self.talked.append(f"{event} {arguments[1:3]}")

    def _change(self, event: str, path: str) -> None:
        if not any(path == folder or path.startswith(folder + os.sep) for folder in self.folders):
            if not DEVICE.match(path):
                self.outside.append(f"{event} {path}")
            return
        if CLOCKWORK in os.path.basename(path):
            return
        number, self.count = self.count, self.count + 1
        self.seen.append(f"{event} {os.path.basename(path)}")
        if self.at < 0 or not self.at <= number < self.at + self.last:
            return
        if not self.error:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.error != errno.ENOSPC or event in MAKES:
            self.refused += 1
            raise OSError(self.error, os.strerror(self.error), path)


def _changed(event: str, arguments: tuple[Any, ...]) -> Iterable[str]:
    """The paths that an event changes; of a rename the target alone, since both lie in one folder."""
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, int) or not (flags or 0) & WRITES:
            return []
        where = _absolute(path, None)
        return [where if flags & (os.O_NOFOLLOW | os.O_EXCL) else os.path.realpath(where)]
    places = [arguments[i] for i in CHANGES[event]]
    first = FOLDERS.get(event)
    folder = arguments[first] if first is not None and len(arguments) > first else None
    return [_absolute(place, folder) for place in places[-1:] if not isinstance(place, int)]


def _absolute(path: Any, folder: int | None) -> str:
    text = os.fsdecode(path)
    if not os.path.isabs(text) and isinstance(folder, int) and folder >= 0:
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    head, tail = os.path.split(os.path.abspath(text))
    return os.path.join(os.path.realpath(head), tail)
