"""File locks: one command at a time in a folder, released by the system when its process ends.

A lock is `flock`'s, on FOLDER/.lock, whose text says who holds it; a second command in the folder is refused. Of a
file it is on .NAME.lock beside it, and a second writer waits. The file goes with the lock; one that a killed
process left is free, and the next holder takes it over. Windows and some network drives have no such locks: there the
work goes on without one, which is said once.
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
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from holotype.errors import InputError

log = logging.getLogger(__name__)

LOCK = ".lock"
NO_LOCK_HINT = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EBADF)
"""What a file system answers that has no locks; EBADF: none on files that are open for reading alone."""
SECONDS_BETWEEN_POLLS = 0.2
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)

POLLS, SHORT_WAIT = 20, 0.01
"""How often a file is asked for that somebody else has locked for a moment, and the seconds between."""

_warned = False


class NoLocks(Exception):
    """Files cannot be locked where this one lies."""


class FolderLock:
    """A folder that is held until `release`, or the end of a `with` block, or of the process."""

    def __init__(self, folder: Path, descriptor: int | None = None, made: list[Path] | None = None) -> None:
        """descriptor: of the locked file; None where nothing is held. made: folders made for it, inmost first."""
        self.folder, self._descriptor, self._made = folder, descriptor, made or []

    def release(self) -> None:
        """Give the folder free; once is enough. A folder that was made for the lock and is still empty goes."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.folder / LOCK)  # before it is free: whoever waits for it sees that it is gone
            os.close(descriptor)
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()
        self._made = []

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
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        descriptor = _acquire(folder / LOCK)
    except _Lock as held:
        raise InputError(f"{folder} is {held}; wait for it to end, or use another folder.") from held
    except NoLocks as error:
        _warn(folder, error)
        return FolderLock(folder, made=made)
    return FolderLock(folder, descriptor, made)


@contextmanager
def wait_for_lock(file: Path, wanted: str) -> Iterator[None]:
    """Hold a file for the time of a block, once nobody else does; whoever does is named in the log.

    wanted: what the file is, as in `the log of edits`. The folder must be there. Where nobody can lock, nobody waits.
    """
    path, said = lock_path(file), False
    while True:
        try:
            descriptor = _acquire(path)
            break
        except NoLocks as error:
            _warn(file.parent, error)
            descriptor = None
            break
        except _Lock as held:
            if not said:
                log.info("Waiting for %s, which is %s (%s).", wanted, held, file)
            said = True
            time.sleep(SECONDS_BETWEEN_POLLS)
    try:
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)
            os.close(descriptor)


def remove_stale_lock(file: Path) -> None:
    """Remove what a killed process left of its lock on a file; a lock that somebody holds stays."""
    path = lock_path(file)
    if not path.exists():
        return
    with contextlib.suppress(_Lock, NoLocks, InputError, OSError):
        descriptor = _acquire(path)
        if descriptor is not None:
            os.unlink(path)
            os.close(descriptor)


def lock_path(file: Path) -> Path:
    return file.with_name(f".{file.name}.lock")


class _Lock(Exception):
    """Somebody else has the lock: `in use by ...`."""


def try_lock(descriptor: int) -> bool:
    """Lock an open file; False if somebody else has locked it. Raises NoLocks where nobody can."""
    try:
        import fcntl
    except ImportError as error:
        raise NoLocks("this system has none") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in NO_LOCK_HINT:
            raise NoLocks(error.strerror) from error
        raise
    return True


def try_shared_lock(descriptor: int) -> bool:
    """Let others see that an open file is in use: nobody can lock it, though others may share it. False where that
    cannot be, which harms nobody. The lock goes with the last descriptor or mapping made of this one."""
    try:
        import fcntl
    except ImportError:
        return False
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
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _acquire(path: Path) -> int | None:
    """The descriptor of the locked file; None in a folder where nothing can be written, so nothing can be harmed.

    Raises _Held where somebody else has it.
    """
    looks = POLLS
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _open(path)
        except OSError as error:
            looks -= 1
            if isinstance(error, FileNotFoundError) and looks:
                continue  # its last holder has just removed the folder, or there can be none, as in /proc
            raise InputError(
                f"The folder {path.parent} cannot be used ({error.strerror or error}); choose another --out."
            ) from error
        if descriptor is None:
            return None
        try:
            if not try_lock(descriptor):
                raise _Lock(_in_use(descriptor))
            if is_same_file(descriptor, path):  # else its last holder has just removed it
                _write_info(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open(path: Path) -> int | None:
    """The lock file, made if need be; for reading alone where it belongs to somebody else. None where there is none,
    and none can be made: in a folder of somebody else, or on a medium for reading alone."""
    for flags in (os.O_RDWR | os.O_CREAT, os.O_RDONLY):
        try:
            return os.open(path, flags | NO_FOLLOW, 0o666)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise InputError(f"{path} is a symbolic link, not a lock; delete it.") from error
            none = flags == os.O_RDONLY and error.errno == errno.ENOENT
            if not none and error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
    return None


def _write_info(descriptor: int) -> None:
    """Write down who holds the lock. A full disk keeps nobody from holding it."""
    now = datetime.now().astimezone()
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    facts = {"pid": os.getpid(), "host": socket.gethostname(), "command": command, "time": now.isoformat()}
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, (json.dumps(facts, ensure_ascii=False) + "\n").encode(), 0)


@dataclass(frozen=True)
class LockInfo:
    """Who has signed a lock file. It may be dead: then the lock is free."""

    pid: int
    host: str
    command: str
    time: str
    """Since when, ISO 8601."""


def read_lock_info(folder: Path) -> LockInfo | None:
    """Who has signed the lock of a folder; None where nobody has. The lock itself is not touched."""
    try:
        return _lock_info((folder / LOCK).read_bytes()[: 1 << 16])
    except (OSError, ValueError):
        return None


def _lock_info(text: bytes) -> LockInfo:
    """Raises ValueError where somebody else has written it, or nobody yet."""
    try:
        facts = json.loads(text)
        found = LockInfo(int(facts["pid"]), str(facts["host"]), str(facts["command"]), str(facts["time"]))
        datetime.fromisoformat(found.time)
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError("not signed") from error


def _in_use(descriptor: int) -> str:
    """By whom, as the lock file tells."""
    try:
        holder = _lock_info(os.pread(descriptor, 1 << 16, 0))
    except (ValueError, OSError):  # it has not signed yet
        return "in use by another process"
    if (holder.pid, holder.host) == (os.getpid(), socket.gethostname()):
        return "in use by another run of this very process"
    since = datetime.fromisoformat(holder.time).astimezone()
    today = since.date() == datetime.now().date()
    when = f"{since:%H:%M}" if today else f"{since:%Y-%m-%d %H:%M}"
    short = holder.command if len(holder.command) <= 200 else holder.command[:200] + " ..."
    return f"in use by process {holder.pid} on {holder.host} since {when} ({short})"


def is_worker() -> bool:
    """Whether this is one of the further processes of a run, in the environment that launchers set."""
    return "WORLD_SIZE" in os.environ and os.environ.get("RANK", "0") != "0"


def _warn(folder: Path, reason: NoLocks) -> None:
    global _warned
    if not _warned:
        log.warning(
            "%s cannot be locked (%s); see to it that no two commands write to it at once.", folder, reason
        )
    _warned = True
