"""A played annotator: how right is a discovery after some answers, asked by the studio, by the queue, or at random?

    python experiments/labelling.py full0 part1 part3 --seeds 0 1 2
    python experiments/labelling.py 3-1 4-1 --root DATA --out experiments/results/labelling.jsonl#vectors

full0 and part1 are collections of harness.py; 3-1 is number 3 of half 1 of defaults.py, of CUB, Cars or the CIFAR-100
sample, discovered as `holotype discover --features` does it: counted, with nine trainings on the features of the
embedded backbone. The discovery is trained once. The annotator answers from the hidden truth, EACH questions at a time;
then the studio learns (studio/learn.py) and places every other image anew. Who asks:

studio     of each new category, are its six most typical and six oddest images one thing? Yes labels all of them, else
           the six alone where these are one thing; then as the queue
queue      single images, as results/review_queue.py orders them, with the probabilities of today
random     single images in an order drawn with the seed

A question is one answer. The first label in a new category gives it its name; one that no category is called makes
another. `all`: share of the images without a label that are right, answered ones included; `untouched`: the same over
the images that nobody was asked about in any order.

Prints a table and writes a line of experiments/results/labelling.jsonl, `embedded` by default.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import counting
import defaults
from harness import (
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
from holotype.config.schema import DiscoverConfig
from holotype.data.datasets.registry import load_benchmark
from holotype.data.table import Table
from holotype.discovery.pipeline import discover_table
from holotype.errors import InputError
from holotype.results.calibration import calibrate
from holotype.results.discovery import Category, Discovery, read_features
from holotype.results.review_queue import questions
from holotype.studio.learn import joined_features, place

ORDERS, SCORES = ("studio", "queue", "random"), ("all", "untouched")
MARKS, GOAL = (30, 60, 120), 0.9
NUMBERED, STEPS = re.compile(r"(\d+)-([01])"), 250
CORE = 6
"""Most typical images of a category in a question about it, and oddest ones."""


def find(word: str, root: Path | None, work: Path) -> Found:
    """The discovery of a collection, trained where it was not before."""
    named = NUMBERED.fullmatch(word)
    if named is None:
        return discovered(find_case(word, work), work)
    if root is None:
        raise InputError(
            f"{word} needs the folder of CUB, Cars and the CIFAR-100 sample; give it with --root."
        )
    half = int(named[2])
    spec = defaults.specs("embedded", half)[int(named[1])]
    frozen = counting.load(spec.dataset, str(root), "embedded", work / "features")[0]
    row = {path: i for i, path in enumerate(load_benchmark(spec.dataset, root).train.path)}
    table = defaults.draw(spec, half, root)
    truth, embedded = np.asarray(table.truth, dtype=object), frozen[[row[path] for path in table.path]]
    table = replace(table, truth=None, features=embedded)
    config = DiscoverConfig(backbone="auto", device="cpu", steps=STEPS, seed=0)
    folder = work / "vectors" / word
    result = discover_table(table, config, folder, progress=False)
    assert result.images["path"].tolist() == [str(path) for path in table.path]
    novel = [category.id for category in result.categories if category.kind == "novel"]
    index = {id: i for i, id in enumerate([*table.known, *novel])}
    category = np.array([index[id] for id in result.images["category_id"]])
    features = read_features(folder, len(table))
    assert features is not None
    case, score = Case(word, table, truth, "auto", 0), result.images["known_score"].to_numpy(float)
    return Found(case, len(index), category, score, np.asarray(features, np.float32), embedded)


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
        self.category = np.asarray(found.category)
        self.answers, self.asked = 0, list[int]()
        self.shuffled = np.random.default_rng(seed).permutation(np.flatnonzero(~self.table.labelled))
        self.row = {str(path): row for row, path in enumerate(self.table.path)}
        self.x = joined_features([found.features, found.embedded])
        self.probability = calibrate(found.embedded, self.category, self.target, self.k).probability
        self.left = list(range(len(self.table.known), self.k)) if order == "studio" else []
        """New categories of which nobody has asked."""

    def steps(self, answers: int, each: int) -> list[Step]:
        """The state before the first answer and after each few."""
        done = [Step(0, self.category)]
        while self.answers < answers:
            for rows in self.ask(each):
                self.answers += 1
                self.answer(rows)
            self.learn()
            done.append(Step(self.answers, self.category))
        return done

    @property
    def target(self) -> np.ndarray:
        index = {name: i for i, name in self.names.items()}
        return np.array([index.get(name, -1) for name in self.label])

    def learn(self) -> None:
        target = self.target
        category = np.where(target >= 0, target, self.category)
        self.category, self.probability = place(self.x, category, target < 0, self.k, self.probability)

    def ask(self, n: int) -> list[list[int]]:
        """Rows of the next n questions."""
        if self.order == "random":
            asked = set(self.asked)
            return [[int(row)] for row in self.shuffled if row not in asked][:n]
        groups = [self.group(id) for id in self.left[:n]]
        self.left = self.left[n:]
        groups = [rows for rows in groups if len(rows) > 1]
        more = max(n - len(groups), 0)
        queue = questions(self.discovery(), self.found.features, most=more) if more else []
        return [*groups, *([self.row[one.path]] for one in queue)][:n]

    def group(self, id: int) -> list[int]:
        """The most typical images of a category, then the oddest ones."""
        rows = np.flatnonzero((self.category == id) & (self.target < 0))
        if not len(rows):
            return []
        typical = rows[np.argsort(-(self.x[rows] @ self.x[rows].mean(axis=0)), kind="stable")].tolist()
        return typical[:CORE] + typical[CORE:][-CORE:]

    def discovery(self) -> Discovery:
        """What the queue is made of: every image with its place and its probability."""
        target = self.target
        ids = [self.names.get(i, f"new-{i:02d}") for i in range(self.k)]
        frame = pd.DataFrame({"path": [str(path) for path in self.table.path], "label": self.label})
        frame["category_id"] = [ids[c] for c in self.category]
        frame["probability"] = np.where(target >= 0, 1.0, self.probability)
        frame["typicality"], frame["note"] = 1.0, ""
        sizes = np.bincount(self.category, minlength=self.k)
        categories = [
            Category(id, id, "known" if i in self.names else "novel", int(sizes[i]))
            for i, id in enumerate(ids)
            if sizes[i]
        ]
        return Discovery("played", tuple(self.names.values()), frame, categories)

    def answer(self, rows: list[int]) -> None:
        """Label the images of a question, as far as they are one thing."""
        truth = self.found.case.truth
        self.asked += rows
        same = next((part for part in (rows, rows[:CORE]) if len(set(truth[part])) == 1), [])
        if not same:
            return
        self.label[same] = name = str(truth[same[0]])
        if name in self.names.values():
            return
        if (own := int(self.category[same[0]])) not in self.names:
            self.names[own] = name
        else:
            self.names[self.k] = name
            self.k += 1


def play(found: Found, seeds: Sequence[int], answers: int, each: int) -> list[dict[str, Any]]:
    """All orders on one discovery: a row for each seed and number of answers; a seed decides the random order alone."""
    fixed = [Play(found, order, 0) for order in ORDERS if order != "random"]
    asked = [(one, one.steps(answers, each)) for one in fixed]
    rows = []
    for seed in seeds:
        random = Play(found, "random", seed)
        done = [*asked, (random, random.steps(answers, each))]
        touched = np.zeros(len(found.case.table), dtype=bool)
        for one, _ in done:
            touched[one.asked] = True
        for one, steps in done:
            for step in steps:
                rows.append(
                    {"case": found.case.name, "seed": seed, "order": one.order, "answers": step.answers}
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


def needed(rows: Sequence[dict[str, Any]], goal: float) -> float:
    """Answers until `all` is at the goal, in one play; it grows evenly between two steps. Infinite = never."""
    before = (0.0, rows[0]["all"])
    for row in rows:
        (a, low), (b, high) = before, (row["answers"], row["all"])
        if high >= goal:
            return b if high <= low else a + (b - a) * (goal - low) / (high - low)
        before = b, high
    return float("inf")


def at_answers(rows: Sequence[dict[str, Any]], answers: float, score: str) -> float:
    """The score after some answers, in one play; it grows evenly between two steps."""
    return float(np.interp(answers, [row["answers"] for row in rows], [row[score] for row in rows]))


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean and a bootstrapped interval of 95 % over cases."""
    drawn = np.random.default_rng(0).choice(np.array(values), (2_000, len(values))).mean(axis=1)
    return float(np.mean(values)), *(float(q) for q in np.quantile(drawn, [0.025, 0.975]))


def summarise(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each order: `all` after some answers with intervals over cases, answers to GOAL, and answers that reach
    what random ones reach with the most (medians over plays)."""
    cases, seeds = sorted({row["case"] for row in rows}), sorted({row["seed"] for row in rows})
    plays = {
        (order, case, seed): [
            row for row in rows if (row["order"], row["case"], row["seed"]) == (order, case, seed)
        ]
        for order in ORDERS
        for case in cases
        for seed in seeds
    }
    found = []
    for order in ORDERS:
        line: dict[str, Any] = {"order": order}
        for mark in (0, *MARKS):
            each = [
                np.mean([at_answers(plays[order, case, seed], mark, "all") for seed in seeds])
                for case in cases
            ]
            line[f"all_{mark}"] = interval([float(value) for value in each])
        mine = [(plays[order, case, seed], plays["random", case, seed]) for case in cases for seed in seeds]
        line["to_goal"] = float(np.median([needed(play, GOAL) for play, _ in mine]))
        line["as_random"] = float(
            np.median([needed(play, at_answers(other, MARKS[-1], "all")) for play, other in mine])
        )
        found.append(line)
    return found


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(__doc__, work="runs/samples", out=RESULTS / "labelling.jsonl#embedded")
    parser.add_argument("case", nargs="+", help="full0, ..., part0, ..., or 0-0, 0-1, ...")
    parser.add_argument("--root", type=Path, help="folder of CUB, Cars and the CIFAR-100 sample")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the random order")
    parser.add_argument("--answers", type=int, default=MARKS[-1])
    parser.add_argument(
        "--each", type=int, default=8, help="answers between two times that the studio learns"
    )
    given = parser.parse_args(words)
    every: list[dict[str, Any]] = []
    for word in given.case:
        every += play(find(word, given.root, given.work), given.seeds, given.answers, given.each)
        tell(word, [row for row in every if row["case"] == word])
        content = {"seeds": given.seeds, "needed": finite(summarise(every)), "rows": every}
        made = run_facts("experiments/labelling.py", words, backbone="embedded")
        write_record(given.out, made | content)  # after each: what a stop leaves is a record of those before
    tell("all", every)
    return 0


def tell(case: str, rows: Sequence[dict[str, Any]]) -> None:
    """A line for each order."""
    for line in summarise(rows):
        shares = ", ".join(
            f"{mark}: {100 * line[f'all_{mark}'][0]:.1f} ({100 * line[f'all_{mark}'][1]:.1f} to "
            f"{100 * line[f'all_{mark}'][2]:.1f})"
            for mark in (0, *MARKS)
        )
        ends = f"to {GOAL:.0%}: {line['to_goal']:.0f}; as 120 random: {line['as_random']:.0f}"
        print(f"{case:>8} {line['order']:>8}  {shares}; {ends}", flush=True)


def finite(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """JSON knows no infinity: null says that the queue never got there."""
    return [{key: None if value == float("inf") else value for key, value in row.items()} for row in rows]


if __name__ == "__main__":
    sys.exit(main())
