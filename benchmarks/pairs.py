"""How far is one row of a study above another, in pairs of the same seed, with its 95 % interval?

    python benchmarks/pairs.py 33-exact-pairs:rpc 33-exact-pairs:debgcd
    python benchmarks/pairs.py 37-few-known:rpc,38-few-known-confirm:rpc \\
        37-few-known:simgcd,38-few-known-confirm:simgcd
    python benchmarks/pairs.py 33-exact-pairs:rpc 26-confirm-count:rpc 33-exact-pairs:debgcd 26-confirm-count:debgcd

Two rows: the first minus the second. Four: the difference of the first two minus that of the last two. A row that was
run in several studies, other seeds in each, is named with all of them. Seeds that only some rows have are left out, and
told.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from script import one_sentence
from study_table import interval_of, name_of

from holotype.errors import InputError
from holotype.runs.record import Record
from holotype.runs.records import Records
from holotype.runs.study import pick_rows, read_study
from holotype.runs.sweep import select
from holotype.runs.tables import SCORES

TOP = Path(__file__).resolve().parents[1]
SIGNS = {2: (1, -1), 4: (1, -1, -1, 1)}
"""Of the rows, by how many there are."""
Scored = dict[int, np.ndarray]
"""Seed -> (3,) All, Old and New in per cent; NaN where there is no such image."""


def scores_of(name: str, folder: Path, records: Sequence[Record]) -> Scored:
    """name: STUDY:ROW, or several with commas between them. folder: of the studies."""
    found: Scored = {}
    for one in name.split(","):
        study_name, _, row_name = one.partition(":")
        path = folder / f"{study_name}.yaml"
        if not row_name or not path.is_file():
            raise InputError(f"{one} names no row; write STUDY:ROW, with STUDY.yaml in {folder}.")
        study = read_study(path)
        (row,) = pick_rows(study, [row_name])
        if len(row.datasets) > 1:
            raise InputError(f"{one} was run on several data sets, and pairs are of one.")
        for record in select(study, row, name_of(row.datasets[0]), records):
            values = [getattr(record.scores, score) for score in SCORES]
            of_seed = np.array([math.nan if value is None else 100 * value for value in values])
            seed = record.identity.seed
            if not np.array_equal(found.setdefault(seed, of_seed), of_seed, equal_nan=True):
                raise InputError(f"{name} has two records of seed {seed}; name one study.")
    return found


def differences(rows: Sequence[Scored]) -> tuple[list[int], np.ndarray]:
    """The seeds that all rows have, and (n, 3) their differences."""
    seeds = sorted(set.intersection(*(set(row) for row in rows)))
    if len(seeds) < 2:
        raise InputError(f"These rows share {len(seeds)} seeds; an interval needs two.")
    signs = SIGNS[len(rows)]
    return seeds, np.array(
        [sum(sign * row[seed] for sign, row in zip(signs, rows, strict=True)) for seed in seeds]
    )


def told(seeds: Sequence[int], pairs: np.ndarray, left_out: int) -> str:
    cells = []
    for score, column in zip(SCORES, pairs.T, strict=True):
        if not np.isnan(column).any():
            low, high = interval_of(column.tolist())
            cells.append(f"{score.title()} {column.mean():+.1f} ({low:.1f} to {high:.1f})")
    rest = f"; {left_out} other seeds are not in every row" if left_out else ""
    return f"{', '.join(cells)}\n{len(seeds)} seeds: {' '.join(map(str, seeds))}{rest}"


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="+", metavar="STUDY:ROW")
    parser.add_argument(
        "--experiments", type=Path, default=TOP / "experiments", help="folder of studies and of their results"
    )
    given = parser.parse_args(words)
    if len(given.rows) not in SIGNS:
        raise InputError(f"Name two rows or four, not {len(given.rows)}.")
    records = list(Records(given.experiments / "results").by_key.values())
    rows = [scores_of(name, given.experiments, records) for name in given.rows]
    seeds, pairs = differences(rows)
    print(told(seeds, pairs, len(set().union(*rows)) - len(seeds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
