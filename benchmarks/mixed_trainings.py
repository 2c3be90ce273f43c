"""Do trainings of two methods agree on more than as many trainings of one?

    python benchmarks/mixed_trainings.py cub4 cifar4 --cub DIR/CUB_200_2011 --cifar DIR/cifar100-200
    python benchmarks/mixed_trainings.py --table

Reads what the trainings of benchmarks/folder_methods.py have said (its --work), and trains nothing. For 1, 2, 3, 5 and
9 trainings, six times: as many of RPC, as many of UNO+, or as many of both in turn, drawn at random out of nine each.
At 9, those of one method are always the same nine.

How it came about: the rule of folder_methods.py asked for one method. That mixtures may do better was thought of after
the first six collections were trained. Eight mixtures of RPC, UNO+ and ProtoGCD were tried on the six, and again on ten
of the thirteen others, before equal turns of RPC and UNO+ were settled on. So all nineteen took part in the choice. The
record of those that did not is experiments/results/folders/confirmed.json (--out).

Rules, written before their runs, for rpc and uno, nine in turn minus nine of RPC, with its 95 % interval over
collections. With 500 steps, on cub12 to cub17 and cifar12 to cifar17: unless it is above 0, a CPU goes back to RPC
alone. With --steps 6000, on cub12 to cub14 and cifar12 to cifar14 (twelve would take too long): if it is above 0, the
two take turns on a GPU too (discovery/plan.py); that was not run to its end. Of these six there are 18 seeds of each
method with 500 steps (27 were planned). The claim of stability.py, for nine in turn: over divisions of them into
groups, drawn at random, the standard deviation of All (the root of the mean variance) is at most half of that of one
training of RPC, and the mean no lower (votes.py --divisions).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from folder_methods import SEEDS, read_said, scores, together
from samples import given_words
from script import add_record, add_roots, one_sentence, read_rows, roots_of
from study_table import interval_of
from twenty import Collection, find_collection

from holotype.machine.files import write_text
from holotype.runs.provenance import commit

RECORD = Path("experiments/results/folders/mixed.json")
METHODS = ("rpc", "uno")
MIXED = "mixed"
NUMBERS = (1, 2, 3, 5, 9)
DRAWS = 6
FIRST = ("cub4", "cub5", "cub6", "cifar4", "cifar5", "cifar6")
Found = dict[str, dict[str, float]]
"""Trainings -> method, or `mixed` -> All in the mean over the draws."""


def measure(of: Collection, work: Path) -> Found:
    said = [[part[:SEEDS] for part in read_said(work, of.name, method)[:2]] for method in METHODS]

    def all_of(*picks: np.ndarray) -> float:
        """picks: of each method, which trainings take part."""
        some = [(one[0][rows], one[1][rows]) for one, rows in zip(said, picks, strict=True)]
        category, probability = (np.concatenate(parts) for parts in zip(*some, strict=True))
        return scores(of, together(of, category, probability))["all"]

    none, found = np.arange(0), {}
    for n in NUMBERS:
        random = np.random.default_rng(n)
        draws = [(random.permutation(SEEDS), random.permutation(SEEDS)) for _ in range(DRAWS)]
        kinds = {
            METHODS[0]: [all_of(first[:n], none) for first, _ in draws],
            METHODS[1]: [all_of(none, second[:n]) for _, second in draws],
        }
        if n > 1:
            kinds[MIXED] = [all_of(first[: (n + 1) // 2], second[: n // 2]) for first, second in draws]
        found[str(n)] = {kind: round(float(np.mean(values)), 2) for kind, values in kinds.items()}
    return found


def table(rows: dict[str, Found]) -> str:
    """As Markdown. rows: by collection. Where the first six are among them, a last column is of the others."""
    later = [name for name in rows if name not in FIRST]
    groups = {"in turn minus rpc": list(rows)} | (
        {"on the thirteen": later} if len(later) < len(rows) else {}
    )
    lines = [
        f"| trainings | rpc | uno | in turn | {' | '.join(groups)} |",
        f"|---:|---:|---:|---:|{'---|' * len(groups)}",
    ]
    for n in NUMBERS:
        one = {kind: [rows[name][str(n)].get(kind) for name in rows] for kind in (*METHODS, MIXED)}
        cells = [f"{np.mean(values):.1f}" if None not in values else "" for values in one.values()]
        away = [in_words(_pairs(rows, names, n)) if n > 1 else "" for names in groups.values()]
        lines.append(f"| {n} | {' | '.join([*cells, *away])} |")
    return "\n".join(lines)


def _pairs(rows: dict[str, Found], names: Sequence[str], n: int) -> list[float]:
    return [rows[name][str(n)][MIXED] - rows[name][str(n)][METHODS[0]] for name in names]


def in_words(pairs: Sequence[float]) -> str:
    """Differences: their mean, its interval, and how many are above 0."""
    low, high = interval_of(pairs)
    above = sum(pair > 0 for pair in pairs)
    return f"{np.mean(pairs):+.1f} ({low:.1f} to {high:.1f}), {above} of {len(pairs)}"


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collection", nargs="*", help="cub4, cifar4, sample0, ...")
    add_roots(parser)
    parser.add_argument("--work", type=Path, default=Path("runs/folders"), help="that of folder_methods.py")
    add_record(parser, RECORD)
    given = parser.parse_args(words)
    rows: dict[str, Found] = read_rows(given.out, "mixed_trainings.py")
    roots = roots_of(given)
    for word in () if given.table else given.collection:
        rows[word] = measure(find_collection(word, roots, given.work), given.work)
        record = {
            "command": " ".join(["python", "benchmarks/mixed_trainings.py", *given_words(words)]),
            "commit": commit(),
            "methods": METHODS,
            "draws": DRAWS,
            "rows": rows,
        }
        write_text(given.out, json.dumps(record, indent=1) + "\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
