"""A played annotator: how right is a discovery after some answers, asked by the studio, by the queue, or at random?

    python experiments/labelling.py full0 part1 part3 --seeds 0 1 2
    python experiments/labelling.py 3-1 4-1 --root DATA --out experiments/results/labelling.jsonl#vectors
    python experiments/labelling.py s0-1 s1-1 --root DATA --small FILE.safetensors

full0 and part1 are collections of harness.py. 3-1 is number 3 of half 1 of defaults.py, of CUB, Cars or the CIFAR-100
sample, discovered as `holotype discover --features` does it from the features of the embedded backbone; s0-1 is number
0 of those for ViT-S/14, with its features. The discovery is trained once. The annotator answers from the hidden truth,
EACH questions at a time; then the studio learns (studio/learn.py) and places every other image anew. Who asks:

studio     what `holotype studio` asks, by the images that an answer is expected to put right: single images, as
           results/review_queue.py ranks them, and of each new category whether its six most typical and six oddest
           images are one thing (yes labels all of them, else the six alone where these are one thing)
doubt      single images, the least sure first
random     single images in an order drawn with the seed
rounds     with --rounds: the report without the studio. Single images, ranked as above, whose answers go into
           edits.csv; after 30, 60 and 120 another round of `holotype discover`, which trains anew. Of the numbered
           collections alone

A question is one answer. The first label in a new category gives it its name; one that no category is called makes
another. `all`: share of the images without a label that are right, answered ones included; `untouched`: the same over
the images that nobody was asked about in any order.

Prints a table and writes a line of experiments/results/labelling.jsonl, `embedded` by default.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

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
from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.pipeline import discover_table
from holotype.embeddings.store import embed_table
from holotype.errors import InputError
from holotype.models.backbone import load_backbone
from holotype.results.calibration import calibrate
from holotype.results.discovery import Discovery, read_features
from holotype.results.edits import Edit, append_edits
from holotype.results.review_queue import doubtful_images, joined_features, question_features, rank_by_gain
from holotype.studio.learn import place
from holotype.utils.device import Device

ORDERS, ROUNDS = ("studio", "doubt", "random"), "rounds"
MARKS, GOAL = (30, 60, 120), 0.9
"""Answers that are shown, after each of which the report alone takes another round; share of right images."""
NUMBERED, STEPS = re.compile(r"(s?)(\d+)-([01])"), 250
CORE = 6
"""Most typical images of a category in a question about it, and oddest ones."""


def find(word: str, root: Path | None, work: Path, small: str = "") -> Found:
    """The discovery of a collection, trained where it was not before. small: weights of ViT-S/14."""
    named = NUMBERED.fullmatch(word)
    if named is None:
        return discovered(find_case(word, work), work)
    if root is None:
        raise InputError(
            f"{word} needs the folder of CUB, Cars and the CIFAR-100 sample; give it with --root."
        )
    half, kind = int(named[3]), "small" if named[1] else "embedded"
    table = defaults.draw(defaults.specs(kind, half)[int(named[2])], half, root)
    backbone = load_backbone(BackboneConfig(small if named[1] else "embedded"))
    embedded = embed_table(table, backbone, Device.on("auto"), work / f"features-{kind}").features
    truth = np.asarray(table.truth, dtype=object)
    table = replace(table, truth=None, features=embedded)
    result, folder = vector_round(table, work, word), work / "vectors" / word
    category, features = category_index(result, table), read_features(folder, len(table))
    assert features is not None
    case, score = Case(word, table, truth, "auto", 0), result.images["known_score"].to_numpy(float)
    return Found(case, int(category.max()) + 1, category, score, np.asarray(features, np.float32), embedded)


def vector_round(table: Table, work: Path, name: str, seed: int = 0) -> Discovery:
    """The next round of a discovery from vectors, or its last one where nothing is new."""
    config = DiscoverConfig(backbone="auto", device="cpu", steps=STEPS, seed=seed)
    result = discover_table(table, config, work / "vectors" / name, progress=False)
    assert result.images["path"].tolist() == [str(path) for path in table.path]
    return result


def category_index(result: Discovery, table: Table) -> np.ndarray:
    """(N,) the categories by number, known classes of the table first."""
    others = [one.id for one in result.categories if one.id not in table.known]
    index = {id: i for i, id in enumerate([*table.known, *others])}
    return np.array([index[id] for id in result.images["category_id"]])


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
        self.x = joined_features([found.features, found.embedded])
        self.first = calibrate(found.embedded, self.category, self.target, self.k).probability
        self.probability = self.first
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
        """As the studio: from the places of the round and all answers."""
        target = self.target
        category = np.where(target >= 0, target, self.found.category)
        self.category, self.probability = place(self.x, category, target < 0, self.k, self.first)

    def ask(self, n: int) -> list[list[int]]:
        """Rows of the next n questions."""
        asked, doubt = np.zeros(len(self.label), dtype=bool), 1 - np.nan_to_num(self.probability, nan=0.5)
        asked[self.asked] = True
        if self.order == "random":
            return [[int(row)] for row in self.shuffled if not asked[row]][:n]
        free = np.flatnonzero(~asked & (self.target < 0))
        if self.order == "doubt":
            return [[int(row)] for row in free[np.argsort(-doubt[free], kind="stable")][:n]]
        rows, gains = rank_by_gain(self.x, doubt, free, np.array(self.asked, dtype=int), n)
        worth = [(gain, [row]) for row, gain in zip(rows, gains, strict=True)]
        for id in self.left:
            if len(group := self.group(id)) > 1:
                size = float(doubt[(self.category == id) & (self.target < 0)].sum())
                worth.append((size * float(np.prod(1 - doubt[group])), group))
        worth = sorted(worth, key=lambda one: -one[0])[:n]
        grouped = {int(self.category[group[0]]) for _, group in worth if len(group) > 1}
        self.left = [id for id in self.left if id not in grouped]
        return [group for _, group in worth]

    def group(self, id: int) -> list[int]:
        """The most typical images of a category, then the oddest ones."""
        rows = np.flatnonzero((self.category == id) & (self.target < 0))
        if not len(rows):
            return []
        typical = rows[np.argsort(-(self.x[rows] @ self.x[rows].mean(axis=0)), kind="stable")].tolist()
        return typical[:CORE] + typical[CORE:][-CORE:]

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


def play_rounds(found: Found, work: Path, seed: int, answers: int) -> tuple[list[Step], list[int]]:
    """The state after each round, and the rows that were asked about. seed: of the trainings of later rounds."""
    case = found.case
    name, table, truth = f"{case.name}-rounds-{seed}", case.table, case.truth
    shutil.copytree(work / "vectors" / case.name, work / "vectors" / name)
    result, asked, done = Discovery.load(work / "vectors" / name), list[int](), [Step(0, found.category)]
    for mark in (mark for mark in MARKS if mark <= answers):
        features = question_features(work / "vectors" / name, work / "vectors" / name, result.digests)
        rows = doubtful_images(result, features, mark - len(asked))[0]
        digest, asked = result.images["digest"], [*asked, *rows]
        append_edits(
            work / "vectors" / name,
            [
                Edit(
                    result.run_id, f"2026-01-01T00:{n:02d}:00Z", "move", "", "", str(truth[one]), digest[one]
                )
                for n, one in enumerate(rows)
            ],
        )
        result = vector_round(table, work, name, seed)
        done.append(Step(len(asked), category_index(result, table)))
    return done, asked


def play(
    found: Found, seeds: Sequence[int], answers: int, each: int, work: Path | None = None
) -> list[dict[str, Any]]:
    """All orders on one discovery: a row for each seed and number of answers; a seed decides the random order, and the
    trainings of rounds. work: where these are trained, None = without them."""
    fixed = [Play(found, order, 0) for order in ORDERS if order != "random"]
    asked = [(one, one.steps(answers, each)) for one in fixed]
    rows = []
    for seed in seeds:
        random = Play(found, "random", seed)
        done = [(one.order, one.asked, steps) for one, steps in asked]
        done.append((random.order, random.asked, random.steps(answers, each)))
        if work is not None:
            steps, questioned = play_rounds(found, work, seed, answers)
            done.append((ROUNDS, questioned, steps))
        touched = np.zeros(len(found.case.table), dtype=bool)
        for _, questioned, _ in done:
            touched[questioned] = True
        for order, _, steps in done:
            for step in steps:
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
    orders = list(dict.fromkeys(row["order"] for row in rows))
    plays = {
        (order, case, seed): [
            row for row in rows if (row["order"], row["case"], row["seed"]) == (order, case, seed)
        ]
        for order in orders
        for case in cases
        for seed in seeds
    }
    found = []
    for order in orders:
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
    parser.add_argument("--small", default="", help="weights of ViT-S/14")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the random order")
    parser.add_argument("--answers", type=int, default=MARKS[-1])
    parser.add_argument(
        "--each", type=int, default=8, help="answers between two times that the studio learns"
    )
    parser.add_argument("--rounds", action="store_true", help="the report with rounds, too")
    given = parser.parse_args(words)
    every: list[dict[str, Any]] = []
    for word in given.case:
        every += play(
            find(word, given.root, given.work, given.small),
            given.seeds,
            given.answers,
            given.each,
            given.work if given.rounds else None,
        )
        tell(word, [row for row in every if row["case"] == word])
        content = {"seeds": given.seeds, "needed": finite(summarise(every)), "rows": every}
        made = run_facts("experiments/labelling.py", words, backbone=Path(given.small).stem or "embedded")
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
