"""File locks: one command at a time in a folder, released by the system when its process ends.

A lock is `filelock`'s, on FOLDER/.lock, whose text says who holds it; a second command in the folder is refused. Of a
file it is on .NAME.lock beside it, and a second writer waits. The file goes with the lock; one that a killed
process left is free, and the next holder takes it over. Some network drives have no locks: there the work goes on
without one, which is said once.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout, has_fcntl, lock_descriptor

from holotype.errors import InputError

log = logging.getLogger(__name__)

LOCK = ".lock"
NO_LOCK_ERRNOS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EBADF)
"""What a file system answers that has no locks; EBADF: none on files that are open for reading alone."""
READ_ONLY_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
RETRIES = 20
"""How often a lock is tried for while its folder comes and goes with other holders."""
SHORT_WAIT, POLL_SECONDS = 0.2, 0.01
"""Seconds that a lock may be held in passing before somebody counts as its holder, and between two looks."""

_warned = False


class NoLocks(Exception):
    """Files cannot be locked where this one lies."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold `folder` for the time of a block; InputError names the process that has it, this one included.

    The folder is made if need be; one that was made for the lock and is still empty goes with it. Of the processes of
    one run the first alone holds.
    """
    if is_worker():
        yield
        return
    path, created = folder / LOCK, [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        lock = _acquire(path)
    except Timeout as error:
        raise InputError(f"{folder} is {_in_use(path)}; wait, or use another folder.") from error
    try:
        yield
    finally:
        _release(lock)
        with contextlib.suppress(OSError):
            for place in created:
                place.rmdir()


@contextmanager
def wait_for_lock(file: Path, wanted: str) -> Iterator[None]:
    """Hold a file for the time of a block, once nobody else does; whoever does is named in the log.

    wanted: what the file is, as in `the log of edits`. The folder must be there. Where nobody can lock, nobody waits.
    """
    path = lock_path(file)
    try:
        lock = _acquire(path)
    except Timeout:
        log.info("Waiting for %s, which is %s (%s).", wanted, _in_use(path), file)
        lock = _acquire(path, timeout=-1)
    try:
        yield
    finally:
        _release(lock)


def remove_stale_lock(file: Path) -> None:
    """Remove what a killed process left of its lock on a file; a lock that somebody holds stays."""
    if lock_path(file).exists():
        with contextlib.suppress(InputError, OSError):  # Timeout is an OSError
            _release(_acquire(lock_path(file)))


def lock_path(file: Path) -> Path:
    return file.with_name(f".{file.name}.lock")


def try_lock(descriptor: int) -> bool:
    """Lock an open file; False if somebody else has locked it. Raises NoLocks where nobody can."""
    if not has_fcntl:  # elsewhere a lock would keep its own process from writing the file
        raise NoLocks("this system has none")
    try:
        return lock_descriptor(descriptor, blocking=False)
    except OSError as error:
        if error.errno in NO_LOCK_ERRNOS:
            raise NoLocks(error.strerror) from error
        raise


def try_shared_lock(descriptor: int) -> bool:
    """Let others see that an open file is in use: nobody can lock it, though others may share it. False where that
    cannot be, which harms nobody. The lock goes with the last descriptor or mapping made of this one."""
    if not has_fcntl:
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_held(path: Path) -> bool | None:
    """Return whether somebody holds a lock file; None where that cannot be told."""
    try:
        with open(path, opener=check_not_link) as file:
            return not try_lock(file.fileno())
    except (NoLocks, OSError) as error:
        return False if isinstance(error, FileNotFoundError) else None


def check_not_link(path: str, flags: int) -> int:
    """Open a file, as an `opener`; fails where the last part of the path is a link."""
    return os.open(path, flags | NO_FOLLOW)


def _acquire(path: Path, timeout: float = SHORT_WAIT) -> FileLock | None:
    """Return the lock, None where nothing can be locked, or written and so harmed. Raises Timeout where it is held."""
    lock = FileLock(path, thread_local=False, fallback_to_soft=False, on_acquired=_write_info)
    for tries_left in reversed(range(RETRIES)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return lock.acquire(timeout=timeout, poll_interval=POLL_SECONDS).lock
        except Timeout:
            raise
        except OSError as error:
            if isinstance(error, FileNotFoundError) and tries_left:
                continue  # its last holder has just removed the folder, or there can be none, as in /proc
            if error.errno in READ_ONLY_ERRNOS and path.parent.is_dir():
                if is_held(path):
                    raise Timeout(str(path)) from error
                return None
            if error.errno in NO_LOCK_ERRNOS:
                _warn_once(path.parent, error.strerror)
                return None
            if error.errno == errno.ELOOP:
                raise InputError(f"{path} is a symbolic link, not a lock; delete it.") from error
            reason = error.strerror or error
            raise InputError(f"{path.parent} cannot be used ({reason}); choose another folder.") from error
    return None


def _release(lock: FileLock | None) -> None:
    if lock is not None:
        with contextlib.suppress(OSError):
            os.unlink(lock.lock_file)  # before it is free: whoever waits for it sees that it is gone
        lock.release()


@dataclass(frozen=True)
class LockInfo:
    """Who has signed a lock file. It may be dead: then the lock is free."""

    pid: int
    host: str
    command: str
    time: str
    """Since when, ISO 8601."""


def _write_info(descriptor: int) -> None:
    """Write down who holds the lock. A full disk keeps nobody from holding it."""
    now = datetime.now().astimezone().isoformat()
    info = LockInfo(os.getpid(), socket.gethostname(), command_line(), now)
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, (json.dumps(asdict(info), ensure_ascii=False) + "\n").encode())


def command_line() -> str:
    """Return the command of this process, as it could be typed."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


def read_lock_info(folder: Path) -> LockInfo | None:
    """Return who has signed the lock of a folder; None where nobody has. The lock itself is not touched."""
    return _read_info(folder / LOCK)


def _read_info(path: Path) -> LockInfo | None:
    try:
        info = LockInfo(**json.loads(path.read_bytes()[: 1 << 16]))
        datetime.fromisoformat(info.time)
    except (OSError, ValueError, TypeError):
        return None
    return info


def _in_use(path: Path) -> str:
    holder = _read_info(path)
    if holder is None:  # it has not signed yet
        return "in use by another process"
    if (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
        return "in use by another run of this very process"
    since = datetime.fromisoformat(holder.time).astimezone()
    process = f"process {holder.pid} on {holder.host}"
    return f"in use by {process} since {since:%Y-%m-%d %H:%M} ({str(holder.command)[:200]})"


def is_worker() -> bool:
    """Return whether this is one of the further processes of a run, in the environment that launchers set."""
    return "WORLD_SIZE" in os.environ and os.environ.get("RANK", "0") != "0"


def _warn_once(folder: Path, reason: object) -> None:
    global _warned
    if not _warned:
        log.warning("%s cannot be locked (%s); let no two commands write to it at once.", folder, reason)
    _warned = True
