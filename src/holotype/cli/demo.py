"""`holotype demo`: a run on the embedded sample that needs no data and no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holotype.cli.words import Parser, speaks


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.demo import run_demo, table

    if speaks():
        print("Fashion-MNIST sample: 1,000 images, 10 categories of which 5 are known, 250 images labelled.")
    records = run_demo(Path(given.out), {"progress": not given.no_progress, "device": given.device})
    if speaks():
        print(
            f"\n{table(records)}\n\n"
            f"per cent of the {records[0]['n']} unlabelled images, one global assignment of categories to classes.\n"
            "Old: images of the 5 known classes. New: images of the 5 that had to be discovered.\n"
            f"Every image with its category: {Path(given.out) / 'rpc' / 'assignments.csv'}\n"
            f"{records[0]['caveat']}"
        )
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype demo",
        description="Train RPC on the embedded Fashion-MNIST sample with the embedded backbone, score it against the "
        "hidden truth, and show k-means on the same features beside it.",
    )
    parser.add_argument("--out", metavar="DIR", default="runs/demo", help="run folder (default: runs/demo)")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda", "mps"),
        default="auto",
        help="where to compute (default: auto)",
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    return parser
