"""A played annotator: how many answers do the questions of the queue need, and how many those in random order?

    python experiments/labelling.py full0 part1 part3 --seeds 0 1 2

The discovery is trained once. Each round, the annotator answers a few questions from the hidden truth; the answers are
labels, each of which counts as much as LABEL images, and a linear discriminant on the features before and after
training places every image anew. Questions come from the queue (results/review_queue.py, with probabilities as a
discovery
computes them) or in an order drawn with the seed. The first answer about a new category gives it its name; an answer
that no category is called makes one.

all        share of the images that came without a label that are right, answered ones included
untouched  the same over the images that nobody was asked about in either order

Prints a table and writes the line `embedded` of experiments/results/labelling.jsonl.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from harness import (
    DEMO_STEPS,
    RESULTS,
    Case,
    Found,
    discovered,
    find_case,
    is_right,
    one_sentence,
    run_facts,
    script_parser,
    write_record,
)
from holotype.data.table import Table
from holotype.results.calibration import calibrate
from holotype.results.discovery import Category, Discovery
from holotype.results.lda import LDAStats
from holotype.results.review_queue import questions

ORDERS, SCORES = ("queue", "random"), ("all", "untouched")
LABEL = 5.0
"""Images that a label counts as much as."""
TIMES = 3
"""The discriminant learns from the places that it gave before."""


@dataclass
class Step:
    """How things stand after some answers."""

    answers: int
    category: np.ndarray
    """(N,)"""


class Play:
    """One annotator and one order of questions."""

    def __init__(self, found: Found, order: str, seed: int) -> None:
        self.found, self.order, self.k = found, order, found.k
        self.table: Table = found.case.table
        self.names = dict(enumerate(self.table.known))
        """Index of a category to the class that labels say it is."""
        self.label = np.array(self.table.label, dtype=object)
        self.category = found.category
        self.asked: list[int] = []
        self.shuffled = np.random.default_rng(seed).permutation(np.flatnonzero(~self.table.labelled))
        self.row = {str(path): row for row, path in enumerate(self.table.path)}
        self.x = unit(np.hstack([unit(centred(found.features)), unit(centred(found.embedded))]))

    def steps(self, rounds: int, each: int) -> list[Step]:
        """The state before the first round and after each."""
        done = [Step(0, self.category)]
        first = max(self.found.k - len(self.table.known), 1)  # as many in both orders
        for number in range(rounds):
            for row in self.ask(each if number else first):
                self.answer(row)
            self.place()
            done.append(Step(len(self.asked), self.category))
        return done

    @property
    def target(self) -> np.ndarray:
        index = {name: i for i, name in self.names.items()}
        return np.array([index.get(name, -1) for name in self.label])

    def place(self) -> None:
        """Every image anew, given the labels of now."""
        target = self.target
        weight = np.where(target >= 0, LABEL, 1.0)
        self.category = np.where(target >= 0, target, self.category)
        for _ in range(TIMES):
            said = LDAStats.of(self.x, self.category, weight, self.k).judge().scores(self.x).argmax(axis=1)
            self.category = np.where(target >= 0, target, said)

    def ask(self, n: int) -> list[int]:
        """Rows of the next n questions."""
        if self.order == "random":
            return [int(row) for row in self.shuffled if row not in self.asked][:n]
        queue = questions(self.discovery(), self.found.features, most=n)
        return [self.row[one.path] for one in queue][:n]

    def discovery(self) -> Discovery:
        """What the queue is made of: every image with its place and its probability."""
        target = self.target
        ids = [self.names.get(i, f"new-{i:02d}") for i in range(self.k)]
        probability = calibrate(self.found.embedded, self.category, target, self.k).probability
        frame = pd.DataFrame({"path": [str(path) for path in self.table.path], "label": self.label})
        frame["category_id"] = [ids[c] for c in self.category]
        frame["probability"] = np.where(target >= 0, 1.0, probability)
        frame["typicality"], frame["note"] = 1.0, ""
        sizes = np.bincount(self.category, minlength=self.k)
        categories = [
            Category(id, id, "known" if i in self.names else "novel", int(sizes[i]))
            for i, id in enumerate(ids)
            if sizes[i]
        ]
        return Discovery("played", tuple(self.names.values()), frame, categories)

    def answer(self, row: int) -> None:
        self.asked.append(row)
        self.label[row] = name = str(self.found.case.truth[row])
        if name in self.names.values():
            return
        if (own := int(self.category[row])) not in self.names:
            self.names[own] = name
        else:
            self.names[self.k] = name
            self.k += 1


def unit(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


def centred(x: np.ndarray) -> np.ndarray:
    return np.asarray(x - x.mean(axis=0), dtype=np.float64)


def play(found: Found, seed: int, rounds: int, each: int) -> list[dict[str, Any]]:
    """Both orders on one discovery: a row for each number of answers."""
    plays = {order: Play(found, order, seed) for order in ORDERS}
    steps = {order: one.steps(rounds, each) for order, one in plays.items()}
    touched = np.zeros(len(found.case.table), dtype=bool)
    for one in plays.values():
        touched[one.asked] = True
    rows = []
    for order, done in steps.items():
        for step in done:
            rows.append(
                {"case": found.case.name, "seed": seed, "order": order, "answers": step.answers}
                | {
                    "all": share(found.case, step.category),
                    "untouched": share(found.case, step.category, touched),
                }
            )
    return rows


def share(case: Case, category: np.ndarray, without: np.ndarray | None = None) -> float:
    """All over the images that came without a label; without: (N,) bool, those that do not count."""
    if without is None:
        return float(is_right(case, category)[~case.table.labelled].mean())
    rows = ~without
    table = case.table.take(rows)
    left = replace(case, table=table, truth=case.truth[rows])
    return float(is_right(left, category[rows])[~table.labelled].mean())


def needed(rows: Sequence[dict[str, Any]], score: str) -> dict[str, float]:
    """Answers that the queue needs for what random order reaches with all of its own, in the mean over cases and seeds.

    Between two rounds the score is taken to grow evenly; where the queue never gets there, its number is infinite.
    """
    curve = {order: mean_curve([row for row in rows if row["order"] == order], score) for order in ORDERS}
    last, goal = curve["random"][-1]
    reached = float("inf")
    for (a, low), (b, high) in zip([(0.0, -1.0), *curve["queue"]], curve["queue"], strict=False):
        if high >= goal:
            reached = a + (b - a) * (goal - low) / (high - low) if low >= 0 else b
            break
    return {"goal": goal, "random": last, "queue": reached, "ratio": reached / last}


def mean_curve(rows: Sequence[dict[str, Any]], score: str) -> list[tuple[float, float]]:
    """(answers, score) after each round, means over cases and seeds."""
    plays = sorted({(row["case"], row["seed"]) for row in rows})
    each = [[row for row in rows if (row["case"], row["seed"]) == one] for one in plays]
    rounds = min(len(one) for one in each)
    return [
        (float(np.mean([one[i]["answers"] for one in each])), float(np.mean([one[i][score] for one in each])))
        for i in range(rounds)
    ]


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__, work="runs/samples", out=RESULTS / "labelling.jsonl#embedded")
    parser.add_argument("case", nargs="+", help="full0, full1, ... or part0, part1, ...")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the random order")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--each", type=int, default=10, help="answers of a round; the first has one per new category"
    )
    given = parser.parse_args(words)
    every: list[dict[str, Any]] = []
    print(HEAD)
    for word in given.case:
        found = discovered(find_case(word, given.work), given.work)
        rows = [row for seed in given.seeds for row in play(found, seed, given.rounds, given.each)]
        every += rows
        tell(word, rows)
    summary = [{"case": "mean", "score": score, **needed(every, score)} for score in SCORES]
    tell("mean", every)
    content = {"seeds": given.seeds, "needed": finite(summary), "rows": every}
    made = run_facts("experiments/labelling.py", words, backbone="embedded", steps=DEMO_STEPS)
    write_record(given.out, made | content)
    return 0


HEAD = " ".join(
    name.rjust(width)
    for name, width in (
        *(("case", 8), ("score", 10), ("at first", 8), ("answers", 8), ("random", 8), ("queue", 8)),
        *(("queue needs", 12), ("ratio", 6)),
    )
)


def tell(case: str, rows: Sequence[dict[str, Any]]) -> None:
    """A line for each score: what both orders reach with all of their answers, and what the queue needs for that."""
    for score in SCORES:
        one = needed(rows, score)
        queue = mean_curve([row for row in rows if row["order"] == "queue"], score)
        told = f"{queue[0][1]:>8.3f} {one['random']:>8.0f} {one['goal']:>8.3f} {queue[-1][1]:>8.3f}"
        print(f"{case:>8} {score:>10} {told} {one['queue']:>12.1f} {one['ratio']:>6.2f}", flush=True)


def finite(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON knows no infinity: null says that the queue never got there."""
    return [{key: None if value == float("inf") else value for key, value in row.items()} for row in rows]


if __name__ == "__main__":
    sys.exit(main())
