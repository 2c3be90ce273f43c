"""The demo: RPC and k-means on the embedded Fashion-MNIST sample, with the embedded backbone, offline.

Half of the ten classes are known and half of their images labelled; the other 750 of the 1 000 images are
placed and scored against the truth that training never saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holotype.experiment import default_experiment, run_experiment, set_dotted
from holotype.prepared import Shelf

EPOCHS, BATCH_SIZE = 30, 64
"""A taste, not a benchmark: well below a minute of training on two CPU cores."""
CACHE_VIEWS = {"kmeans": "off", "rpc": "4+2"}
"""On every machine, so that the demo shows the same everywhere; k-means trains on no views."""


def run_demo(out: Path, changes: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The records of k-means and of RPC on the same features. changes: dotted settings that differ."""
    settings = {"train.epochs": EPOCHS, "train.batch_size": BATCH_SIZE, **(changes or {})}
    records, shelf = [], Shelf()
    for method, views in CACHE_VIEWS.items():
        experiment = default_experiment(method, "fashion-sample")
        for key, value in {"cache_views": views, **settings, "out": str(out / method)}.items():
            set_dotted(experiment, key, value)
        records.append(run_experiment(experiment, shelf))
    return records


def table(records: list[dict[str, Any]]) -> str:
    """All, Old and New of each method in per cent."""
    lines = [f"  {'':<8} {'All':>6} {'Old':>6} {'New':>6}"]
    for record in records:
        cells = " ".join(f"{100 * record[key]:6.1f}" for key in ("all", "old", "new"))
        lines.append(f"  {record['method']:<8} {cells}")
    return "\n".join(lines)
