"""Are corrections worth their while? A round, 60 to 100 edits, a second round: All of images that nobody touched.

    python experiments/corrections.py full cub4 cifar4 --cub DIR/CUB_200_2011 --cifar DIR/cifar100-200
    python experiments/corrections.py --table experiments/results/corrections.jsonl#{full,cub8,cifar8}

`full` is the whole embedded sample as `holotype demo` has it, cub4 and the like are those of harness.py. Round 1 is a
discovery like any other (discover_table, one training, k estimated). A played corrector makes edits.csv;
round 2 is the same command with these edits. It starts anew from the backbone: only the labels, the images that stay
out and the names come from round 1, and k is estimated again. Nothing of the truth reaches training but by the edits.

All figures are over the images that came without a label. `untouched` are those that no edit names:
round 1      as it was found
corrected    with the edits, before any training: merged categories are one
round 2      after training with them
everything   the same over all of them: an image that was moved is where it was moved to, a rejected one is wrong
For each figure, categories are matched to classes once, over its images. Images that a merge has made labels
(the nine most typical, right or wrong) count as untouched, since nobody has said anything of them.

Round 1 with its five seeds is the control, since round 2 is a fresh training with more labels. It is a strict one:
mistakes of this very round 1 were taken out of the untouched images, and none of those that round 2 makes. So `others`
tells beside it what round 1 with the other seeds makes of the same images.

The rule, as it was fixed before any run: corrections raise All if the mean of round 2 minus round 1 over the untouched
images and five seeds is above zero on each of three collections. It was written for full, cub4 and cifar4 with the
seeds 0 to 4. Their first run each (full 63.3 to 59.0, cub4 71.8 to 61.5) showed that the number of categories, which
was counted again with the picked labels, grew from 13 to 15 and from 19 to 27. Since then it stays what people have
left. So the rule is applied to full with the seeds 5 to 9 and to cub8 and cifar8 with the seeds 0 to 4. These chose
nothing, neither in the product nor in the corrector. The 95 % interval (t, paired by seed) is told beside it.

Prints a line for each run and writes the record after each. Run folders are kept in --work: what is there is read.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from harness import (
    RESULTS,
    Collection,
    find_case,
    find_collection,
    given_words,
    interval_of,
    one_sentence,
    read_record,
    roots_of,
    run_facts,
    script_parser,
    with_truth,
    write_record,
)
from holotype.cli.demo import DEMO_STEPS
from holotype.clustering.metrics import class_index, clustering_accuracy
from holotype.config.schema import DiscoverConfig
from holotype.discovery.pipeline import discover_table
from holotype.discovery.rounds import last_round, round_folder
from holotype.errors import InputError
from holotype.results.discovery import Category, Discovery
from holotype.results.edits import Edit, apply_edits, edits_csv
from holotype.utils.atomic import write_text
from holotype.utils.device import pick_device

EACH = 20
"""Corrections of each kind, at most."""
FEWEST = 5
"""Images of one class in one category that are worth a category of their own."""
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
"""Of the first edit. The same round is always corrected by the same file."""
RECORD = RESULTS / "corrections.jsonl#embedded"


@dataclass(frozen=True)
class Corrections:
    """What was corrected in one report."""

    edits: list[Edit]
    touched: np.ndarray
    """(N,) bool: images that an edit names."""
    counts: dict[str, int]
    """Edits of each kind; `categories` are those that were made by splits."""


class Corrector:
    """One person in front of the report of one round."""

    def __init__(self, found: Discovery, truth: np.ndarray) -> None:
        """truth: (N,) class of each image."""
        self.found, self.truth = found, np.asarray(truth).astype(str)
        images = found.images
        self.path = [str(path) for path in images["path"]]
        self.category = images["category_id"].fillna("").to_numpy(dtype=object)
        """(N,) as it stands after the edits so far."""
        self.probability = images["probability"].fillna(0).to_numpy(float)
        self.typicality = images["typicality"].fillna(0).to_numpy(float)
        self.free = (images["label"].fillna("") == "").to_numpy(bool) & (self.category != "")
        self.touched = np.zeros(len(self.path), dtype=bool)
        self.stands = {name: name for name in found.known}
        """Class to the id of the category that stands for it."""
        self.edits: list[Edit] = []
        self.counts: Counter[str] = Counter()

    def correct(self) -> Corrections:
        self.merge_and_name()
        self.confirm()
        self.move()
        self.split()
        self.reject()
        kinds = ("confirm", "move", "split", "categories", "merge", "reject", "rename")
        return Corrections(self.edits, self.touched, {kind: self.counts[kind] for kind in kinds})

    # -- the edits --------------------------------------------------------------------------------

    def merge_and_name(self) -> None:
        """The largest category of a class stands for it; a known class stands for itself, whatever its size."""
        own = {category.id: self.largest_class(category.id) for category in self.novel()}
        named = []
        for category in self.novel():
            name = own[category.id]
            if name not in self.stands:
                self.stands[name] = category.id
                named.append((category.id, name))
            elif self.counts["merge"] < EACH:
                self.say("merge", category=category.id, value=self.stands[name])
                self.category[self.category == category.id] = self.stands[name]
        for id, name in named:
            if name != self.found.category(id).name:
                self.say("rename", category=id, value=name)

    def confirm(self) -> None:
        new = [id for name, id in self.stands.items() if name not in self.found.known]
        right = self.right & self.open
        each = [ordered(np.flatnonzero(right & (self.category == id)), -self.typicality) for id in new]
        turns = [row for turn in zip_longest(*each) for row in turn if row is not None]
        for row in turns[:EACH]:
            self.say("confirm", row, value=self.category[row])

    def move(self) -> None:
        known_place = np.isin(self.truth, list(self.stands))
        for row in ordered(np.flatnonzero(self.wrong & known_place), self.probability)[:EACH]:
            self.say("move", row, value=self.stands[self.truth[row]])

    def split(self) -> None:
        for name, rows in self.groups():
            left = EACH - self.counts["split"]
            if left < FEWEST:
                return
            self.counts["categories"] += name not in self.stands
            self.stands.setdefault(name, name)
            for row in rows[:left]:
                self.say("move", row, value=name, kind="split")

    def reject(self) -> None:
        for row in ordered(np.flatnonzero(self.wrong), self.probability)[:EACH]:
            self.say("reject", row)

    # -- how things stand -------------------------------------------------------------------------

    @property
    def open(self) -> np.ndarray:
        """(N,) bool: may be touched."""
        return self.free & ~self.touched

    @property
    def right(self) -> np.ndarray:
        """(N,) bool: lies in the category that stands for its class."""
        return np.array([self.stands.get(t) == c for t, c in zip(self.truth, self.category, strict=True)])

    @property
    def wrong(self) -> np.ndarray:
        """(N,) bool: may be touched and lies elsewhere."""
        return self.open & ~self.right

    def novel(self) -> list[Category]:
        """New categories with images, the largest first."""
        there = [c for c in self.found.categories if c.kind == "novel" and c.n]
        return sorted(there, key=lambda category: (-category.n, category.id))

    def largest_class(self, id: str) -> str:
        counts = Counter(self.truth[self.category == id].tolist())
        return min(counts, key=lambda name: (-counts[name], name))

    def groups(self) -> Iterator[tuple[str, list[int]]]:
        """(class, rows) of images of classes without a category that lie together; the largest first."""
        homeless = np.flatnonzero(self.open & ~np.isin(self.truth, list(self.stands)))
        groups: dict[tuple[str, str], list[int]] = {}
        for row in ordered(homeless, -self.typicality):
            groups.setdefault((self.truth[row], self.category[row]), []).append(row)
        for (name, _), rows in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
            if len(rows) >= FEWEST:
                yield name, rows

    def say(
        self, action: str, row: int | None = None, *, category: str = "", value: str = "", kind: str = ""
    ) -> None:
        """One more edit, of an image or of a category. kind: what it is counted as."""
        image = ""
        if row is not None:
            assert self.open[row], "no image is touched twice"
            image, category, self.touched[row] = self.path[row], str(self.category[row]), True
        time = (BEGAN + timedelta(seconds=len(self.edits))).isoformat()
        self.edits.append(Edit(self.found.run_id, time, action, image, category, str(value)))
        self.counts[kind or action] += 1


def ordered(rows: Iterable[int], by: np.ndarray) -> list[int]:
    """The rows with the smallest values first; those of equal value in their order. by: (N,)."""
    return sorted((int(row) for row in rows), key=lambda row: (by[row], row))


FIGURES = ("round 1", "corrected", "round 2")
NUMBERS = (*FIGURES, "others")


# -- over seeds ---------------------------------------------------------------------------------------------


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of each collection, over its seeds; and of `mean`, over seeds with the mean over collections of each."""
    names = list(dict.fromkeys(row["collection"] for row in rows))
    told = {name: over_seeds([row for row in rows if row["collection"] == name]) for name in names}
    seeds = [{row["seed"] for row in rows if row["collection"] == name} for name in names]
    common = sorted(set.intersection(*seeds)) if seeds else []
    if len(names) > 1 and common:
        means = []
        for seed in common:
            of_seed = [row["untouched"] for row in rows if row["seed"] == seed]
            means.append(
                {"untouched": {name: mean_of([row.get(name) for row in of_seed]) for name in NUMBERS}}
            )
        rise = sum(one["rise"] for one in told.values()), sum(one["pairs"] for one in told.values())
        told["mean"] = over_seeds(means) | {"rise": rise[0], "pairs": rise[1]}
    return told


def over_seeds(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard error of each figure, and the paired difference with its interval."""
    values = {name: [row["untouched"].get(name) for row in rows] for name in NUMBERS}
    told: dict[str, Any] = {name: [mean_of(each), error_of(each)] for name, each in values.items()}
    for name, before in (("difference", "round 1"), ("over others", "others")):
        pairs = [
            b - a for a, b in zip(values[before], values["round 2"], strict=True) if a is not None is not b
        ]
        told[name], told[f"{name}, interval"] = mean_of(pairs), interval(pairs)
        if name == "difference":
            told |= {"rise": sum(one > 0 for one in pairs), "pairs": len(pairs)}
    return told


def mean_of(values: Sequence[float | None]) -> float | None:
    there = [one for one in values if one is not None]
    return round(float(np.mean(there)), 3) if there else None


def error_of(values: Sequence[float | None]) -> float | None:
    """Standard error of the mean."""
    there = [one for one in values if one is not None]
    return round(float(np.std(there, ddof=1) / np.sqrt(len(there))), 3) if len(there) > 1 else None


def interval(differences: Sequence[float]) -> list[float] | None:
    """Its ends, 95 %; None of fewer than two."""
    return [round(end, 2) for end in interval_of(differences)] if len(differences) > 1 else None


# -- told ---------------------------------------------------------------------------------------------------


def line(row: dict[str, Any]) -> str:
    def cells(of: str) -> str:
        return " -> ".join(f"{row[of][name]:5.1f}" for name in FIGURES)

    edits = " ".join(f"{kind} {n}" for kind, n in row["edits"].items())
    return (
        f"{row['collection']:>8} seed {row['seed']} untouched {cells('untouched')}  everything {cells('everything')}  "
        f"k {row['k'][0]} -> {row['k'][1]}  {row['corrections']} corrections ({edits}), {row['labels']} labels  "
        f"{row['seconds'][0]:.0f} + {row['seconds'][1]:.0f} s"
    )


def told_line(name: str, one: dict[str, Any]) -> str:
    figures = ", ".join(f"{figure} {spread(one[figure])}" for figure in NUMBERS)
    return (
        f"{name:>8} {figures}; round 2 - round 1: {signed(one['difference'])} "
        f"{between(one['difference, interval'])}, {one['rise']} of {one['pairs']} rise; "
        f"round 2 - others: {signed(one['over others'])} {between(one['over others, interval'])}"
    )


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """One table of all runs, for the docs."""
    head = ("collection", "images", "corrections", *NUMBERS, "round 2 - round 1", "95 % interval", "rise")
    lines = [head, ("---",) * len(head)]
    for name, one in summarise(rows).items():
        own = [row for row in rows if row["collection"] == name] or rows
        images = f"{own[0]['images']:,}" if name != "mean" else ""
        made = f"{mean_of([row['corrections'] for row in own]):.0f}"
        figures = [spread(one[figure]) for figure in NUMBERS]
        difference = signed(one["difference"]), between(one["difference, interval"])
        lines.append((name, images, made, *figures, *difference, f"{one['rise']} of {one['pairs']}"))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spread(pair: Sequence[float | None]) -> str:
    mean, error = pair
    return "-" if mean is None else f"{mean:.1f}" if error is None else f"{mean:.1f} ± {error:.1f}"


def signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"


def between(pair: Sequence[float] | None) -> str:
    return "-" if pair is None else f"({pair[0]:+.1f} to {pair[1]:+.1f})"


SETTINGS = ("backbone", "steps", "k")
KEYS = (*SETTINGS, "collections")
"""Of a record."""


# -- one run ------------------------------------------------------------------------------------------------


def collection(word: str, roots: dict[str, Path], work: Path) -> Collection:
    if word != "full":
        return find_collection(word, roots, work)
    case = find_case("full0", work)
    return Collection(word, with_truth(case.table, case.truth), len(set(case.truth)))


def rounds(of: Collection, config: DiscoverConfig, folder: Path) -> tuple[dict[str, Discovery], Corrections]:
    """Both rounds, trained or read, by the names of FIGURES, and the corrections between them."""
    table, run = dataclasses.replace(of.table, truth=None), folder / "run"
    if not last_round(run):
        discover_table(table, config, run, progress=False)
    first = Discovery.load(round_folder(run, 1))
    assert of.table.truth is not None
    made = Corrector(first, of.table.truth).correct()
    applied = apply_edits(first, made.edits)
    if applied.problems:
        raise InputError(f"The edits of {folder} do not fit its first round: {applied.problems[0]}")
    if last_round(run) < 2:
        write_text(folder / "edits.csv", edits_csv(made.edits))
        discover_table(table, config, run, progress=False, edits=folder / "edits.csv")
    if last_round(run) < 2:
        raise InputError(f"There was nothing to correct in {folder}, so that no second round was trained.")
    second = Discovery.load(round_folder(run, 2))
    return dict(zip(FIGURES, (first, applied.discovery, second), strict=True)), made


class Scorer:
    """Knows the truth of a collection."""

    def __init__(self, of: Collection) -> None:
        assert of.table.truth is not None
        self.path = [str(path) for path in of.table.path]
        self.free = ~of.table.labelled
        self.n_known, _, self.y = class_index(of.table.known, of.table.truth.astype(str))

    def score(self, found: Discovery, rows: np.ndarray) -> float:
        """All of these images, in per cent; one that is in no category is wrong. rows: (N,) bool."""
        if [str(path) for path in found.images["path"]] != self.path:
            raise InputError("The runs in --work are of images that lay elsewhere; choose another folder.")
        id = found.images["category_id"].fillna("").to_numpy(dtype=object)
        placed = rows & (id != "")
        if not placed.any():
            raise InputError("No image is left to be scored; take a larger collection.")
        index = np.unique(id[placed].astype(str), return_inverse=True)[1]
        all = clustering_accuracy(self.y[placed], index, self.n_known).all
        return round(100 * all * float(placed.sum() / rows.sum()), 3)


def measure(of: Collection, seed: int, config: DiscoverConfig, folder: Path) -> dict[str, Any]:
    """All figures of one run but `others`."""
    (found, made), judge = rounds(of, config, folder), Scorer(of)
    untouched = judge.free & ~made.touched
    last = found["round 2"].facts
    return {
        "collection": of.name,
        "seed": seed,
        "images": len(of.table),
        "unlabelled": int(judge.free.sum()),
        "untouched_images": int(untouched.sum()),
        "classes": len(np.unique(judge.y)),
        "k": [found["round 1"].facts.k, last.k],
        "edits": made.counts,
        "corrections": len(made.edits) - made.counts["rename"],
        "labels": last.confirmed_labels,
        "untouched": {name: judge.score(one, untouched) for name, one in found.items()},
        "everything": {name: judge.score(one, judge.free) for name, one in found.items()},
        "seconds": [round(sum(found[name].facts.seconds.values()), 1) for name in FIGURES[::2]],
    }


def add_others(rows: Sequence[dict[str, Any]], of: Collection, folders: dict[int, Path]) -> None:
    """To each run of a collection: All of its untouched images in round 1 with the other seeds, in the mean."""
    judge = Scorer(of)
    first = {seed: Discovery.load(round_folder(folder / "run", 1)) for seed, folder in folders.items()}
    assert of.table.truth is not None
    for row in rows:
        touched = Corrector(first[row["seed"]], of.table.truth).correct().touched
        scores = [
            judge.score(one, judge.free & ~touched) for seed, one in first.items() if seed != row["seed"]
        ]
        row["untouched"]["others"] = round(float(np.mean(scores)), 3) if scores else None


# -- the command --------------------------------------------------------------------------------------------


def read_rows(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The runs of several records of one kind; a run that several hold counts once."""
    records = [read_record(file, KEYS, "corrections.py") for file in files]
    if len({tuple(record[key] for key in SETTINGS) for record in records}) > 1:
        raise InputError(f"The records differ in {', '.join(SETTINGS)}; name those of one kind.")
    rows = [row for record in records for row in record["collections"]]
    return list({(row["collection"], row["seed"]): row for row in rows}.values())


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    given = make_parser().parse_args(words)
    if given.table:
        print(markdown(read_rows(given.table)))
        return 0
    if not given.collection:
        raise InputError("Name a collection (full, cub4, cifar4, ...), or records with --table.")
    roots = roots_of(given)
    device, rows = pick_device(given.device), []
    for word in given.collection:
        of, own, folders = collection(word, roots, given.work), [], {}
        for seed in given.seeds:
            k = "auto" if given.k == "auto" else of.k
            one = {"seed": seed, "seeds": 1, "backbone": given.backbone, "arch": given.arch, "device": device}
            config = DiscoverConfig(k=k, steps=given.steps, **one)
            made = f"{Path(given.backbone).stem}-{device}-{given.steps}-k-{given.k}"
            folders[seed] = given.work / made / f"{word}-s{seed}"
            own.append(measure(of, seed, config, folders[seed]))
            add_others(own, of, folders)
            print(line(own[-1]), flush=True)
            write(given, words, [*rows, *own])
        rows += own
    for name, told in summarise(rows).items():
        print(told_line(name, told))
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = script_parser(
        __doc__,
        roots=True,
        device="auto",
        work="runs/corrections",
        out=RESULTS / "corrections.jsonl#embedded",
    )
    parser.add_argument("collection", nargs="*", help="full, cub4, cifar4, sample1, ...")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="of training")
    parser.add_argument("--steps", type=int, default=DEMO_STEPS)
    parser.add_argument(
        "--k", choices=("auto", "told"), default="auto", help="told: as many as there are classes"
    )
    parser.add_argument("--backbone", default="embedded", help="embedded, or a .safetensors file")
    parser.add_argument("--arch", help="timm's name of the network in the file")
    parser.add_argument("--table", type=Path, nargs="+", help="print one table of these records, and end")
    return parser


def write(given: argparse.Namespace, words: Sequence[str] | None, rows: Sequence[dict[str, Any]]) -> None:
    """The record of the runs so far."""
    made = run_facts("experiments/corrections.py", nameless(words), given.device) | {
        "backbone": Path(given.backbone).name,
        "steps": given.steps,
        "k": given.k,
        "summary": summarise(rows),
        "collections": rows,
    }
    write_record(given.out, made)


def nameless(words: Sequence[str] | None) -> list[str]:
    """The words of the command without the folders of whoever ran it."""
    kept = given_words(words)
    if "--backbone" in kept:
        at = kept.index("--backbone") + 1
        kept[at] = Path(kept[at]).name
    return kept


if __name__ == "__main__":
    sys.exit(main())
