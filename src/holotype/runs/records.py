"""Records on disk: RESULTS/runs/HASH-sSEED.json, one file for each run, whichever sweeps and studies ask for it.

RESULTS/*.jsonl may hold more of them, one on each line: records that are kept for good.

RESULTS/classes/HASH-sSEED.json says how many images of each class were right, RESULTS/classes/table-DIGEST.json which
classes these are; no table here needs them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.machine.sealed import Broken, read_sealed, sealed
from holotype.runs.record import Record
from holotype.runs.trees import flat

RUNS, CLASSES = "runs", "classes"
CLASSES_FORMAT = 1
Key = tuple[str, int]
"""Hash and seed."""


class Records:
    """The records in a folder of results; read when they are first asked for."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @cached_property
    def by_key(self) -> dict[Key, Record]:
        found = {
            record.key: record for path in sorted(self.folder.glob("*.jsonl")) for record in read_lines(path)
        }
        for path in sorted((self.folder / RUNS).glob("*.json")):
            record = read_record(path)
            if path.stem != record.identity.name:
                raise InputError(
                    f"{path} holds the record of run {record.identity.name}; give it that name, or delete it."
                )
            found[record.key] = record
        return found

    def path(self, key: Key) -> Path:
        return self.folder / RUNS / f"{key[0]}-s{key[1]}.json"

    def add(self, record: Record, per_class: Sequence[Mapping[str, Any]] = ()) -> Path:
        """Write a record; one of the same run that says something else is refused."""
        check_agree(
            self.by_key.get(record.key), record, f"The record of {record.identity.name} in {self.folder}"
        )
        path = self.path(record.key)
        if per_class:  # first: a run whose record is there is not looked at again
            self._add_classes(record, per_class)
        write_text(path, sealed(record.as_dict()))
        self.by_key[record.key] = record
        return path

    def _add_classes(self, record: Record, rows: Sequence[Mapping[str, Any]]) -> None:
        """The classes stand once in the file of their table, what became of them in the file of the run."""
        table, folder = str(record.identity.data["table"]), self.folder / CLASSES
        files = {f"table-{table[:16]}": ("class", "kind", "n"), record.identity.name: ("correct", "category")}
        for name, columns in files.items():
            content = {"format": CLASSES_FORMAT, "table": table} | {
                key: [row[key] for row in rows] for key in columns
            }
            write_text(folder / f"{name}.json", sealed(content, indent=None))


def read_lines(path: Path) -> list[Record]:
    """Return the records of a JSON-lines file; lines that hold something else are passed over."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no JSON lines that can be read ({error}); delete it.") from error
    return [Record.from_dict(line, path) for line in lines if isinstance(line, dict) and "identity" in line]


def read_record(path: Path) -> Record:
    try:
        content = read_sealed(path)
    except (OSError, Broken) as error:
        raise InputError(
            f"{path} is not a record that can be read ({error}); delete it or run it again."
        ) from error
    return Record.from_dict(content, path)


def check_agree(one: Record | None, other: Record | None, what: str) -> None:
    """Raise InputError where two records of one run have different scores."""
    if one is None or other is None:
        return
    mine, theirs = (flat({"scores": record.as_dict()["scores"]}) for record in (one, other))
    apart = [key for key in mine if mine[key] != theirs[key]]
    if apart:
        raise InputError(
            f"{what} contradicts another record of the same settings and seed ({apart[0]} {mine[apart[0]]} and "
            f"{theirs[apart[0]]}; commits {one.made.commit or 'unknown'} and {other.made.commit or 'unknown'}): one of "
            "them comes from other code whose revision was not raised; find out which, and delete it."
        )
