"""Corrections that a person made: one `Edit` each, read from `edits.csv` and kept in an append-only log.

An edit speaks of category ids, which never change within a run. `corrections.py` applies them. The format and
what each action means: docs/formats.md.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.errors import InputError
from holotype.machine.files import write_text

if TYPE_CHECKING:  # pandas takes half a second to import
    from holotype.categories.found import Discovery

LOG = "edits.csv"
"""The log in a run folder. Lines are added and never changed."""
COLUMNS = ("run_id", "time", "action", "image", "category", "value")
ACTIONS = ("rename", "merge", "move", "reject", "confirm")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a cell that begins like this for a formula; such a cell gets an apostrophe in front."""
RISKY = (*FORMULA, "'")
"""The same in files that are read again, where an apostrophe of one's own must be told from ours."""


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


@dataclass
class Applied:
    """What came of applying edits."""

    discovery: Discovery
    """As corrected. facts.edits says which edits it holds, and what was merged, rejected and confirmed."""
    confirmed: dict[str, str] = field(default_factory=dict)
    """Path to label, for the next round of training."""
    problems: list[str] = field(default_factory=list)
    """A sentence for each edit that could not be applied, or that another one contradicts."""
    count: int = 0
    """Edits that changed something this time."""


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
    rows = csv.DictReader(
        io.StringIO(text, newline=""), delimiter=";" if head.count(";") > head.count(",") else ","
    )
    missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]!r}; an edits file has the columns {', '.join(COLUMNS)}."
        )
    try:
        return [_edit(row, path, rows.line_num) for row in rows if any(row.get(name) for name in COLUMNS)]
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}, is not CSV ({error}); export it again.") from error


def _edit(row: dict[str, str | None], path: Path, line: int) -> Edit:
    edit = Edit(*(bare(row[name] or "") for name in COLUMNS))
    if edit.action not in ACTIONS:
        raise InputError(
            f"{path}, line {line}: there is no action {edit.action!r}; the actions are {', '.join(ACTIONS)}."
        )
    return edit


def guarded(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return "'" + cell if cell.startswith(RISKY) else cell


def bare(cell: str) -> str:
    """The inverse of `guarded`."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(RISKY) else cell


def to_csv(edits: Iterable[Edit]) -> str:
    """The edits as the text of a CSV file."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([guarded(cell) for cell in astuple(edit)] for edit in edits)
    return text.getvalue()


def read_log(folder: Path) -> list[Edit]:
    """The edits that a run folder has accepted so far, oldest first."""
    return read_edits(folder / LOG) if (folder / LOG).is_file() else []


def append_edits(folder: Path, edits: Sequence[Edit]) -> list[Edit]:
    """Add to the log those that it does not hold yet, and return them.

    Edits of which none belongs to the run in the folder are refused as a whole.
    """
    log = read_log(folder)
    runs = run_ids(folder)
    if edits and runs and not any(edit.run_id in runs for edit in edits):
        raise InputError(
            f"These edits were made in the report of run {edits[0].run_id!r}, but {folder} holds run {runs[0]!r}; "
            "use the edits.csv that was exported from this run's report."
        )
    held = set(log)
    new = [edit for edit in dict.fromkeys(edits) if edit not in held]
    if new:
        write_text(folder / LOG, to_csv([*log, *new]))
    return new


def run_ids(folder: Path) -> list[str]:
    """Of the discovery in a folder, then of its earlier rounds; empty where there is none that can be read."""
    try:
        content = json.loads((folder / "discovery.json").read_text(encoding="utf-8"))
        return [content["run_id"], *content["facts"].get("earlier_runs", [])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def apply_edits(discovery: Discovery, edits: Sequence[Edit]) -> Applied:
    """The discovery as corrected, safe to repeat; the given one is not changed (corrections.py)."""
    from holotype.categories.corrections import correct

    return correct(discovery, edits)


def apply_log(folder: Path) -> Applied:
    """Apply the log of a run folder to what its last round found, and save the outcome in the folder.

    What a round found lies untouched in rounds/N; without that, the discovery in the folder is corrected further.
    """
    from holotype.categories.found import Discovery

    found = Discovery.load(folder)
    kept = folder / "rounds" / str(found.facts.round)
    if run_ids(kept)[:1] == [found.run_id]:
        found = Discovery.load(kept)
    outcome = apply_edits(found, read_log(folder))
    if outcome.count:
        outcome.discovery.save(folder)
    return outcome
