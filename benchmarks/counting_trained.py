"""Does the number of categories come out better from trained features than from frozen ones?

    python benchmarks/counting_trained.py --root DATA --datasets fashion-sample cub cifar100-200 \\
        --out experiments/results/counting/trained.json
    python benchmarks/counting_trained.py --table experiments/results/counting/trained.json

Rule, written before the runs: trained features take the place of frozen ones in `--k auto` only if over these problems
the estimate is off by at least 2 points less in the mean than today's, and that is then seen again on problems of other
numbers. Looked at once.

Trained are SimGCD, with half of the labels of each known class and with half as many categories again as today's
estimate says: too many do less harm than too few. The other half of the labels, which training has not seen, then says
how large a known class is, as in cluster/class_size.py; with the labels that it has seen, images with a label would
lie nearer to each other than to those without. Four answers are compared:

    frozen         today's: frozen features, all labels
    frozen half    frozen features, the labels that training has not seen
    trained half   trained features, the same labels
    used           the categories that hold at least a quarter of their even share of the images
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from count_problems import Problem, random_problems, whole
from counting import data_parser, embedded
from measure import command, facts
from script import one_sentence, read_record

import holotype
from holotype.cluster.count import pick_k, settle
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.machine.device import Compute
from holotype.machine.files import write_text
from holotype.runs.trained import load_trained

FIRST, LARGEST = 3000, 45
"""Number of the first random problem, and classes at most: each is trained on a CPU."""
STEPS, BATCH = 1000, 128
BACKBONE = "embedded"
MORE = 1.5
"""Categories in training, times today's estimate."""
USED = 0.25
KEYS = ("command", "hardware", "problems")
ANSWERS = ("frozen", "frozen half", "trained half", "used")


def problems_of(dataset: str, table: Table, n: int) -> Iterator[Problem]:
    """The data set itself where it is small, and n random problems of at most LARGEST classes."""
    truth, label = (np.asarray(column).astype(str) for column in (table.truth, table.label))
    if len(set(truth)) <= LARGEST:
        yield whole(dataset, truth, label)
    else:
        numbers = range(FIRST, FIRST + 100 * n)
        yield from islice((one for one in random_problems(dataset, truth, numbers) if one.k <= LARGEST), n)


def halves(label: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The labels of half of the labelled images of each class, and those of the other half; -1 elsewhere."""
    rng, one, other = np.random.default_rng(seed), np.full_like(label, -1), np.full_like(label, -1)
    for known in range(label.max() + 1):
        rows = rng.permutation(np.flatnonzero(label == known))
        one[rows[: (len(rows) + 1) // 2]] = known
        other[rows[(len(rows) + 1) // 2 :]] = known
    return one, other


def count(features: np.ndarray, label: np.ndarray, known: int) -> int:
    return pick_k(settle(torch.from_numpy(features), torch.from_numpy(label), known))


def train(
    table: Table, problem: Problem, label: np.ndarray, k: int, folder: Path, device: str
) -> tuple[np.ndarray, int]:
    """Trained features of the problem's images, and how many categories are used."""
    paths = [str(table.path[row]) for row in problem.rows]
    with (folder / "images.csv").open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(("path", "label"))
        lines.writerows(
            (path, f"c{one:03d}" if one >= 0 else "") for path, one in zip(paths, label, strict=True)
        )
    epochs = max(1, round(STEPS * BATCH / len(paths)))
    settings = {"train.epochs": epochs, "train.batch_size": BATCH, "backbone.name": BACKBONE}
    run = folder / "run"
    holotype.train(
        "simgcd",
        str(folder / "images.csv"),
        settings=settings,
        k=k,
        cache_views="4+0",
        device=device,
        progress=False,
        out=str(run),
    )
    placed = pd.read_csv(run / "assignments.csv")["category_id"].value_counts()
    used = int((placed >= USED * len(paths) / k).sum())
    return load_trained(str(run), device).features(paths).features, used


def answer(table: Table, frozen: np.ndarray, problem: Problem, device: str) -> dict[str, Any]:
    """One line of the record."""
    started = time.monotonic()
    seen, unseen = halves(problem.label)
    mine = frozen[problem.rows]
    found = {
        "frozen": count(mine, problem.label, problem.known),
        "frozen half": count(mine, unseen, problem.known),
    }
    with tempfile.TemporaryDirectory() as folder:
        k = max(round(MORE * found["frozen"]), problem.known + 1)
        trained, found["used"] = train(table, problem, seen, k, Path(folder), device)
    found["trained half"] = count(trained, unseen, problem.known)
    line = {"name": problem.name, "images": len(mine), "known": problem.known, "k": problem.k}
    return line | {"tail": problem.tail} | found | {"seconds": round(time.monotonic() - started)}


def table_of(problems: Sequence[dict[str, Any]]) -> str:
    lines = ["| problem | images | known | true | " + " | ".join(ANSWERS) + " |", "|---|" + "---:|" * 7]
    for one in problems:
        name = one["name"] + (", 10 to 1" if one["tail"] else "")
        cells = (name, f"{one['images']:,}", one["known"], one["k"], *(one[key] for key in ANSWERS))
        lines.append(f"| {' | '.join(map(str, cells))} |")
    off = {key: np.array([one[key] / one["k"] - 1 for one in problems]) for key in ANSWERS}
    lines.append(
        "| off in the mean | | | | "
        + " | ".join(f"{100 * abs(off[key]).mean():.1f} %" for key in ANSWERS)
        + " |"
    )
    lines.append("| bias | | | | " + " | ".join(f"{100 * off[key].mean():+.1f} %" for key in ANSWERS) + " |")
    return "\n".join(lines)


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = data_parser(__doc__)
    parser.add_argument("--problems", type=int, default=4, help="random problems of each large data set")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto (default: cpu)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of such a file")
    given = parser.parse_args(words)
    if given.table:
        print(table_of(read_record(given.table, KEYS, "counting_trained.py")["problems"]))
        return 0
    if given.out is None:
        raise InputError("Name the file to write with --out FILE.json.")
    told = command(list(words) if words is not None else sys.argv[1:], "counting_trained.py")
    record: dict[str, Any] = {"command": told, **facts(Compute.on(given.device).device), "problems": []}
    for dataset in given.datasets:
        table, frozen = embedded(dataset, given.root, BACKBONE)
        for problem in problems_of(dataset, table, given.problems):
            record["problems"].append(answer(table, frozen, problem, given.device))
            print(json.dumps(record["problems"][-1]), flush=True)
            write_text(given.out, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
