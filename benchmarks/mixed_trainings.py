"""Do trainings of two methods agree on more than as many trainings of one?

    python benchmarks/mixed_trainings.py cub4 cifar4 --cub DIR/CUB_200_2011 --cifar DIR/cifar100-200
    python benchmarks/mixed_trainings.py --table

Reads what the trainings of benchmarks/folder_methods.py have said (its --work), and trains nothing. For 1, 2, 3, 5 and
9 trainings, six times: as many of RPC, as many of UNO+, or as many of both in turn, drawn at random out of nine each.
At 9, those of one method are always the same nine.

How it came about: the rule of folder_methods.py asked for one method. That mixtures may do better was thought of after
the first six collections were trained. Eight mixtures of RPC, UNO+ and ProtoGCD were tried on the six, and again on ten
of the thirteen others, before equal turns of RPC and UNO+ were settled on. So all nineteen took part in the choice, and
none confirms it.

Rules, written before their runs, for rpc and uno on cub12 to cub17 and cifar12 to cifar17, nine in turn minus nine of
RPC, with its 95 % interval over these twelve. With 500 steps: unless it is above 0, a CPU goes back to RPC alone. With
--steps 6000: if it is above 0, the two take turns on a GPU too (discovery/plan.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from folder_methods import SEEDS, scores, together
from samples import given_words
from script import one_sentence, read_record
from study_table import interval_of
from twenty import Collection, find_collection

from holotype.errors import InputError
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


def read_said(work: Path, collection: str, method: str) -> tuple[np.ndarray, np.ndarray]:
    """(9, N) categories, and how sure each training is of them."""
    file = work / "said" / f"{collection}+{method}.npz"
    if not file.is_file():
        raise InputError(
            f"{file} is not there; train it with benchmarks/folder_methods.py --methods {method}."
        )
    with np.load(file) as kept:
        return kept["category"].astype(np.int64), kept["probability"].astype(np.float32)


def measure(of: Collection, work: Path) -> Found:
    said = [read_said(work, of.name, method) for method in METHODS]

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
    """As Markdown. rows: by collection. The last column is of those that were trained after the first six."""
    lines = [
        "| trainings | rpc | uno | in turn | in turn minus rpc | on the thirteen |",
        "|---:|---:|---:|---:|---|---|",
    ]
    later = [name for name in rows if name not in FIRST]
    for n in NUMBERS:
        one = {kind: [rows[name][str(n)].get(kind) for name in rows] for kind in (*METHODS, MIXED)}
        cells = [f"{np.mean(values):.1f}" if None not in values else "" for values in one.values()]
        away = [_away(rows, names, n) if n > 1 else "" for names in (list(rows), later)]
        lines.append(f"| {n} | {' | '.join([*cells, *away])} |")
    return "\n".join(lines)


def _away(rows: dict[str, Found], names: Sequence[str], n: int) -> str:
    pairs = [rows[name][str(n)][MIXED] - rows[name][str(n)][METHODS[0]] for name in names]
    low, high = interval_of(pairs)
    above = sum(pair > 0 for pair in pairs)
    return f"{np.mean(pairs):+.1f} ({low:.1f} to {high:.1f}), {above} of {len(pairs)}"


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("collection", nargs="*", help="cub4, cifar4, sample0, ...")
    parser.add_argument("--cub", type=Path, help="folder of CUB-200-2011")
    parser.add_argument("--cifar", type=Path, help="folder of the CIFAR-100 sample")
    parser.add_argument("--work", type=Path, default=Path("runs/folders"), help="that of folder_methods.py")
    parser.add_argument("--out", type=Path, default=RECORD, help=f"the record (default: {RECORD})")
    parser.add_argument(
        "--table", action="store_true", help="print the table of the record, and nothing else"
    )
    given = parser.parse_args(words)
    rows: dict[str, Found] = {}
    if given.out.is_file():
        rows = read_record(given.out, ["rows"], "mixed_trainings.py")["rows"]
    roots = {name: getattr(given, name) for name in ("cub", "cifar") if getattr(given, name)}
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
