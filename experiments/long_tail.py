"""Discovery in a long tail: classes of very different size, beside as many images in classes of equal size.

    python experiments/long_tail.py --root DIR/cifar100-200

Half of the classes are known, and half of their images labelled. Every combination is one run, told in one line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness import choose_classes, thin
from holotype.data.datasets.registry import load_benchmark
from holotype.data.gcd_split import gcd_split
from holotype.runs.experiment import resolve
from holotype.runs.record import PER_CLASS_FILE, Record
from holotype.runs.resources import ResourceCache, RunData
from holotype.runs.run import run_experiment

TARGETS = ("uniform", "estimated")
"""Values of method.memax_target that are compared."""
SCORES = ("all", "old", "new", "nmi")
"""Of the record of a run, told in its line."""


@dataclass(frozen=True)
class Tail:
    """A collection: so many classes, the largest so many times as large as the smallest."""

    classes: int = 40
    largest: int = 200
    ratio: float = 20.0

    def sizes(self) -> np.ndarray:
        """Images of each class: from the largest to the smallest in equal ratios."""
        shares = np.linspace(0, 1, self.classes // 2)
        return np.maximum(1, np.round(self.largest * self.ratio**-shares)).astype(int)

    def balanced(self) -> np.ndarray:
        """As many images in all, in classes of equal size."""
        return np.full(self.classes // 2, round(float(self.sizes().mean())))


def run(
    data: RunData, shelf: ResourceCache, method: str, changes: dict[str, Any], steps: int
) -> tuple[Record, list[dict[str, Any]]]:
    """One run on the embedded backbone and the token cache, and what became of each class.

    Its epochs give about `steps` steps.
    """
    batch = 64
    settings = {
        "progress": False,
        "train.batch_size": batch,
        "train.epochs": max(1, round(steps * batch / len(data.table))),
        "train.eval_every": 1000,
        "cache_views": "4+2",
        **changes,
    }
    experiment = resolve(method, "cifar100-200", overrides=settings)
    with tempfile.TemporaryDirectory() as folder:
        experiment.out = str(Path(folder) / "run")
        record = run_experiment(experiment, shelf)
        return record, pd.read_csv(experiment.folder / PER_CLASS_FILE).to_dict("records")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="folder of the cifar100-200 sample")
    parser.add_argument("--method", default="simgcd", choices=("simgcd", "debgcd", "rpc"))
    parser.add_argument(
        "--weight", type=float, nargs="+", default=[4.0], help="memax_weight; 4 is the recipe's"
    )
    parser.add_argument("--collection", nargs="+", default=["tail", "flat"], choices=("tail", "flat"))
    parser.add_argument("--target", nargs="+", default=list(TARGETS), choices=TARGETS)
    parser.add_argument(
        "--seed", type=int, nargs="+", default=[0], help="of training; the collections stay the same"
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--largest", type=int, default=200, help="images of the largest class")
    parser.add_argument("--ratio", type=float, default=20.0, help="largest class to smallest")
    given = parser.parse_args(words)
    tail = Tail(given.classes, given.largest, given.ratio)
    table = gcd_split(load_benchmark("cifar100-200", given.root))
    names = choose_classes(table, tail.classes, seed=0)
    for collection in given.collection:
        thinned = thin(table, names, tail.sizes() if collection == "tail" else tail.balanced(), seed=0)
        data = RunData(thinned, tail.classes)
        shelf = ResourceCache(data=data)
        for seed, weight, target in product(given.seed, given.weight, given.target):
            changes = {"seed": seed, "method.memax_weight": weight, "method.memax_target": target}
            record, classes = run(data, shelf, given.method, changes, given.steps)
            line = {"collection": collection, "images": len(thinned), "method": given.method, **changes}
            line |= {key: getattr(record.scores, key) for key in SCORES} | {"seconds": record.made.seconds}
            line["novel_categories"] = record.placed.novel_categories if record.placed else None
            line["class_mean"] = float(np.mean([one["correct"] / one["n"] for one in classes]))
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
