"""A study file and results of its runs, made up for tests of what is built from them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from holotype.runs.results import write_result

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


def write_study(top: Path, text: str = STUDY, name: str = "parts") -> Path:
    path = top / "experiments" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def add_run(
    top: Path, row: str, seed: int, old: float, new: float, *, study: str = "parts", **more: Any
) -> None:
    """A result with these per cents of Old and New, a quarter of the images being of known classes."""
    record = {
        "method": "simgcd" if row == "simgcd" else "rpc",
        "dataset": "cub",
        "variant": row,
        "seed": seed,
        "mode": "exact",
        "epochs": 100,
        "backbone": "embedded",
        "train_blocks": 1,
        "all": 0.25 * old / 100 + 0.75 * new / 100,
        "old": old / 100,
        "new": new / 100,
        "share_old": 0.25,
        "n": 400,
        "seconds": 1.0,
        "commit": "abc",
        "hardware": "1 x Card",
        **more,
    }
    decides = [row, *(record[key] for key in ("dataset", "mode", "epochs", "backbone", "train_blocks"))]
    record.setdefault("config_hash", hashlib.sha256(repr(decides).encode()).hexdigest()[:16])
    write_result(top / "results" / study, record)
