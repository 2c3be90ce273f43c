"""The run folder: the files that every run leaves behind.

identity.json       all that decides the weights
config.yaml         the resolved settings; `holotype train --config` repeats a run of train or bench with it alone
provenance.json     versions, hardware, precision, backbone and table digests
cache.json          the views of the token cache that the run trains on, where it does
metrics.jsonl       one line per epoch and per scoring
state.*             the resume state (training/checkpoint.py)
model.json, model.safetensors   tail and method after the last epoch, and the centres of the categories (trained.py)
assignments.*       every image with its category (parquet and csv; results/discovery.py)
discovery.json      the categories, their relations, the facts (results/discovery.py)
scores.json         the record: identity, All, Old, New and the rest where the truth is known, how it was made; it comes
                    last and marks the run as finished
per_class.csv       images and right ones of each class, where the truth is known
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holotype.config.parse import write_yaml
from holotype.data.csv import csv_text, escape_formula, unescape_formula
from holotype.errors import InputError
from holotype.runs.identity import Identity
from holotype.runs.record import Record
from holotype.utils.atomic import write_text
from holotype.utils.serialization import CorruptFile, dump_json, read_json

IDENTITY_FILE, SCORES_FILE, PER_CLASS_FILE = "identity.json", "scores.json", "per_class.csv"


class RunFolder:
    """A folder that one run owns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, identity: Identity) -> None:
        """Make sure that what is already in the folder is of the very run that `identity` describes."""
        path = self.path / IDENTITY_FILE
        if path.exists():
            identity.check_same(Identity.from_dict(self.read_json(IDENTITY_FILE), path), self.path)

    def finished(self) -> Record | None:
        """The record of the run, if it came to its end."""
        path = self.path / SCORES_FILE
        return Record.from_dict(self.read_json(SCORES_FILE), path) if path.exists() else None

    def write_per_class(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Images, right ones and assigned category of each class, as a table."""
        columns = ("class", "kind", "n", "correct", "accuracy", "category")
        safe = [{**row, "class": escape_formula(str(row["class"]))} for row in rows]
        write_text(
            self.path / PER_CLASS_FILE,
            csv_text([columns, *([row[name] for name in columns] for row in safe)]),
        )

    def write_config(self, config: dict[str, Any]) -> None:
        write_text(self.path / "config.yaml", write_yaml(config))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_text(self.path / name, dump_json(content))

    def read_json(self, name: str) -> Any:
        try:
            return read_json(self.path / name)
        except (CorruptFile, OSError) as error:
            raise InputError(
                f"{self.path / name} cannot be read ({error}); restore it from a copy, or choose another --out."
            ) from error


def read_per_class(path: Path) -> list[dict[str, Any]]:
    """What `write_per_class` wrote; a class without a category has None."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return [
            {
                **row,
                "class": unescape_formula(row["class"]),
                "n": int(row["n"]),
                "correct": int(row["correct"]),
                "category": int(row["category"]) if row["category"] else None,
            }
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise InputError(
            f"{path} cannot be read ({error!r}); restore it from a copy, or choose another --out."
        ) from error
