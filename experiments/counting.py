"""How far off is the estimate of the number of categories, and how often does its range hold the truth?

    python experiments/counting.py --root DATA --datasets cub cifar100-200 fashion-sample --backbone embedded \
        --features FOLDER --out experiments/results/counting.jsonl#embedded
    python experiments/counting.py --table experiments/results/counting.jsonl#{embedded,small,small-whole}

The first command estimates the whole data sets and random problems, from features of the frozen
backbone, which it keeps in FOLDER. The second prints the tables of such records.

    python experiments/counting.py --few --root DATA --datasets cub cifar100-200 --first 100 --out FILE.jsonl#few

With --few, one to five classes are known: small collections, features of the embedded backbone. That log K is known to
0.3 at best where fewer than four classes are known, and how far the range of the silhouette reaches where one is, was
chosen on problems like these with numbers below 60; those from 100 on were looked at afterwards.

A problem is a subset of a data set's images: some classes, half of them known, half of a known class's images labelled;
every third with sizes that fall to a tenth, in an order that knows nothing of known and new. The whole data set under
its own split is a problem too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness import (
    command,
    facts,
    one_sentence,
    read_record,
    script_parser,
    write_record,
)
from holotype.clustering.class_size import COVERAGE
from holotype.clustering.estimate_k import estimate_without_curve
from holotype.clustering.k_curve import CountProblem
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.runs.experiment import resolve
from holotype.runs.resources import ResourceCache
from holotype.training.encoder import Encoder
from holotype.training.views import FreshViews, evaluation_features

TAIL = 10
"""Largest class to smallest, where a problem has a tail."""
FEWEST, MOST = 20, 150
"""Classes of a random problem."""
PER_CLASS = 60
"""Most images of a class in a random problem."""


@dataclass(frozen=True)
class Problem:
    """Images, some of them labelled, and the number of classes among them."""

    name: str
    rows: np.ndarray
    """(n,) of the data set."""
    label: np.ndarray
    """(n,) of the known classes from 0; -1 = unlabelled."""
    k: int
    tail: bool = False
    more: dict[str, Any] = field(default_factory=dict)
    """What else is drawn, for the record."""

    @property
    def known(self) -> int:
        return int(self.label.max()) + 1


def whole(name: str, truth: np.ndarray, label: np.ndarray) -> Problem:
    """The data set as its split has it. truth, label: (N,) class names, "" = unlabelled."""
    index = {known: i for i, known in enumerate(sorted(set(label) - {""}))}
    return Problem(
        name, np.arange(len(truth)), np.array([index.get(one, -1) for one in label]), len(set(truth))
    )


def random_problems(name: str, truth: np.ndarray, numbers: Iterable[int]) -> Iterator[Problem]:
    """One for each number, which is its seed. truth: (N,) class names."""
    classes = np.unique(truth)
    for number in numbers:
        rng = np.random.default_rng([number, len(classes)])
        n = int(rng.integers(min(FEWEST, len(classes)), min(MOST, len(classes)) + 1))
        chosen = rng.choice(classes, n, replace=False)
        tail = number % 3 == 2
        share = float(TAIL) ** -(rng.permutation(n) / (n - 1)) if tail else np.ones(n)
        rows, label = [], []
        for i, (one, part) in enumerate(zip(chosen, share, strict=True)):
            own = rng.permutation(np.flatnonzero(truth == one))[:PER_CLASS]
            own = own[: max(2, round(part * len(own)))]
            mine = np.full(len(own), -1)
            if i % 2 == 0:
                mine[rng.permutation(len(own))[: (len(own) + 1) // 2]] = i // 2
            rows.append(own)
            label.append(mine)
        yield Problem(f"{name} {number}", np.concatenate(rows), np.concatenate(label), n, tail)


def few_known(name: str, truth: np.ndarray, known: int, numbers: Iterable[int]) -> Iterator[Problem]:
    """Small collections of a few known classes, as people begin: one for each number. Up to twice as many new classes
    and two more, 15 to 55 images of each class, and 4 to half of them labelled."""
    classes = np.unique(truth)
    for number in numbers:
        rng = np.random.default_rng([number, known, len(classes)])
        chosen = rng.choice(classes, known + int(rng.integers(1, 2 * known + 3)), replace=False)
        own = [rng.permutation(np.flatnonzero(truth == one)) for one in chosen]
        size = int(rng.integers(15, min(55, min(map(len, own))) + 1))
        labelled = int(rng.integers(4, size // 2 + 1))
        label = np.full((len(chosen), size), -1)
        label[:known, :labelled] = np.arange(known)[:, None]
        rows = np.concatenate([one[:size] for one in own])
        yield Problem(f"{name} {known} {number}", rows, label.ravel(), len(chosen))


def class_halves(classes: Iterable[str]) -> tuple[list[str], list[str]]:
    """Split classes in two: the first half chooses values, the second confirms them. No class is in both."""
    names = sorted(set(map(str, classes)))
    order = np.random.default_rng(2026).permutation(len(names))
    return [names[i] for i in order[: len(names) // 2]], [names[i] for i in order[len(names) // 2 :]]


def mixed_problems(name: str, truth: np.ndarray, half: int, numbers: Iterable[int]) -> Iterator[Problem]:
    """Collections as strangers have them, one for each number: 6 to 40 classes of one half, 30 to 70 % of them known,
    5, 10 or 50 % of their images labelled, sizes equal or falling to a tenth, and known classes half as large as new
    ones, as large, or twice as large."""
    names = class_halves(truth)[half]
    for number in numbers:
        rng = np.random.default_rng([number, half, len(names)])
        k = int(rng.choice([6, 8, 12, 16, 24, 40]))
        known = max(3, round(k * float(rng.choice([0.3, 0.5, 0.5, 0.7]))))
        ratio, times = float(rng.choice([1, 1, 3, 10])), float(rng.choice([0.5, 1, 1, 2]))
        share, size = float(rng.choice([0.05, 0.1, 0.5])), int(rng.choice([30, 60, 120]))
        rows, label = [], []
        for i, one in enumerate(rng.permutation(names)[:k]):
            of_kind, place = (known, i) if i < known else (k - known, i - known)
            scale = min(times, 1.0) if i < known else min(1 / times, 1.0)
            n = size * scale * ratio ** -(place / max(of_kind - 1, 1))
            own = rng.permutation(np.flatnonzero(truth == one))[: max(3, round(n))]
            mine = np.full(len(own), -1)
            if i < known:
                mine[: max(2, round(share * len(own)))] = i
            rows.append(own)
            label.append(mine)
        drawn = {"share": share, "ratio": ratio, "times": times}
        yield Problem(f"{name} {number}", np.concatenate(rows), np.concatenate(label), k, ratio > 1, drawn)


def mixed_table(records: Sequence[dict[str, Any]]) -> str:
    """As Markdown: by what was drawn."""
    lines = [
        "| collections | backbone | n | off in the mean | bias | range holds truth | its width |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for record in records:
        every = record["problems"]
        groups = {"all": every}
        groups |= {
            f"{100 * s:.0f} % labelled": [p for p in every if p["share"] == s] for s in (0.05, 0.1, 0.5)
        }
        for times, words in ((0.5, "half as large as"), (1, "as large as"), (2, "twice as large as")):
            groups[f"known classes {words} new ones"] = [p for p in every if p["times"] == times]
        groups["fewer than 40 % known"] = [p for p in every if p["known"] < 0.4 * p["k"]]
        lines += [
            f"| {name} | {record['backbone']} | {_summary(some)} |" for name, some in groups.items() if some
        ]
    return "\n".join(lines)


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
    prepared = ResourceCache().get(experiment)
    source, table = (
        FreshViews(prepared.images, Encoder(prepared.backbone, prepared.compute)),
        prepared.data.table,
    )
    with torch.no_grad():
        return table, evaluation_features(source, torch.arange(len(table))).float().cpu().numpy()


def estimate(features: np.ndarray, problem: Problem) -> dict[str, Any]:
    """Return one line of the record."""
    x, label = torch.from_numpy(features[problem.rows]), torch.from_numpy(problem.label)
    started = time.monotonic()
    found = estimate_without_curve(CountProblem(x, label, problem.known))
    return {
        "name": problem.name,
        "images": len(x),
        "labelled": int((label >= 0).sum()),
        "known": problem.known,
        "k": problem.k,
        "tail": problem.tail,
        "by": found.by,
        "seconds": round(time.monotonic() - started, 2),
        "estimate": found.best,
        "low": found.low,
        "high": found.high,
        **problem.more,
    }


def tables(records: Sequence[dict[str, Any]]) -> str:
    """Whole data sets one by one, random problems in the mean."""
    lines = [
        "| data set | backbone | known | true | estimate | range |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for record in records:
        for one in (one for one in record["problems"] if " " not in one["name"]):
            ends = f"{one['low']} to {one['high']}"
            cells = (one["name"], record["backbone"], one["known"], one["k"], one["estimate"], ends)
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


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__)
    parser.add_argument("--root", help="folder of the data sets")
    parser.add_argument("--datasets", nargs="+", default=["fashion-sample"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--backbone", default="embedded")
    parser.add_argument("--features", type=Path, default=Path("runs/counting"))
    parser.add_argument(
        "--problems", type=int, default=20, help="random problems of each data set of 20 classes or more"
    )
    parser.add_argument("--few", action="store_true", help="problems with one to five known classes instead")
    parser.add_argument(
        "--mixed", action="store_true", help="collections of the confirming half of the classes"
    )
    parser.add_argument(
        "--half", type=int, default=1, choices=(0, 1), help="with --mixed: 0 for the half that chose"
    )
    parser.add_argument("--blank", action="store_true", help="take all labels away")
    parser.add_argument("--first", type=int, default=0, help="number of the first random problem")
    parser.add_argument(
        "--table", type=Path, nargs="+", metavar="FILE", help="print the tables of such files"
    )
    given = parser.parse_args(words)
    if given.table:
        found = [read_record(path, KEYS, "counting.py") for path in given.table]
        few_tables = "\n\n".join(few_table(one["problems"]) for one in found if given.few)
        print(mixed_table(found) if given.mixed else few_tables or tables(found))
        return 0
    if given.out is None:
        raise InputError("Name the record to write with --out FILE.json or FILE.jsonl#NAME.")
    record: dict[str, Any] = {
        "command": command("experiments/counting.py", words),
        **facts(torch.device("cpu")),
        "backbone": Path(given.backbone).stem,
        "coverage": COVERAGE,
        "problems": [],
    }
    if given.few:
        record["problems"] = few(given)
        print(few_table(record["problems"]))
    for dataset in () if given.few else given.datasets:
        features, truth, label = load(dataset, given.root, given.backbone, given.features)
        drawn = given.problems if len(set(truth)) >= 20 else 0
        numbers = range(given.first, given.first + drawn)
        problems = [whole(dataset, truth, label), *random_problems(dataset, truth, numbers)]
        if given.mixed:
            problems = list(mixed_problems(dataset, truth, given.half, numbers))
        if given.blank:
            problems = [replace(one, label=np.full_like(one.label, -1)) for one in problems]
        for problem in problems:
            record["problems"].append(estimate(features, problem))
            print(json.dumps(record["problems"][-1]), flush=True)
    write_record(given.out, record)
    return 0


KNOWN = (1, 2, 3, 4, 5)


def few_table(problems: Sequence[dict[str, Any]]) -> str:
    """As Markdown, for each number of known classes."""
    lines = [
        "| known classes | n | off in the mean | bias | nothing new found | range holds truth | its width |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for known in sorted({one["known"] for one in problems}):
        some = [one for one in problems if one["known"] == known]
        off = np.array([one["estimate"] / one["k"] - 1 for one in some])
        holds = np.mean([one["low"] <= one["k"] <= one["high"] for one in some])
        width = np.median([(one["high"] / one["low"]) ** 0.5 - 1 for one in some])
        cells = (
            f"{known}",
            f"{len(some)}",
            f"{100 * np.abs(off).mean():.0f} %",
            f"{100 * off.mean():+.0f} %",
            f"{100 * np.mean([one['estimate'] <= known for one in some]):.0f} %",
            f"{100 * holds:.0f} %",
            f"± {100 * width:.0f} %",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def few(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Problems with few known classes, of every data set and number of known classes."""
    problems: list[dict[str, Any]] = []
    for dataset in given.datasets:
        features, truth, _ = load(dataset, given.root, "embedded", given.features)
        for known in KNOWN:
            drawn = few_known(dataset, truth, known, range(given.first, given.first + given.problems))
            problems += [estimate(features, problem) for problem in drawn]
    return problems


if __name__ == "__main__":
    sys.exit(main())
