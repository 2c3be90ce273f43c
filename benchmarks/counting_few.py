"""How far off is the estimate of the number of categories where one to five classes are known?

    python benchmarks/counting_few.py --root DATA --datasets cub cifar100-200 --first 100 --out FILE.json
    python benchmarks/counting_few.py --table FILE.json

Small collections (count_problems.few_known), features of the frozen embedded backbone. That log K is known to 0.3 at
best where fewer than four classes are known (cluster/class_size.py), and how far the range of the silhouette reaches
where one is (cluster/curve.py), was chosen on problems like these with numbers below 60; those from 100 on were looked
at afterwards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from count_problems import few_known
from counting import KEYS, data_parser, estimate, load
from measure import command, facts
from script import one_sentence, read_record

from holotype.errors import InputError
from holotype.machine.files import write_text

KNOWN = (1, 2, 3, 4, 5)


def table(problems: Sequence[dict[str, Any]]) -> str:
    """As Markdown, for each number of known classes."""
    lines = [
        "| known classes | n | off in the mean | bias | nothing new found | range holds truth | its width |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for known in sorted({one["known"] for one in problems}):
        some = [one for one in problems if one["known"] == known]
        off = np.array([one["estimate"] / one["k"] - 1 for one in some])
        holds = np.mean([one["low"] <= one["k"] <= one["high"] for one in some])
        width = np.median([(one["high"] / one["low"]) ** 0.5 - 1 for one in some])
        cells = (
            f"{known}",
            f"{len(some)}",
            f"{100 * np.abs(off).mean():.0f} %",
            f"{100 * off.mean():+.0f} %",
            f"{100 * np.mean([one['estimate'] <= known for one in some]):.0f} %",
            f"{100 * holds:.0f} %",
            f"± {100 * width:.0f} %",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@one_sentence
def main(words: Sequence[str] | None = None) -> int:
    parser = data_parser(__doc__)
    parser.add_argument("--features", type=Path, default=Path("runs/counting"))
    parser.add_argument(
        "--problems", type=int, default=80, help="of each data set and number of known classes"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the table of such a file")
    given = parser.parse_args(words)
    if given.table:
        print(table(read_record(given.table, KEYS, "counting_few.py")["problems"]))
        return 0
    if given.out is None:
        raise InputError("Name the file to write with --out FILE.json.")
    problems: list[dict[str, Any]] = []
    for dataset in given.datasets:
        features, truth, _ = load(dataset, given.root, "embedded", given.features)
        for known in KNOWN:
            drawn = few_known(dataset, truth, known, range(given.first, given.first + given.problems))
            problems += [estimate(features, problem, curve=False) for problem in drawn]
    print(table(problems))
    record = {
        "command": command(list(words) if words is not None else sys.argv[1:], "counting_few.py"),
        **facts(torch.device("cpu")),
        "backbone": "embedded",
        "problems": problems,
    }
    write_text(given.out, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
