"""`holotype cache`: what runs have kept in the cache folder, and clearing it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from holotype.cli.common import echo
from holotype.cli.options import CacheOptions
from holotype.errors import InputError
from holotype.utils.memory import CacheEntry, MemoryConfig, cache_folder, list_cache, remove_cache_entry
from holotype.utils.text import format_bytes, format_duration, plural

ENTRIES_SHOWN = 40
"""Files that are listed; the sums count all."""


def cache_command(options: CacheOptions) -> None:
    if options.yes and not options.clear:
        raise InputError("--yes answers the question of --clear; write holotype cache --clear --yes.")
    folder = cache_folder(MemoryConfig(cache_dir=options.cache_dir))
    entries = list_cache(folder)
    going = [entry for entry in entries if entry.can_go]
    echo(cache_text(folder, entries, going))
    if options.clear and going:
        if options.yes or confirm_clear(going):
            gone = [entry for entry in going if remove_cache_entry(entry)]
            echo(f"Deleted {plural(len(gone), 'file')}, {_size(gone)}.")
            if left := len(going) - len(gone):
                echo(
                    f"{plural(left, 'file')} could not be deleted, or a process has begun to use it meanwhile."
                )
        else:
            echo("Nothing was deleted.")


def cache_text(folder: Path, found: Sequence[CacheEntry], going: Sequence[CacheEntry]) -> str:
    """Return a line for each file, and sums."""
    if not found:
        return f"Nothing is kept in {folder}."
    lines = [f"{folder}, with the time since the last use:"]
    for entry in found[:ENTRIES_SHOWN]:
        size, age = format_bytes(entry.nbytes), format_duration(entry.age)
        words = f"{entry.purpose}{'; in use' if entry.held else ''}"
        words = words if entry.purpose else "not made by Holotype; left alone"
        lines.append(f"  {size:>10}  {age:>9}  {entry.path.relative_to(folder)}  {words}")
    if len(found) > ENTRIES_SHOWN:
        lines.append(f"  and {plural(len(found) - ENTRIES_SHOWN, 'smaller one')}")
    goes = "all" if len(going) == len(found) else _size(going)
    return "\n".join([*lines, f"{_size(found)} in all; holotype cache --clear deletes {goes} of it."])


def _size(entries: Sequence[CacheEntry]) -> str:
    return format_bytes(sum(entry.nbytes for entry in entries))


def confirm_clear(going: Sequence[CacheEntry]) -> bool:
    """Ask the person at the terminal."""
    if not sys.stdin.isatty():
        raise InputError(f"--clear would delete {_size(going)}, and nobody is there to be asked; add --yes.")
    echo(f"Delete {plural(len(going), 'file')}, {_size(going)}? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
