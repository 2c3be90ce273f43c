"""Whether an image file is still the one that it was, without reading it."""

from __future__ import annotations

from collections.abc import Sequence

from holotype.data.containers import file_of
from holotype.data.stores import StoreProblem, stamp_of
from holotype.errors import InputError


def stamps(paths: Sequence[str]) -> list[str]:
    """ "size-mtime_ns" of each image's file, "" where it is gone; "file#index" has that of the container.

    Raises InputError where a store does not answer: what it holds is not gone.
    """
    known: dict[str, str] = {}
    found = []
    for path in paths:
        file = file_of(path)
        if file not in known:
            known[file] = _stamp(file)
        found.append(known[file])
    return found


def _stamp(file: str) -> str:
    try:
        return stamp_of(file)
    except StoreProblem as problem:
        raise InputError(str(problem)) from problem
