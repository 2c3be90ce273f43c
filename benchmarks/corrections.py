"""Are corrections worth their while? A round, 60 to 100 edits, a second round: All of images that nobody touched.

    python benchmarks/corrections.py full cub4 cifar4 --cub DIR/CUB_200_2011 --cifar DIR/cifar100-200
    python benchmarks/corrections.py --table experiments/results/corrections/*.json

`full` is the whole embedded sample as `holotype demo` has it, cub4 and the like are those of twenty.py. Round 1 is a
discovery like any other (discover_table, one training, k estimated). A played corrector (corrector.py) makes edits.csv;
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
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from corrections_table import FIGURES, line, markdown, summarise, told_line
from corrector import Corrections, Corrector
from samples import find_case, given_words
from script import add_roots, one_sentence, read_record, roots_of
from twenty import Collection, find_collection, with_truth

from holotype.categories.corrections import apply_edits
from holotype.categories.edits import to_csv
from holotype.categories.found import Discovery
from holotype.cluster.evaluate import class_index, clustering_accuracy
from holotype.discovery.config import DiscoverConfig
from holotype.discovery.demo import STEPS
from holotype.discovery.rounds import last_round, round_folder
from holotype.discovery.workflow import discover_table
from holotype.errors import InputError
from holotype.machine.device import Compute, pick_device
from holotype.machine.files import write_text
from holotype.runs.provenance import commit, hardware

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
        write_text(folder / "edits.csv", to_csv(made.edits))
        discover_table(table, config, run, progress=False, edits=folder / "edits.csv")
    if last_round(run) < 2:
        raise InputError(f"There was nothing to correct in {folder}, so that no second round was trained.")
    second = Discovery.load(round_folder(run, 2))
    return dict(zip(FIGURES, (first, applied.discovery, second), strict=True)), made


class Judge:
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
    (found, made), judge = rounds(of, config, folder), Judge(of)
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
    judge = Judge(of)
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collection", nargs="*", help="full, cub4, cifar4, sample1, ...")
    add_roots(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="of training")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument(
        "--k", choices=("auto", "told"), default="auto", help="told: as many as there are classes"
    )
    parser.add_argument("--backbone", default="embedded", help="embedded, or a .safetensors file")
    parser.add_argument("--arch", help="timm's name of the network in the file")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--work", type=Path, default=Path("runs/corrections"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("experiments/results/corrections/embedded.json"))
    parser.add_argument("--table", type=Path, nargs="+", help="print one table of these records, and end")
    return parser


def write(given: argparse.Namespace, words: Sequence[str] | None, rows: Sequence[dict[str, Any]]) -> None:
    """The record of the runs so far."""
    made = {
        "command": " ".join(["python", "benchmarks/corrections.py", *nameless(words)]),
        "commit": commit(),
        "hardware": hardware(Compute.on(given.device).device),
        "backbone": Path(given.backbone).name,
        "steps": given.steps,
        "k": given.k,
        "summary": summarise(rows),
        "collections": rows,
    }
    write_text(given.out, json.dumps(made, indent=1) + "\n")


def nameless(words: Sequence[str] | None) -> list[str]:
    """The words of the command without the folders of whoever ran it."""
    kept = given_words(words)
    if "--backbone" in kept:
        at = kept.index("--backbone") + 1
        kept[at] = Path(kept[at]).name
    return kept


if __name__ == "__main__":
    sys.exit(main())
