"""What a folder holds, without what differs from run to run: times, seconds and the random ids of runs."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

Snapshot = dict[str, str]
"""Path below the folder to the digest of the content; of a link, where it leads."""
RUN_ID = re.compile(r"\b[0-9a-f]{12}-\d+\b")
"""What a round is called (discovery/round_runner.py); that of a training is made from its identity."""
CLOCK = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.:+Z-]*")
ROOM = re.compile(r"room for [\d.]+ \w?B")
"""How much memory or disk happened to be free."""
TIMED = re.compile(r"(^|_)seconds$|^(time|started|finished|run_id|pid|host|check)$")
"""Keys whose values differ from run to run; check: the checksum of such values."""
LINES = (".jsonl",)
JSON = (".json",)
TEXT = (".html", ".csv", ".yaml", ".md", ".txt")
LARGE = 1 << 20
"""Bytes from which on a file is weights, whose digests are remembered."""

_digests: dict[tuple[int, ...], str] = {}


def snapshot(folder: Path) -> Snapshot:
    """Everything below a folder, empty folders too."""
    found: Snapshot = {}
    for where, folders, names in os.walk(folder):
        below = os.path.relpath(where, folder)
        if not folders and not names:
            found[below + os.sep] = ""
        for name in names:
            path = Path(where, name)
            found[os.path.normpath(os.path.join(below, name))] = digest(path)
    return found


def digest(path: Path) -> str:
    if path.is_symlink():
        return f"-> {os.readlink(path)}"
    facts = path.stat()
    if facts.st_size > LARGE:
        return _large(path, (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns))
    content = path.read_bytes()
    try:
        plain = _plain(path.name, content)
    except (ValueError, UnicodeDecodeError):
        plain = content
    return hashlib.sha256(plain).hexdigest()[:16]


def _large(path: Path, known: tuple[int, ...]) -> str:
    """Read once: the same file has the same digest."""
    if known not in _digests:
        with path.open("rb") as stream:
            _digests[known] = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    return _digests[known]


def _plain(name: str, content: bytes) -> bytes:
    """The content without what differs from run to run."""
    ending = os.path.splitext(name)[1]
    if name == ".holotype-folders.json":  # with the times of the files
        return json.dumps(sorted(json.loads(content)["files"])).encode()
    if ending in JSON:
        return json.dumps(_timeless(json.loads(content))).encode()
    if ending in LINES:
        rows = [json.loads(line) for line in content.decode().splitlines()]
        return json.dumps(_timeless(rows)).encode()
    if ending == ".js":
        _, mark, rest = content.decode().partition("{")
        return json.dumps(_timeless(json.loads((mark + rest).rstrip(";\n ")))).encode()
    if ending == ".csv" and b"seconds" in content.split(b"\n", 1)[0]:
        return _without_seconds(content.decode()).encode()
    return _words(content.decode()).encode() if ending in TEXT else content


def _without_seconds(text: str) -> str:
    head, *rows = csv.reader(text.splitlines())
    kept = [i for i, name in enumerate(head) if not TIMED.search(name)]
    return _words("\n".join("|".join(row[i] for i in kept) for row in (head, *rows)))


def _words(text: str) -> str:
    return ROOM.sub("", CLOCK.sub("T", RUN_ID.sub("R", text)))


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {_words(key): _timeless(inner) for key, inner in value.items() if not TIMED.search(key)}
    if isinstance(value, list):
        return [_timeless(inner) for inner in value]
    return _words(value) if isinstance(value, str) else value


def differences(wanted: Snapshot, found: Snapshot) -> list[str]:
    """A sentence for every file that is missing, left over or other than it should be."""
    told = [f"{path} is missing" for path in sorted(wanted.keys() - found.keys())]
    told += [f"{path} was left behind" for path in sorted(found.keys() - wanted.keys())]
    both = sorted(path for path in wanted.keys() & found.keys() if wanted[path] != found[path])
    return told + [f"{path} differs" for path in both]
