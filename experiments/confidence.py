"""Can the confidence of a discovery be taken at its word? Measured against the truth, which it never saw.

    python experiments/confidence.py full0 full1 part1 part3
    python experiments/confidence.py cub5 cifar5 --cub DIR --cifar DIR

Prints a line for each collection and writes the line `embedded` of experiments/results/confidence.jsonl:
error      calibration error (ten equal bins) of the model's own score where it places images alone, and of the
           probability where the discovery has placed them
doubtful   share of the images that are marked, and share of the mistakes among them
purity     share of the categories whose true purity lies in the interval that is given for it; one category stands for
           a class, so that a second one of the same class counts as wrong (inside), or as right (inside_any)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness import (
    DEMO_STEPS,
    RESULTS,
    Case,
    Found,
    calibration_error,
    discovered,
    find_case,
    find_collection,
    is_right,
    one_sentence,
    roots_of,
    run_facts,
    script_parser,
    write_record,
)
from holotype.results.discovery import Discovery
from holotype.results.purity import estimate_purity

COLUMNS = (
    *("case", "images", "k", "classes", "all", "own_error", "error", "mean_own", "mean"),
    *("doubtful", "mistakes", "categories", "inside", "inside_any"),
)
RECORD = RESULTS / "confidence.jsonl#embedded"


def case_of(word: str, roots: dict[str, Path], work: Path) -> Case:
    """A case of the embedded sample, or twenty classes of CUB or CIFAR that nobody has counted."""
    if not word.startswith(("cub", "cifar")):
        return find_case(word, work)
    table = find_collection(word, roots, work).table
    truth, seed = np.asarray(table.truth, dtype=object), int("".join(filter(str.isdigit, word)))
    return Case(word, replace(table, truth=None), truth, "auto", seed)


def measure(found: Found, images: pd.DataFrame) -> dict[str, Any]:
    """All figures of one discovery. images: as it has written them."""
    table, category = found.case.table, numbered(images["category_id"], found.case.table.known)
    free, right = ~table.labelled, is_right(found.case, category)
    probability, doubtful = images["probability"].to_numpy(float), images["doubtful"].to_numpy(bool)
    alone, wrong = is_right(found.case, found.category), free & ~right
    inside, inside_any = [], []
    for c in np.unique(category):
        rows = category == c
        guess = estimate_purity(probability[rows], ~free[rows])
        for held, truth in (
            (inside, float((right | ~free)[rows].mean())),
            (inside_any, of_one_class(found, rows, int(c))),
        ):
            held.append(guess.low - 1e-9 <= truth <= guess.high + 1e-9)
    return {
        "case": found.case.name,
        "images": len(table),
        "labelled": int(table.labelled.sum()),
        "k": found.k,
        "classes": len(set(found.case.truth)),
        "all": float(right[free].mean()),
        "own_error": calibration_error(found.score[free], alone[free]),
        "error": calibration_error(probability[free], right[free]),
        "mean_own": float(found.score[free].mean()),
        "mean": float(probability[free].mean()),
        "doubtful": float(doubtful.mean()),
        "mistakes": float((doubtful & wrong).sum() / max(wrong.sum(), 1)),
        "categories": len(inside),
        "inside": float(np.mean(inside)),
        "inside_any": float(np.mean(inside_any)),
    }


def of_one_class(found: Found, rows: np.ndarray, category: int) -> float:
    """Share of a category's images, rows (N,) bool, that are of its class: a known one, or the largest in it."""
    truth, known = found.case.truth[rows], found.case.table.known
    if category < len(known):
        return float((truth == known[category]).mean())
    return float(np.unique(truth.astype(str), return_counts=True)[1].max() / len(truth))


def numbered(ids: Sequence[str], known: Sequence[str]) -> np.ndarray:
    """(N,) categories by number, known classes first."""
    number = {id: n for n, id in enumerate((*known, *sorted(set(ids) - set(known))))}
    return np.array([number[id] for id in ids])


def line(row: dict[str, Any]) -> str:
    return " ".join(
        f"{row[key]:.3f}".rjust(10) if isinstance(row[key], float) else str(row[key]).rjust(10)
        for key in COLUMNS
    )


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = script_parser(
        __doc__, roots=True, device="cpu", work="runs/samples", out=RESULTS / "confidence.jsonl#embedded"
    )
    parser.add_argument("case", nargs="+", help="full0, full1, ..., part0, ..., cub0, ... or cifar0, ...")
    given = parser.parse_args(words)
    roots = roots_of(given)
    print(" ".join(name.rjust(10) for name in COLUMNS))
    rows = []
    for word in given.case:
        found = discovered(case_of(word, roots, given.work), given.work, given.device)
        rows.append(measure(found, Discovery.load(given.work / "runs" / word).images))
        print(line(rows[-1]), flush=True)
    made = run_facts("experiments/confidence.py", words, given.device, backbone="embedded", steps=DEMO_STEPS)
    write_record(given.out, made | {"cases": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
