"""`holotype demo`: a run on the embedded sample that needs no data and no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holotype.cli.words import Parser, add_running_flags, of_kind, say, speaks
from holotype.config.types import Seed


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.cli.discover import summary
    from holotype.config.schema import DiscoverConfig
    from holotype.discovery.demo import STEPS, run_demo, table

    out = Path(given.out)
    if speaks():
        say("Fashion-MNIST sample: 1,000 images, 10 categories of which 5 are known, 250 images labelled.")
        say(f"Written as a folder of PNG files, {out / 'images'}, with {out / 'labels.csv'}.", flush=True)
    config = DiscoverConfig(steps=STEPS, backbone="embedded", seed=given.seed, seeds=1, device=given.device)
    shown = run_demo(out, config, progress=not given.no_progress)
    if speaks():
        k, record = shown.discovery.facts.k, shown.scores["rpc"]
        say(summary(shown.discovery, out / "run"))
        say(
            f"\nAgainst the truth that training never saw, both with {k} categories:\n\n{table(shown.scores)}\n\n"
            f"per cent of the {record['n']} unlabelled images, one global assignment of categories to classes.\n"
            "Old: images of the 5 known classes. New: images of the 5 that had to be discovered.\n"
            "kmeans: on the features that the discovery began with.\n\n"
            f"Look at it in a browser: {shown.report}"
        )
    return 0


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype demo",
        description="Write the embedded Fashion-MNIST sample as a folder of images, discover its categories with the "
        "embedded backbone, score them against the hidden truth, and show k-means on the same features beside it.",
    )
    parser.add_argument("--out", metavar="DIR", default="runs/demo", help="run folder (default: runs/demo)")
    parser.add_argument(
        "--seed",
        metavar="SEED",
        type=of_kind("--seed", Seed),
        default=0,
        help="seed of everything random, at least 0 and below 2**63 (default: 0)",
    )
    add_running_flags(parser)
    return parser
