"""`holotype cache`: what runs have kept in the cache folder, and clearing it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holotype.cli.common import Parser, echo
from holotype.errors import InputError
from holotype.utils.memory import CacheEntry, MemoryConfig, cache_folder, list_cache, remove_cache_entry
from holotype.utils.text import format_bytes, format_duration, plural

ENTRIES_SHOWN = 40
"""Files that are listed; the sums count all."""


@dataclass
class CacheOptions:
    """List the files of the cache folder: size, age, purpose. You can delete all of it at any time; the next run that
    needs it makes it again. Files used by a running process stay."""

    clear: bool = False
    """Delete it, after a question."""
    yes: bool = False
    """With --clear: do not ask."""
    cache_dir: Annotated[str, "DIR"] | None = None
    """A folder that runs were given with --memory.cache_dir (default: holotype in the user's cache folder)."""


def make_parser() -> Parser:
    return Parser("cache", CacheOptions)


def command(argv: Sequence[str]) -> int:
    options: CacheOptions = make_parser().parse_args(argv)
    if options.yes and not options.clear:
        raise InputError("--yes answers the question of --clear; write holotype cache --clear --yes.")
    folder = cache_folder(MemoryConfig(cache_dir=options.cache_dir))
    entries = list_cache(folder)
    echo(cache_text(folder, entries))
    going = [entry for entry in entries if entry.can_go]
    if options.clear and going:
        echo(clear_cache(going) if options.yes or confirm_clear(going) else "Nothing was deleted.")
    return 0


def cache_text(folder: Path, found: Sequence[CacheEntry]) -> str:
    """A line for each file, and sums."""
    if not found:
        return f"Nothing is kept in {folder}."
    rows = [
        (format_bytes(kept.nbytes), format_duration(kept.age), kept.path, entry_text(kept)) for kept in found
    ]
    lines = [
        f"  {size:>10}  {age:>9}  {path.relative_to(folder)}  {words}" for size, age, path, words in rows
    ]
    if len(lines) > ENTRIES_SHOWN:
        lines[ENTRIES_SHOWN:] = [f"  and {plural(len(lines) - ENTRIES_SHOWN, 'smaller one')}"]
    total, going = (sum(kept.nbytes for kept in of) for of in (found, [k for k in found if k.can_go]))
    goes = "all" if going == total else format_bytes(going)
    lines.append(f"{format_bytes(total)} in all; holotype cache --clear deletes {goes} of it.")
    return "\n".join([f"{folder}, with the time since the last use:", *lines])


def entry_text(kept: CacheEntry) -> str:
    if not kept.purpose:
        return "not made by Holotype; left alone"
    return f"{kept.purpose}; in use" if kept.held else kept.purpose


def confirm_clear(going: Sequence[CacheEntry]) -> bool:
    """Ask the person at the terminal."""
    size = format_bytes(sum(kept.nbytes for kept in going))
    if not sys.stdin.isatty():
        raise InputError(
            f"holotype cache --clear would delete {size}, and nobody is there to be asked; add --yes."
        )
    try:
        answer = input(f"Delete {plural(len(going), 'file')}, {size}? [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")


def clear_cache(going: Sequence[CacheEntry]) -> str:
    """Delete them; says what came of it."""
    gone = [kept for kept in going if remove_cache_entry(kept)]
    text = f"Deleted {plural(len(gone), 'file')}, {format_bytes(sum(kept.nbytes for kept in gone))}."
    left = len(going) - len(gone)
    if left:
        text += f" {plural(left, 'file')} could not be deleted, or a process has begun to use it meanwhile."
    return text
