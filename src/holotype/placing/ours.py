"""Files outside a run folder that were written from it: what somebody else made, or has changed since, is not replaced.

RUN/written.json remembers the digests of what was written where.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from holotype.errors import InputError
from holotype.machine.files import write_beside, write_text
from holotype.machine.locks import waiting_for
from holotype.machine.sealed import read_sealed, sealed

FILE = "written.json"
FORMAT = 1
KEPT = 2
"""Digests of a file that are remembered: a command that is stopped leaves the content of before or the new one."""

READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
"""What a system answers of a run folder that one may read and not write."""

log = logging.getLogger(__name__)


def write_own(run: Path, file: Path, write: Callable[[Path], None], *, changed: bool = False) -> None:
    """Let `write` fill a file beside `file`, which then replaces it; InputError where `file` is not ours.

    changed: it may have been changed since, because `write` takes over what people wrote into it.
    """
    if not changed:
        check_own(run, file)

    def written(part: Path) -> None:
        write(part)
        _remember(run, file, _digest(part))

    write_beside(file, written)


def check_own(run: Path, file: Path) -> None:
    """Raise InputError where there is something that was not written from the run, or has changed since."""
    if file.is_dir():
        raise InputError(f"{file} is a folder; name a file.")
    if os.path.lexists(file) and (not file.is_file() or _digest(file) not in _read(run).get(_key(file), [])):
        raise InputError(
            f"{file} is there already, and was not written from {run} or was changed since, so it stays as it is; "
            "name another file, or move this one away."
        )


def is_known(run: Path, file: Path) -> bool:
    """Was a file of this name ever written from the run?"""
    return _key(file) in _read(run)


def _key(file: Path) -> str:
    return os.path.join(os.path.realpath(file.parent), file.name)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def _read(run: Path) -> dict[str, list[str]]:
    """Digests by file; nothing where the list cannot be read, so that nothing is taken for ours."""
    try:
        content = read_sealed(run / FILE)
        if content["format"] == FORMAT:
            return {
                str(file): [str(digest) for digest in digests] for file, digests in content["files"].items()
            }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return {}


def _remember(run: Path, file: Path, digest: str) -> None:
    try:
        with waiting_for(run / FILE, "the list of what was written"):  # others may be placing other images
            files = _read(run)
            files[_key(file)] = [*(one for one in files.get(_key(file), []) if one != digest), digest][-KEPT:]
            write_text(run / FILE, sealed({"format": FORMAT, "files": files}))
    except InputError as error:
        if getattr(error.__cause__, "errno", None) not in READ_ONLY:
            raise  # before the file is there: the same command goes on as if nothing had happened
        log.warning(f"{run} cannot be written to, so {file} will not be known as its own next time.")
