"""How far off is the estimate of the number of categories, and how often does its range hold the truth?

    python benchmarks/counting.py --root DATA --datasets cub cifar100-200 fashion-sample --backbone embedded \\
        --features FOLDER --out experiments/results/counting/embedded.json
    python benchmarks/counting.py --table experiments/results/counting/*.json

The first command estimates the whole data sets and random problems of count_problems.py, from features of the frozen
backbone, which it keeps in FOLDER. The second prints the tables of such files.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from count_problems import Problem, random_problems, whole
from measure import command, facts
from script import one_sentence, read_record

from holotype.cluster.class_size import COVERAGE
from holotype.cluster.count import pick_k, settle
from holotype.cluster.search import estimate_by_curve
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.machine.files import write_text
from holotype.runs.prepared import Shelf, make_compute
from holotype.runs.settings import resolve
from holotype.training.encode import Encoder
from holotype.training.sources import FreshViews, evaluation_features

KEYS = ("command", "hardware", "backbone", "problems")
Data = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Features (N, D), true classes (N,), labels (N,) with "" = unlabelled."""


def load(dataset: str, root: str | None, backbone: str, folder: Path) -> Data:
    """From the file of an earlier run, or embedded now."""
    file = folder / f"{dataset}.npz"
    if not file.is_file():
        table, features = embedded(dataset, root, backbone)
        folder.mkdir(parents=True, exist_ok=True)
        truth, label = (np.asarray(column).astype(str) for column in (table.truth, table.label))
        np.savez(file, f=features.astype(np.float16), truth=truth, label=label)
    stored = np.load(file)
    return stored["f"].astype(np.float32), stored["truth"], stored["label"]


def embedded(dataset: str, root: str | None, backbone: str) -> tuple[Table, np.ndarray]:
    """The table of a data set, and the features (N, D) of the frozen backbone."""
    experiment = resolve(
        "kmeans", dataset, overrides={"root": root, "backbone.name": backbone, "progress": False}
    )
    compute = make_compute(experiment)
    prepared = Shelf().get(experiment, compute)
    source, table = FreshViews(prepared.images, Encoder(prepared.backbone, compute)), prepared.data.table
    with torch.no_grad():
        return table, evaluation_features(source, torch.arange(len(table))).float().cpu().numpy()


def estimate(features: np.ndarray, problem: Problem, curve: bool) -> dict[str, Any]:
    """One line of the record. curve: also what the labelled accuracy of k-means says, which takes long."""
    x, label = torch.from_numpy(features[problem.rows]), torch.from_numpy(problem.label)
    started = time.monotonic()
    found = settle(x, label, problem.known)
    line = {
        "name": problem.name,
        "images": len(x),
        "labelled": int((label >= 0).sum()),
        "known": problem.known,
        "k": problem.k,
        "tail": problem.tail,
        "by": found.by,
        "seconds": round(time.monotonic() - started, 2),
        "estimate": pick_k(found),
        "low": found.low,
        "high": found.high,
    }
    if curve:
        of_curve = estimate_by_curve(x, label, problem.known)
        line |= {"curve": of_curve.best, "curve_low": of_curve.low, "curve_high": of_curve.high}
    return line


def tables(records: Sequence[dict[str, Any]]) -> str:
    """Whole data sets one by one, random problems in the mean."""
    lines = [
        "| data set | backbone | known | true | estimate | range | curve of k-means |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for record in records:
        for one in (one for one in record["problems"] if " " not in one["name"]):
            ends = f"{one['low']} to {one['high']}"
            curve = f"{one['curve']} ({one['curve_low']} to {one['curve_high']})" if "curve" in one else ""
            cells = (one["name"], record["backbone"], one["known"], one["k"], one["estimate"], ends, curve)
            lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [
        "",
        "| random problems | of | backbone | n | off in the mean | bias | range holds truth | its width |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for record in records:
        drawn = [one for one in record["problems"] if " " in one["name"]]
        for kind, some in (
            ("equal sizes", [one for one in drawn if not one["tail"]]),
            ("10 to 1", [one for one in drawn if one["tail"]]),
            ("all", drawn),
        ):
            if some:
                sets = ", ".join(dict.fromkeys(one["name"].split()[0] for one in some))
                lines.append(f"| {kind} | {sets} | {record['backbone']} | {_summary(some)} |")
    return "\n".join(lines)


def _summary(problems: Sequence[dict[str, Any]]) -> str:
    off = np.array([one["estimate"] / one["k"] - 1 for one in problems])
    holds = np.mean([one["low"] <= one["k"] <= one["high"] for one in problems])
    width = np.median([(one["high"] / one["low"]) ** 0.5 - 1 for one in problems])
    cells = (
        str(len(problems)),
        f"{100 * np.abs(off).mean():.1f} %",
        f"{100 * off.mean():+.1f} %",
        f"{100 * holds:.0f} %",
        f"± {100 * width:.0f} %",
    )
    return " | ".join(cells)


def data_parser(about: str | None) -> argparse.ArgumentParser:
    """With the flags of the data sets and of the file to write."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", help="folder of the data sets")
    parser.add_argument("--datasets", nargs="+", default=["fashion-sample"])
    parser.add_argument("--out", type=Path)
    return parser


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = data_parser(__doc__)
    parser.add_argument("--backbone", default="embedded")
    parser.add_argument("--features", type=Path, default=Path("runs/counting"))
    parser.add_argument(
        "--problems", type=int, default=20, help="random problems of each data set of 20 classes or more"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first random problem")
    parser.add_argument("--curve", action="store_true", help="the curve of k-means for whole data sets too")
    parser.add_argument(
        "--table", type=Path, nargs="+", metavar="FILE", help="print the tables of such files"
    )
    given = parser.parse_args(words)
    if given.table:
        print(tables([read_record(path, KEYS, "counting.py") for path in given.table]))
        return 0
    if given.out is None:
        raise InputError("Name the file to write with --out FILE.json.")
    record: dict[str, Any] = {
        "command": command(list(words) if words is not None else sys.argv[1:], "counting.py"),
        **facts(torch.device("cpu")),
        "backbone": Path(given.backbone).stem,
        "coverage": COVERAGE,
        "problems": [],
    }
    for dataset in given.datasets:
        features, truth, label = load(dataset, given.root, given.backbone, given.features)
        drawn = given.problems if len(set(truth)) >= 20 else 0
        numbers = range(given.first, given.first + drawn)
        for problem in (whole(dataset, truth, label), *random_problems(dataset, truth, numbers)):
            record["problems"].append(estimate(features, problem, given.curve and problem.name == dataset))
            print(json.dumps(record["problems"][-1]), flush=True)
    write_text(given.out, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
