"""A study file and records of its runs, made up for tests of what is built from them."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holotype.cli.bench import plan_studies
from holotype.cli.common import Parser
from holotype.cli.options import BenchOptions
from holotype.runs.experiment import Experiment
from holotype.runs.identity import Identity, identity_outline
from holotype.runs.record import Record, Records, RunMeta, Scores
from holotype.runs.study import read_study, resolve_row
from holotype.utils.serialization import from_dict

STUDY = """
question: What does each part do?
datasets: [cub]
seeds: [0, 1, 2]
reference: simgcd
settings: {train.epochs: 100}
rows:
  simgcd: {method: simgcd}
  rpc: {method: rpc, asks: everything}
  no-new: {method: rpc, settings: {method.lambda_2: 0, train.epochs: 100}}
  no-align: {method: rpc, preset: reading}
"""
PARTS = """
question: Which part costs the known classes?
datasets: [cub]
seeds: [0, 1]
cache_views: 16+8
reference: simgcd
settings: &common
  train.epochs: 100
  train.lr: 1e-3
rows:
  simgcd: {method: simgcd}
  no-new:
    method: rpc
    asks: L_new removed
    settings: &no_new {method.lambda_2: 0, train.epochs: 50}
  reading:
    method: rpc
    preset: reading
    settings: {<<: *no_new, train: {epochs: 20}}
    datasets: [cub, scars]
    seeds: [4]
"""


def write_study(top: Path, text: str = STUDY, name: str = "parts") -> Path:
    path = top / "experiments" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def asked_for(words: Sequence[str]) -> list[Experiment]:
    """All that `holotype bench` with these words would run."""
    options = Parser("bench", BenchOptions).parse_args(words)
    return [made for plan in plan_studies(options) for made in plan.experiments()]


def made_identity(experiment: Experiment, changes: Mapping[str, Any] | None = None) -> Identity:
    """Of a run with these settings; what data and network would say is made up. changes: dotted parts of it."""
    data = {"data.table": "0" * 64, "data.k": 200, "backbone.digest": "f" * 64, "backbone.image_size": 128}
    told = {"seed": experiment.seed, "views": "off", "train.precision": "fp32", **data}
    tree: dict[str, Any] = {}
    for key, value in (told | identity_outline(experiment) | dict(changes or {})).items():
        *parents, last = key.split(".")
        target = tree
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return from_dict(Identity, tree)


def made_record(identity: Identity, old: float, new: float, **made: Any) -> Record:
    """With these per cents of Old and New, a quarter of the images being of known classes."""
    scores = Scores(0.25 * old / 100 + 0.75 * new / 100, old / 100, new / 100, share_old=0.25, n=400)
    facts = {"variant": "default", "mode": f"cached {identity.views}", "seconds": 1.0}
    facts |= {"mode": "exact"} if identity.views == "off" else {}
    facts |= {"epochs": identity.train.get("epochs", 0), "commit": "abc", "hardware": "1 x Card"}
    return Record(identity, scores, None, RunMeta(**facts | made))  # type: ignore[arg-type]


def add_run(
    top: Path,
    row: str,
    seed: int,
    old: float,
    new: float,
    *,
    study="parts",
    dataset="cub",
    changes=None,
    **made,
) -> Record:
    """The record of a row of a study that is written, with what `changes` says otherwise of its identity."""
    plan = read_study(top / "experiments" / f"{study}.yaml")
    experiment = resolve_row(plan, plan.rows[row], dataset)
    identity = dataclasses.replace(made_identity(experiment, changes), seed=seed)
    record = made_record(identity, old, new, **{"variant": row} | made)
    Records(top / "experiments" / "results").add(record)
    return record
