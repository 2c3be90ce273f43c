"""Edits: corrections that a person made, read from CSV and kept in an append-only log.

An edit speaks of category ids, which never change within a run. `corrections.py` applies them. The format and
what each action means: docs/formats.md. The report reads and writes the same files (report/csv.js).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

from holotype.data.csv import csv_text, escape_formula, unescape_formula
from holotype.errors import InputError
from holotype.utils.atomic import write_text
from holotype.utils.locks import wait_for_lock

EDIT_LOG = "edits.csv"
"""The log in a run folder. Lines are added and never changed."""
LOG_FORMAT = 1
"""Raised when a column changes its meaning. It stands in a column of its own; a file without it is of format 1."""
EDIT_COLUMNS = ("run_id", "time", "action", "image", "category", "value")
SURPLUS = "more cells than columns"
ACTIONS = ("rename", "merge", "move", "reject", "confirm")
BLANK_ENDS = re.compile(r"\A[\s\ufeff]+|[\s\ufeff]+\Z")
"""Not str.strip, since the report must strip the same signs, and JavaScript has its own idea of a space."""


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

    @property
    def digest(self) -> str:
        """Twelve characters that tell this edit from others."""
        return hashlib.sha256("\x1f".join(astuple(self)).encode()).hexdigest()[:12]


# -- CSV --------------------------------------------------------------------------------------------------


def read_edits(path: Path | str) -> list[Edit]:
    """The edits in a CSV file, in its order; a spreadsheet may have saved it with semicolons and a BOM."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} is not a file; export edits.csv from the report and name that file.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as CSV UTF-8.") from error
    head = text.split("\n", 1)[0]
    delimiter = ";" if head.count(";") > head.count(",") else ","
    rows = csv.DictReader(io.StringIO(text, newline=""), restkey=SURPLUS, delimiter=delimiter)
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


def _edit(row: dict[str, str | None], path: Path, line: int) -> Edit:
    if any(row.get(SURPLUS) or ()):
        raise InputError(
            f"{path}, line {line}, has more cells than columns; put a text with a comma in quotation marks."
        )
    version = stripped(row.get("format") or "")
    if version not in ("", str(LOG_FORMAT)):
        raise InputError(
            f"{path}, line {line}, is of format {version!r}, and this version of Holotype reads format {LOG_FORMAT}; "
            "export the edits from a report that this version has built."
        )
    edit = Edit(*(unescape_formula(row[name] or "") for name in EDIT_COLUMNS))
    if edit.action not in ACTIONS:
        raise InputError(
            f"{path}, line {line}: there is no action {edit.action!r}; the actions are {', '.join(ACTIONS)}."
        )
    return edit


def stripped(text: str) -> str:
    """The text without blank signs at its ends."""
    return BLANK_ENDS.sub("", text)


def edits_csv(edits: Iterable[Edit]) -> str:
    """The edits as the text of a CSV file."""
    rows = [[*EDIT_COLUMNS, "format"]]
    return csv_text(rows + [[*map(escape_formula, astuple(edit)), str(LOG_FORMAT)] for edit in edits])


# -- the log of a run folder ------------------------------------------------------------------------------


def read_log(folder: Path) -> list[Edit]:
    """The edits that a run folder has accepted so far, oldest first."""
    return read_edits(folder / EDIT_LOG) if (folder / EDIT_LOG).is_file() else []


def append_edits(folder: Path, edits: Sequence[Edit]) -> list[Edit]:
    """Add to the log those that it does not hold yet, and return them; InputError as in `check_run`."""
    check_run(folder, edits)
    with log_locked(folder):
        log = read_log(folder)
        if new := new_edits(log, edits):
            write_text(folder / EDIT_LOG, edits_csv([*log, *new]))
    return new


def new_edits(log: Sequence[Edit], edits: Sequence[Edit]) -> list[Edit]:
    """Those that a log does not hold yet."""
    held = set(log)
    return [edit for edit in dict.fromkeys(edits) if edit not in held]


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
