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
import time
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
SECONDS_BETWEEN_POLLS = 0.2
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)

POLLS, SHORT_WAIT = 20, 0.01
"""How often a file is asked for that somebody else has locked for a moment, and the seconds between."""

_warned = False


class NoLocks(Exception):
    """Files cannot be locked where this one lies."""


class _Held(Exception):
    """Somebody else has the lock: `in use by ...`."""


class FolderLock:
    """A folder that is held until `release`, or the end of a `with` block, or of the process."""

    def __init__(self, folder: Path, lock: FileLock | None = None, created: list[Path] | None = None) -> None:
        """lock: None where nothing is held. created: folders made for it, inmost first."""
        self.folder, self._lock, self._created = folder, lock, created or []

    def release(self) -> None:
        """Give the folder free; once is enough. A folder that was made for the lock and is still empty goes."""
        _release(self._lock)
        self._lock = None
        with contextlib.suppress(OSError):
            for folder in self._created:
                folder.rmdir()
        self._created = []

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_folder(folder: Path, within: FolderLock | None = None) -> FolderLock:
    """Hold `folder`, which is made if need be; InputError names the process that has it, this one included.

    within: a lock that the caller works under. Where it is of the same folder, it goes on holding it, and the one
    returned here holds nothing of its own. Of the processes of one run the first alone holds.
    """
    folder = Path(folder)
    if is_worker() or (within is not None and within.folder.resolve() == folder.resolve()):
        return FolderLock(folder)
    created = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        return FolderLock(folder, _acquire(folder / LOCK), created)
    except _Held as held:
        raise InputError(f"{folder} is {held}; wait for it to end, or use another folder.") from held


@contextmanager
def wait_for_lock(file: Path, wanted: str) -> Iterator[None]:
    """Hold a file for the time of a block, once nobody else does; whoever does is named in the log.

    wanted: what the file is, as in `the log of edits`. The folder must be there. Where nobody can lock, nobody waits.
    """
    logged = False
    while True:
        try:
            lock = _acquire(lock_path(file))
            break
        except _Held as held:
            if not logged:
                log.info("Waiting for %s, which is %s (%s).", wanted, held, file)
            logged = True
            time.sleep(SECONDS_BETWEEN_POLLS)
    try:
        yield
    finally:
        _release(lock)


def remove_stale_lock(file: Path) -> None:
    """Remove what a killed process left of its lock on a file; a lock that somebody holds stays."""
    if lock_path(file).exists():
        with contextlib.suppress(_Held, InputError, OSError):
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

    for _ in range(POLLS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
        except BlockingIOError:  # somebody looks whether it is in use, which takes no time
            time.sleep(SHORT_WAIT)
        except OSError:
            break
    return False


def is_same_file(descriptor: int, path: Path) -> bool:
    """Whether `path` still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _acquire(path: Path) -> FileLock | None:
    """Return the lock; None where nothing can be locked, or written and so harmed. Raises _Held."""
    lock = FileLock(path, thread_local=False, fallback_to_soft=False, on_acquired=_write_info)
    for looks_left in reversed(range(POLLS)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            return lock.acquire(timeout=POLLS * SHORT_WAIT, poll_interval=SHORT_WAIT).lock
        except Timeout as error:
            raise _Held(_in_use(path)) from error
        except OSError as error:
            if error.errno in NO_LOCK_ERRNOS:
                _warn(path.parent, error)
                return None
            if error.errno in READ_ONLY_ERRNOS and path.parent.is_dir():
                if _remove_foreign(path):
                    continue
                return None
            if error.errno == errno.ELOOP:
                raise InputError(f"{path} is a symbolic link, not a lock; delete it.") from error
            if isinstance(error, FileNotFoundError) and looks_left:
                continue  # its last holder has just removed the folder, or there can be none, as in /proc
            raise InputError(
                f"The folder {path.parent} cannot be used ({error.strerror or error}); choose another --out."
            ) from error
    return None


def _remove_foreign(path: Path) -> bool:
    """Remove the lock file of another user whose process is gone; False where nothing can be written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW)
    except OSError:
        return False
    try:
        if not try_lock(descriptor):
            raise _Held(_in_use(path))
        os.unlink(path)
        return True
    except (NoLocks, OSError):
        return False
    finally:
        os.close(descriptor)


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
    info = LockInfo(
        os.getpid(), socket.gethostname(), command_line(), datetime.now().astimezone().isoformat()
    )
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
        facts = json.loads(path.read_bytes()[: 1 << 16])
        datetime.fromisoformat(facts["time"])
        return LockInfo(int(facts["pid"]), str(facts["host"]), str(facts["command"]), facts["time"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _in_use(path: Path) -> str:
    holder = _read_info(path)
    if holder is None:  # it has not signed yet
        return "in use by another process"
    if (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
        return "in use by another run of this very process"
    since = datetime.fromisoformat(holder.time).astimezone()
    when = f"{since:%H:%M}" if since.date() == datetime.now().date() else f"{since:%Y-%m-%d %H:%M}"
    return f"in use by process {holder.pid} on {holder.host} since {when} ({holder.command[:200]})"


def is_worker() -> bool:
    """Whether this is one of the further processes of a run, in the environment that launchers set."""
    return "WORLD_SIZE" in os.environ and os.environ.get("RANK", "0") != "0"


def _warn(folder: Path, reason: OSError) -> None:
    global _warned
    if not _warned:
        log.warning(
            "%s cannot be locked (%s); see to it that no two commands write to it at once.",
            folder,
            reason.strerror,
        )
    _warned = True
