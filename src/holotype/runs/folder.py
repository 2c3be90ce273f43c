"""The run folder: what a run leaves behind, and the check that a folder belongs to the run at hand.

config.yaml         the resolved settings; `holotype train --config` repeats the run with it alone
provenance.json     versions, hardware, precision, backbone and table digests
cache.json          the views of the token cache that the run trains on, where it does
metrics.jsonl       one line per epoch and per scoring
state.*             the resume state (train/state.py)
model.safetensors   tail and method after the last epoch
assignments.*       every image with its category (parquet and csv)
scores.json         the record: identity, All, Old, New and the rest where the truth is known, how it was made
per_class.csv       images and right ones of each class, where the truth is known
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.torch import save
from torch import Tensor

from holotype.categories.found import category_name
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.machine.files import write_beside, write_bytes, write_text
from holotype.runs.identity import Identity
from holotype.runs.record import Record

IDENTITY, SCORES, PER_CLASS = "identity.json", "scores.json", "per_class.csv"


class RunFolder:
    """A folder that one run owns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, identity: Identity) -> None:
        """Make sure that what is already in the folder is of the very run that `identity` describes."""
        path = self.path / IDENTITY
        if path.exists():
            identity.check_same(Identity.from_dict(self.read_json(IDENTITY), path), self.path)

    def finished(self) -> Record | None:
        """The record of the run, if it came to its end."""
        path = self.path / SCORES
        return Record.from_dict(self.read_json(SCORES), path) if path.exists() else None

    def write_per_class(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Images, right ones and assigned category of each class, as a table."""
        columns = ("class", "kind", "n", "correct", "accuracy", "category")
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([columns, *([row[name] for name in columns] for row in rows)])
        write_text(self.path / PER_CLASS, text.getvalue())

    def write_config(self, config: dict[str, Any]) -> None:
        write_text(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False, allow_unicode=True))

    def write_json(self, name: str, content: Any) -> None:
        write_text(self.path / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def read_json(self, name: str) -> Any:
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise InputError(
                f"{self.path / name} cannot be read ({error}); restore it from a copy, or choose another --out."
            ) from error

    def write_model(self, tensors: dict[str, Tensor]) -> None:
        on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_bytes(self.path / "model.safetensors", save(on_cpu))

    def write_assignments(
        self,
        table: Table,
        k: int,
        category: np.ndarray,
        probability: np.ndarray,
        known_score: np.ndarray,
        note: np.ndarray,
    ) -> None:
        """Every row of the table with its category by name: a known class, or `new-01`, `new-02`, ...

        k: number of categories. problem: why an image was left out. note: what was done to an unusual one
        ("first of 3 frames used").
        """
        import pandas as pd

        n_known = len(table.known)
        name_of = {int(index): category_name(int(index), table.known, k) for index in np.unique(category)}
        names = [name_of[int(index)] for index in category]
        kind = np.where(category < 0, "", np.where(category < n_known, "known", "novel"))
        frame = pd.DataFrame(
            {
                "path": table.path,
                "label": table.label,
                "category": names,
                "kind": kind,
                "probability": probability,
                "known_score": known_score,
                "problem": table.problem,
                "note": note,
            }
        )
        write_beside(self.path / "assignments.parquet", lambda beside: frame.to_parquet(beside, index=False))
        write_beside(self.path / "assignments.csv", lambda beside: frame.to_csv(beside, index=False))


def read_per_class(path: Path) -> list[dict[str, Any]]:
    """What `write_per_class` wrote; a class without a category has None."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {
            **row,
            "n": int(row["n"]),
            "correct": int(row["correct"]),
            "category": int(row["category"]) if row["category"] else None,
        }
        for row in rows
    ]
