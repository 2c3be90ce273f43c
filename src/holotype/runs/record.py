"""Record of a run: identity, scores, provenance; the folder of a run, and the folder of records.

A run leaves behind:

identity.json       all that decides the weights
config.yaml         the resolved settings; `holotype train --config` repeats a run of train or bench with it alone
provenance.json     versions, hardware, precision, backbone and table digests
cache.json          the views of the token cache that the run trains on, where it does
metrics.jsonl       one line per epoch and per scoring
state.*             the resume state (training/checkpoint.py)
model.json, model.safetensors   tail and method after the last epoch, and the centres of the categories (model_io.py)
assignments.*       every image with its category (parquet and csv; results/discovery.py)
discovery.json      the categories, their relations, the facts (results/discovery.py)
scores.json         the record: identity, All, Old, New and the rest where the truth is known, how it was made; it comes
                    last and marks the run as finished
per_class.csv       images and right ones of each class, where the truth is known

RESULTS/*.jsonl may hold more of them, one on each line: records that are kept for good.

RESULTS/classes/HASH-sSEED.json says how many images of each class were right, RESULTS/classes/table-DIGEST.json which
classes these are; no table here needs them.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holotype.clustering.metrics import SCORES, has_truth, score
from holotype.config.parse import flatten, write_yaml
from holotype.data.csv import csv_text, escape_formula, unescape_formula
from holotype.data.image_store import ImageStore
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Prediction
from holotype.results.edits import REJECTED_NOTE
from holotype.runs.identity import Identity
from holotype.runs.predict import Predictions
from holotype.training.divergence import Restart
from holotype.training.encoder import predict_table
from holotype.training.loop import Loop
from holotype.training.views import FreshViews, table_features
from holotype.utils.atomic import write_text
from holotype.utils.serialization import CorruptFile, SchemaError, dump_json, from_dict, read_json

RECORD_FORMAT = 2
"""Raised when a record of an older version can no longer be read. 1 was a flat object without an identity."""


@dataclass(frozen=True)
class Scores:
    """Fractions, under one global assignment of categories to classes; None where there is nothing to score."""

    all: float | None
    old: float | None
    new: float | None
    share_old: float | None
    """r: the share of known-class images among those that are scored."""
    n: int
    """Images that are scored."""
    nmi: float | None = None
    ari: float | None = None
    auroc: float | None = None
    known_accuracy: float | None = None


@dataclass(frozen=True)
class AssignedCounts:
    """Where the unlabelled images went."""

    known: int
    novel: int
    novel_categories: int
    unreadable: int


@dataclass(frozen=True)
class RunMeta:
    """How, where and from which code a run was made: nothing that decides its result."""

    variant: str
    """What it was called when it was made: its preset, or the row of a study."""
    mode: str
    """exact, cached 16+8 or images; where the stages of a run differ, each with its epochs."""
    epochs: int
    """Over all stages; 0 for a method that does not train."""
    seconds: float
    """Of training."""
    commit: str
    hardware: str
    captured: dict[str, bool] | bool = False
    """Stages, and whether their steps were replayed as a CUDA graph. An older record tells of the last stage alone."""
    processes: int = 1
    parallel: int = 1
    """Runs that trained at once in the process."""
    decode_seconds: float = 0.0
    cache_seconds: float = 0.0
    wall_seconds: float = 0.0


@dataclass(frozen=True)
class Record:
    """One run, as it stands in RUN/scores.json and in RESULTS/runs/."""

    identity: Identity
    scores: Scores
    """Of the unlabelled training images after the last epoch."""
    placed: AssignedCounts | None
    """None in records of before this was counted."""
    made: RunMeta
    test: Scores | None = None
    """Of the official test split, where the data set has one here."""
    restarts: tuple[Restart, ...] = ()
    """Where the loss left its course and training went back, with a lower rate than the settings say from there on."""

    @property
    def key(self) -> tuple[str, int]:
        """Equal for records of one run."""
        return self.identity.hash, self.identity.seed

    def as_dict(self) -> dict[str, Any]:
        """Plain; a run that was never restarted does not speak of restarts."""
        content = {"format": RECORD_FORMAT, "hash": self.identity.hash, **dataclasses.asdict(self)}
        restarts = list(content.pop("restarts"))
        return content | ({"restarts": restarts} if restarts else {})

    @classmethod
    def from_dict(cls, content: Any, where: Path | str) -> Record:
        """What `as_dict` gave, checked; where: the file, for the sentence."""
        if not isinstance(content, Mapping) or "format" not in content:
            raise InputError(f"{where} is no record of a run; delete it or run it again.")
        if content["format"] != RECORD_FORMAT:
            raise InputError(
                f"{where} is a record of another version (format {content['format']}, not {RECORD_FORMAT}); "
                "run it again."
            )
        names = [field.name for field in dataclasses.fields(cls) if field.name in content]
        try:
            record = from_dict(cls, {name: content[name] for name in names}, every=False)
        except SchemaError as error:
            raise InputError(f"{where} is no whole record of a run ({error}); run it again.") from error
        if content.get("hash") != record.identity.hash:
            raise InputError(
                f"{where} does not bear the hash of its own identity, {record.identity.hash}: it was changed by hand; "
                "run it again."
            )
        for scores in (record.scores, record.test):
            if scores is not None:
                check_law(scores, where)
        return record


def check_law(scores: Scores, where: Path | str) -> None:
    """All = r Old + (1 - r) New, which the one global assignment guarantees, to 1e-9."""
    if scores.all is scores.old is scores.new is None:
        return
    share = scores.share_old or 0.0
    implied = share * (scores.old or 0.0) + (1 - share) * (scores.new or 0.0)
    if scores.all is None or not abs(scores.all - implied) <= 1e-9:
        told = "none" if scores.all is None else f"{scores.all:.6f}"
        raise InputError(
            f"{where} says All = {told} where its Old and New imply {implied:.6f}; "
            "it was changed by hand or scored by another metric: run it again."
        )


# -- from a run ------------------------------------------------------------------------------------------


def score_table(table: Table, prediction: Prediction | Predictions) -> dict[str, Any]:
    """The scores and the rows `per_class`; every score None where the truth is not known."""
    if not has_truth(table):
        return dict.fromkeys(SCORES) | {"n": 0, "per_class": []}
    return score(table, np.asarray(prediction.category), np.asarray(prediction.known_score))


def headline_scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    """The scores without the rows of classes."""
    return {key: value for key, value in scores.items() if key != "per_class"}


def count_assigned(table: Table, prediction: Predictions) -> AssignedCounts:
    category = prediction.category[~table.labelled & (table.problem != REJECTED_NOTE)]
    n_known = len(table.known)
    novel = category[category >= n_known]
    return AssignedCounts(
        known=int(((category >= 0) & (category < n_known)).sum()),
        novel=len(novel),
        novel_categories=len(np.unique(novel)),
        unreadable=int((category < 0).sum()),
    )


def score_held_out(loop: Loop, test: Table, store: ImageStore) -> Scores:
    """Inductive scores: the official test split, which training never saw. store: its images."""
    rows = torch.from_numpy(np.flatnonzero(test.usable))
    source = FreshViews(store, loop.encoder)
    with torch.no_grad():
        placed = predict_table(loop.method, table_features(source, rows, len(test)), rows)
    source.close()
    return Scores(**headline_scores(score_table(test, placed)))


RUNS_FOLDER, CLASSES_FOLDER = "runs", "classes"
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
        for path in sorted((self.folder / RUNS_FOLDER).glob("*.json")):
            record = read_record(path)
            if path.stem != record.identity.name:
                raise InputError(
                    f"{path} holds the record of run {record.identity.name}; give it that name, or delete it."
                )
            found[record.key] = record
        return found

    def path(self, key: Key) -> Path:
        return self.folder / RUNS_FOLDER / f"{key[0]}-s{key[1]}.json"

    def add(self, record: Record, per_class: Sequence[Mapping[str, Any]] = ()) -> Path:
        """Write a record; one of the same run that says something else is refused."""
        check_agree(
            self.by_key.get(record.key), record, f"The record of {record.identity.name} in {self.folder}"
        )
        path = self.path(record.key)
        if per_class:  # first: a run whose record is there is not looked at again
            self._add_classes(record, per_class)
        write_text(path, dump_json(record.as_dict()))
        self.by_key[record.key] = record
        return path

    def _add_classes(self, record: Record, rows: Sequence[Mapping[str, Any]]) -> None:
        """The classes stand once in the file of their table, what became of them in the file of the run."""
        table, folder = str(record.identity.data["table"]), self.folder / CLASSES_FOLDER
        files = {f"table-{table[:16]}": ("class", "kind", "n"), record.identity.name: ("correct", "category")}
        for name, columns in files.items():
            content = {"format": CLASSES_FORMAT, "table": table} | {
                key: [row[key] for row in rows] for key in columns
            }
            write_text(folder / f"{name}.json", dump_json(content, indent=None))


def read_lines(path: Path) -> list[Record]:
    """Return the records of a JSON-lines file; lines that hold something else are passed over."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no JSON lines that can be read ({error}); delete it.") from error
    return [Record.from_dict(line, path) for line in lines if isinstance(line, dict) and "identity" in line]


def read_record(path: Path) -> Record:
    try:
        content = read_json(path)
    except (OSError, CorruptFile) as error:
        raise InputError(
            f"{path} is not a record that can be read ({error}); delete it or run it again."
        ) from error
    return Record.from_dict(content, path)


def check_agree(one: Record | None, other: Record | None, what: str) -> None:
    """Raise InputError where two records of one run have different scores."""
    if one is None or other is None:
        return
    mine, theirs = (flatten({"scores": record.as_dict()["scores"]}) for record in (one, other))
    apart = [key for key in mine if mine[key] != theirs[key]]
    if apart:
        raise InputError(
            f"{what} contradicts another record of the same settings and seed ({apart[0]} {mine[apart[0]]} and "
            f"{theirs[apart[0]]}; commits {one.made.commit or 'unknown'} and {other.made.commit or 'unknown'}): one of "
            "them comes from other code whose revision was not raised; find out which, and delete it."
        )


# -- the run folder --------------------------------------------------------------------------------------

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
