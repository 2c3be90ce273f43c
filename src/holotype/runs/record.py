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
per_class.csv, confusion.csv   right images of each class, and where its images went, where the truth is known

RESULTS/runs/HASH-sSEED.json is the record of one run; RESULTS/*.jsonl may hold more of them, one on each line: records
that are kept for good.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holotype import __version__
from holotype.clustering.metrics import has_truth, score
from holotype.config.parse import write_yaml
from holotype.data.csv import csv_text, escape_formula
from holotype.data.image_store import ImageStore
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Prediction
from holotype.models.backbone import Backbone
from holotype.models.zoo import licence_terms
from holotype.results.edits import REJECTED_NOTE
from holotype.runs.identity import IDENTITY_SCHEMA, Identity
from holotype.runs.predict import Predictions
from holotype.training.divergence import Restart
from holotype.training.encoder import predict_table
from holotype.training.loop import Loop
from holotype.training.views import FreshViews, table_features
from holotype.utils.atomic import write_text
from holotype.utils.device import Device, cpu_count
from holotype.utils.distributed import world_size
from holotype.utils.serialization import CorruptFile, SchemaError, dump_json, from_dict, read_json

RECORD_FORMAT = 2
"""Raised when a record of an older version can no longer be read. 1 was a flat object without an identity."""
Key = tuple[str, int]
"""Hash and seed of a run."""


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
    """Of the unlabelled training images after the last epoch; of the test images where the protocol is inductive."""
    placed: AssignedCounts | None
    """None in records of before this was counted."""
    made: RunMeta
    test: Scores | None = None
    """Of the test split, where there is one here."""
    restarts: tuple[Restart, ...] = ()
    """Where the loss left its course and training went back, with a lower rate than the settings say from there on."""
    warnings: tuple[str, ...] = ()
    """Signs that nothing was learned (`collapse_signs`)."""

    @property
    def key(self) -> Key:
        """Equal for records of one run."""
        return self.identity.hash, self.identity.seed

    def as_dict(self) -> dict[str, Any]:
        """Return plain values; restarts and warnings only where there are some."""
        content = {"format": RECORD_FORMAT, "hash": self.identity.hash, **dataclasses.asdict(self)}
        rare = {name: list(content.pop(name)) for name in ("restarts", "warnings")}
        return content | {name: values for name, values in rare.items() if values}

    @classmethod
    def from_dict(cls, content: Any, where: Path | str) -> Record:
        """Return the record that `as_dict` gave, checked; where: the file, for the sentence."""
        if not isinstance(content, Mapping) or content.get("format") != RECORD_FORMAT:
            raise InputError(f"{where} is no record of format {RECORD_FORMAT}; delete it or run it again.")
        names = [field.name for field in dataclasses.fields(cls) if field.name in content]
        try:
            record = from_dict(cls, {name: content[name] for name in names}, every=False)
        except SchemaError as error:
            raise InputError(f"{where} is no whole record of a run ({error}); run it again.") from error
        if content.get("hash") != record.identity.hash:
            raise InputError(f"{where} does not bear the hash of its own identity; run it again.")
        for scores in (record.scores, record.test):
            if scores is not None:
                check_law(scores, where)
        return record


def check_law(scores: Scores, where: Path | str) -> None:
    """Check that All = r Old + (1 - r) New, which the one global assignment guarantees, to 1e-9."""
    if scores.all is scores.old is scores.new is None:
        return
    share = scores.share_old or 0.0
    implied = share * (scores.old or 0.0) + (1 - share) * (scores.new or 0.0)
    if scores.all is None or not abs(scores.all - implied) <= 1e-9:
        law = f"says All = {scores.all} where its Old and New imply {implied:.6f}"
        raise InputError(f"{where} {law}: it was changed by hand or scored by another metric; run it again.")


def score_table(table: Table, prediction: Prediction | Predictions) -> tuple[Scores, list[dict[str, Any]]]:
    """Return the scores, and those of each class; every score None where the truth is not known."""
    if not has_truth(table):
        return Scores(None, None, None, None, 0), []
    found = score(table, np.asarray(prediction.category), np.asarray(prediction.known_score))
    return Scores(**headline_scores(found)), found["per_class"]


def headline_scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores without the rows of classes."""
    return {key: value for key, value in scores.items() if key != "per_class"}


def count_assigned(table: Table, prediction: Predictions) -> AssignedCounts:
    """Count where the unlabelled images went."""
    category = prediction.category[~table.labelled & (table.problem != REJECTED_NOTE)]
    n_known = len(table.known)
    novel = category[category >= n_known]
    return AssignedCounts(
        known=int(((category >= 0) & (category < n_known)).sum()),
        novel=len(novel),
        novel_categories=len(np.unique(novel)),
        unreadable=int((category < 0).sum()),
    )


def score_held_out(loop: Loop, test: Table, store: ImageStore) -> tuple[Scores, list[dict[str, Any]]]:
    """Score the test split, which training never saw, as score_table does. store: its images."""
    rows = torch.from_numpy(np.flatnonzero(test.usable))
    source = FreshViews(store, loop.encoder)
    with torch.no_grad():
        placed = predict_table(loop.method, table_features(source, rows, len(test)), rows)
    source.close()
    return score_table(test, placed)


class Records:
    """The records in a folder of results; read when they are first asked for."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    @cached_property
    def by_key(self) -> dict[Key, Record]:
        lines = (record for path in sorted(self.folder.glob("*.jsonl")) for record in read_lines(path))
        found = {record.key: record for record in lines}
        for path in sorted(self.folder.glob("runs/*.json")):
            record = read_record(path)
            if path.stem != record.identity.name:
                raise InputError(f"{path} holds the record of run {record.identity.name}; rename it.")
            found[record.key] = record
        return found

    def path(self, key: Key) -> Path:
        return self.folder / "runs" / f"{key[0]}-s{key[1]}.json"

    def add(self, record: Record) -> Path:
        """Write a record; one of the same run that says something else is refused."""
        what, path = f"The record of {record.identity.name} in {self.folder}", self.path(record.key)
        check_agree(self.by_key.get(record.key), record, what)
        write_text(path, dump_json(record.as_dict()))
        self.by_key[record.key] = record
        return path


def read_lines(path: Path) -> list[Record]:
    """Return the records of a JSON-lines file; lines that hold something else are passed over."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no JSON lines that can be read ({error}); delete it.") from error
    return [Record.from_dict(line, path) for line in lines if isinstance(line, dict) and "identity" in line]


def read_record(path: Path) -> Record:
    try:
        return Record.from_dict(read_json(path), path)
    except (OSError, CorruptFile) as error:
        raise InputError(f"{path} cannot be read ({error}); delete it or run it again.") from error


def check_agree(one: Record | None, other: Record | None, what: str) -> None:
    """Raise InputError where two records of one run have different scores."""
    if one is None or other is None:
        return
    for key, value in vars(one.scores).items():
        if (twin := getattr(other.scores, key)) != value:
            commits = f"commits {one.made.commit or '?'} and {other.made.commit or '?'}"
            what += f" contradicts another record of the same run (scores.{key} {value} and {twin}"
            raise InputError(f"{what}; {commits}): some revision was not raised; delete the wrong one.")


IDENTITY_FILE, SCORES_FILE = "identity.json", "scores.json"
PER_CLASS_FILE, CONFUSION_FILE = "per_class.csv", "confusion.csv"


class RunFolder:
    """A folder that one run owns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, identity: Identity) -> None:
        """Make sure that what is already in the folder is of the very run that `identity` describes."""
        path = self.path / IDENTITY_FILE
        if path.exists():
            identity.check_same(IDENTITY_SCHEMA.make(path, Identity), self.path)

    def begin(self, identity: Identity, config: dict[str, Any], provenance: Mapping[str, Any]) -> None:
        """Write what a run starts from."""
        self.write_json(IDENTITY_FILE, identity.as_dict())
        self.write_config(config)
        self.write_json("provenance.json", provenance)

    def finish(self, record: Record) -> None:
        """Mark the run as finished."""
        self.write_json(SCORES_FILE, record.as_dict())

    def finished(self) -> Record | None:
        """Return the record of the run, if it came to its end."""
        path = self.path / SCORES_FILE
        return read_record(path) if path.exists() else None

    def write_per_class(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write images, right ones and assigned category of each class, and where its images went, as two tables."""
        columns = ("class", "kind", "n", "correct", "accuracy", "category")
        safe = [{**row, "class": escape_formula(str(row["class"]))} for row in rows]
        lines = [columns, *([row[name] for name in columns] for row in safe)]
        write_text(self.path / PER_CLASS_FILE, csv_text(lines))
        pairs = [(row["class"], category, n) for row in safe for category, n in row["counts"].items()]
        write_text(self.path / CONFUSION_FILE, csv_text([("class", "category", "n"), *pairs]))

    def write_config(self, config: dict[str, Any]) -> None:
        write_text(self.path / "config.yaml", write_yaml(config))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        write_text(self.path / name, dump_json(content))

    def read_json(self, name: str) -> Any:
        try:
            return read_json(self.path / name)
        except (CorruptFile, OSError) as error:
            what = f"{self.path / name} cannot be read ({error})"
            raise InputError(f"{what}; restore it from a copy, or choose another --out.") from error


PACKAGES = ("torch", "torchvision", "timm", "numpy", "scipy", "scikit-learn", "pillow", "safetensors")


def describe_provenance(backbone: Backbone, table: Table, compute: Device) -> dict[str, Any]:
    """Return the facts that stand beside every score: versions, hardware, precision, commit, digests."""
    terms = licence_terms(backbone.licence) if backbone.licence else ""
    network = {"name": backbone.name, "digest": backbone.digest, "caveat": backbone.caveat}
    network |= backbone.changes
    network |= {"licence": backbone.licence} if backbone.licence else {}
    network |= {"terms": terms} if terms else {}
    return {
        "holotype": __version__,
        "commit": commit(),
        "command": " ".join(["holotype", *map(strip_folders, sys.argv[1:])]),
        "python": platform.python_version(),
        "versions": dict(package_versions()),
        "hardware": hardware(compute.device, world_size()),
        "processes": world_size(),
        "precision": compute.precision,
        "matmul": torch.get_float32_matmul_precision(),
        "backbone": network,
        "table": {
            "name": table.name,
            "fingerprint": table.fingerprint(),
            "images": len(table),
            "labelled": int(table.labelled.sum()),
            "unreadable": int((~table.usable).sum()),
        },
    }


@cache
def package_versions() -> dict[str, str]:
    """Return those of the packages that numbers depend on. Each is looked for on the disk."""
    return {name: version(name) for name in PACKAGES}


def strip_folders(word: str) -> str:
    """Return a word of a command line with the last part of an absolute path alone: provenance is handed on, and
    folders name their owners. What repeats a run is config.yaml."""
    flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if not (value.startswith("~") or os.path.isabs(value) or re.match(r"[A-Za-z]:[\\/]", value)):
        return word
    last = re.split(r"[\\/]", value.rstrip("\\/"))[-1]
    return f"{flag}{equals}{last or value}"


@cache
def commit() -> str:
    """Return the commit of the source tree that runs, with a + if it was changed; "" outside a checkout.

    It is looked up once: what a long sweep runs is what it loaded, whatever is committed meanwhile. `HOLOTYPE_COMMIT`
    names it where the code runs without its .git folder.
    """

    def git(*words: str) -> str:
        folder = Path(__file__).parent
        found = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        return found.stdout.strip() if found.returncode == 0 else ""

    try:
        if (named := os.environ.get("HOLOTYPE_COMMIT")) or not git("ls-files", Path(__file__).name):
            return named or ""
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", ".") else "")
    except OSError:
        return ""


def hardware(device: torch.device, processes: int = 1) -> str:
    """Return `1 x NVIDIA H200`, or `2 CPU cores`."""
    if device.type == "cuda":
        return f"{processes} x {torch.cuda.get_device_name(device)}"
    return f"{cpu_count()} CPU cores" if device.type == "cpu" else f"{platform.machine()} {device.type}"
