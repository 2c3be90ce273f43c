"""Edits: corrections that a person made, read from CSV and kept in an append-only log.

An edit speaks of category ids, which never change within a run, and of an image by the digest of its content, so that
it holds wherever the file lies and for every copy of it. The path beside it is for people; where there is no digest
(written by hand, an unreadable image) it says which image is meant. `apply_edits.py` applies edits. The format and what
each action means: docs/formats.md. The report reads and writes the same files (report/csv.js).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from holotype.data.csv import csv_text, escape_formula, unescape_formula
from holotype.errors import InputError
from holotype.utils.atomic import check_not_link, write_text
from holotype.utils.locks import wait_for_lock

EDIT_LOG = "edits.csv"
"""The log in a run folder. Lines are added and never changed."""
LOG_FORMAT = 2
"""Raised when a column changes its meaning. It stands in the last column, by which a torn line is known."""
READABLE_FORMATS = ("", "1", str(LOG_FORMAT))
"""Files of format 1 have no digests."""
EDIT_COLUMNS = ("run_id", "time", "action", "image", "category", "value")
"""That a file must have; it may also have `digest` and `format`."""
LOG_HEADER = (*EDIT_COLUMNS, "digest", "format")
SURPLUS = "more cells than columns"
ACTIONS = ("rename", "merge", "move", "reject", "confirm")
BLANK_ENDS = re.compile(r"\A[\s\ufeff]+|[\s\ufeff]+\Z")
"""Not str.strip, since the report must strip the same signs, and JavaScript has its own idea of a space."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Edit:
    """One correction. What is not needed by the action is empty."""

    run_id: str
    time: str
    """When it was made, ISO 8601."""
    action: str
    """rename, merge, move, reject or confirm."""
    image: str = ""
    """Path of the image, as in the assignments."""
    category: str = ""
    """Id of the category that is renamed, merged away or rejected, or in which the image was seen."""
    value: str = ""
    """The new name, the id of the target, or the label."""
    digest: str = ""
    """Of the content of the image; "" where it is not known, and `image` counts."""

    @property
    def id(self) -> str:
        """Twelve characters that tell this edit from others, wherever its image lies."""
        subject = self.digest or self.image
        parts = (self.run_id, self.time, self.action, subject, self.category, self.value)
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:12]


# -- CSV --------------------------------------------------------------------------------------------------


def read_edits(path: Path | str) -> list[Edit]:
    """Read the edits in a CSV file, in its order; a spreadsheet may have saved it with semicolons and a BOM."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is not a file; export edits.csv from the report and name that file.")
    return _parse_edits(path.read_bytes(), path)


def _parse_edits(content: bytes, path: Path) -> list[Edit]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as CSV UTF-8.") from error
    rows = csv.DictReader(io.StringIO(text, newline=""), restkey=SURPLUS, delimiter=_delimiter(text))
    missing = [name for name in EDIT_COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}; an edits file has the columns {', '.join(EDIT_COLUMNS)}."
        )
    try:
        filled = (row for row in rows if any(row.get(name) for name in EDIT_COLUMNS))
        return [_edit(row, path, rows.line_num) for row in filled]
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}, is not CSV ({error}); export it again.") from error


def _delimiter(text: str) -> str:
    head = text.split("\n", 1)[0]
    return ";" if head.count(";") > head.count(",") else ","


def _edit(row: dict[str, str | None], path: Path, line: int) -> Edit:
    if any(row.get(SURPLUS) or ()):
        raise InputError(
            f"{path}, line {line}, has more cells than columns; put a text with a comma in quotation marks."
        )
    version = stripped(row.get("format") or "")
    if version not in READABLE_FORMATS:
        raise InputError(
            f"{path}, line {line}, is of format {version!r}, and this version of Holotype reads format {LOG_FORMAT}; "
            "export the edits from a report that this version has built."
        )
    edit = Edit(*(unescape_formula(row.get(name) or "") for name in (*EDIT_COLUMNS, "digest")))
    if edit.action not in ACTIONS:
        raise InputError(
            f"{path}, line {line}: there is no action {edit.action!r}; the actions are {', '.join(ACTIONS)}."
        )
    return edit


def stripped(text: str) -> str:
    """Return the text without blank signs at its ends."""
    return BLANK_ENDS.sub("", text)


def edits_csv(edits: Iterable[Edit]) -> str:
    """Return the edits as the text of a CSV file."""
    return csv_text([LOG_HEADER]) + _lines(edits)


def _lines(edits: Iterable[Edit]) -> str:
    return csv_text([*map(escape_formula, astuple(edit)), str(LOG_FORMAT)] for edit in edits)


# -- the log of a run folder ------------------------------------------------------------------------------


def read_log(folder: Path) -> list[Edit]:
    """Read the edits that a run folder has accepted so far, oldest first, but for a line that a kill has torn."""
    path = folder / EDIT_LOG
    if not path.is_file():
        return []
    content = path.read_bytes()
    whole = content[: _whole_length(content)]
    return _parse_edits(whole, path) if whole.strip() else []


def append_edits(folder: Path, edits: Sequence[Edit]) -> list[Edit]:
    """Add to the log those that it does not hold yet, and return them; InputError as in `check_run`.

    What a kill has left of a line is cut off first.
    """
    check_run(folder, edits)
    with log_locked(folder):
        mend_log(folder)
        held = read_log(folder)
        if new := new_edits(held, edits):
            _append(folder / EDIT_LOG, held, new)
    return new


def _append(path: Path, held: Sequence[Edit], new: Sequence[Edit]) -> None:
    content = path.read_bytes() if path.is_file() else b""
    ours = content.startswith(csv_text([LOG_HEADER]).encode()) and not path.is_symlink()
    if not ours:  # there is none, or a spreadsheet has saved it
        write_text(path, edits_csv([*held, *new]))
        return
    lines = _lines(new) if content.endswith(b"\n") else "\n" + _lines(new)
    try:
        with open(path, "ab", opener=check_not_link) as stream:
            stream.write(lines.encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise InputError(
            f"{path} could not be written ({error.strerror}); free some space, then run the same command again."
        ) from error


def mend_log(folder: Path) -> None:
    """Cut off the end of the log where a kill has torn its last line, and say so."""
    path = folder / EDIT_LOG
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    if (length := _whole_length(content)) < len(content):
        torn = content[length:].decode(errors="replace")
        log.warning(f"{path} ended in the middle of a line, which is dropped: {' '.join(torn.split())[:80]}")
        os.truncate(path, length)


def _whole_length(content: bytes) -> int:
    """Count the bytes of the lines that were written to their end. A line break in quotation marks ends no line; the
    last line may lack one if it has all its cells."""
    length = end = 0
    quoted = False
    for line in content.splitlines(keepends=True):
        length += len(line)
        quoted ^= line.count(b'"') % 2 == 1
        if not quoted and line.endswith((b"\n", b"\r")):
            end = length
    if end < length and not quoted and end:
        head, last = (part.decode(errors="replace") for part in (content[:end], content[end:]))
        rows = list(csv.reader([head.splitlines()[0], last], delimiter=_delimiter(head)))
        has_format = rows[0][-1] != "format" or rows[-1][-1]
        end = length if len(rows[0]) == len(rows[-1]) and has_format else end
    return end


def new_edits(log: Sequence[Edit], edits: Sequence[Edit]) -> list[Edit]:
    """Return those that a log does not hold yet, each once."""
    held, new = {edit.id for edit in log}, dict[str, Edit]()
    for edit in edits:
        if edit.id not in held:
            new.setdefault(edit.id, edit)
    return list(new.values())


def check_run(folder: Path, edits: Sequence[Edit]) -> None:
    """Raise InputError where none of the edits belongs to the run in the folder."""
    runs = run_ids(folder)
    if edits and runs and not any(edit.run_id in runs for edit in edits):
        raise InputError(
            f"These edits were made in the report of run {edits[0].run_id!r}, but {folder} holds run {runs[0]!r}; "
            "use the edits.csv that was exported from this run's report."
        )


@contextmanager
def log_locked(folder: Path) -> Iterator[None]:
    """Hold the log of a run folder; whoever has it is named and waited for. A killed process lets go of it."""
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(
            f"The log of edits in {folder} cannot be written; name a run folder that can be written to."
        )
    with wait_for_lock(folder / EDIT_LOG, "the log of edits"):
        yield


def run_ids(folder: Path) -> list[str]:
    """Of the discovery in a folder, then of its earlier rounds; empty where there is none that can be read."""
    try:
        content = json.loads((folder / "discovery.json").read_bytes())
        return [content["run_id"], *content["facts"].get("earlier_runs", [])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
