"""`holotype bench`: what to run, as flags."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.words import Parser, speaks
from holotype.errors import InputError

if TYPE_CHECKING:
    from holotype.experiment import Experiment

FIXED = ("method_name", "dataset", "preset", "seed", "root", "out", "cache_views")
"""Settings that have a flag of their own here."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    from holotype.results import write_table

    results = Path(given.results)
    if not given.table_only:
        _run(given, results)
    if speaks():
        print(write_table(results), end="")
    return 0


def _run(given: argparse.Namespace, results: Path) -> None:
    for name in ("methods", "datasets"):
        if not getattr(given, name):
            raise InputError(f"holotype bench needs --{name}, separated by commas (or --table-only).")
    if given.parallel < 1:
        raise InputError(f"--parallel must be at least 1, not {given.parallel}.")
    from holotype.bench import plan_runs, run_planned
    from holotype.prepared import Shelf

    shelf = Shelf()
    planned = plan_runs(make_experiments(given), results, Path(given.out), shelf)
    run_planned(planned, results, _say, shelf, parallel=given.parallel)


def _say(text: str) -> None:
    """On stderr, so that stdout holds the table alone."""
    if speaks():
        print(text, file=sys.stderr)


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype bench",
        description="Run methods on data sets with several seeds, one result file each, and collect them in "
        "a table. Runs whose result is there are not run again.",
    )
    parser.add_argument(
        "--methods", metavar="M,M@PRESET", help="methods, separated by commas, each with its preset or not"
    )
    parser.add_argument("--datasets", metavar="D,D", help="data sets, separated by commas")
    parser.add_argument("--seeds", metavar="S,S", default="0", help="seeds, separated by commas (default: 0)")
    parser.add_argument("--root", metavar="DIR", help="folder in which the data sets lie")
    parser.add_argument(
        "--set",
        metavar="[METHOD:]SETTING=VALUE",
        action="append",
        default=[],
        help="a setting of holotype train, for all methods or for one (METHOD or METHOD@PRESET); repeatable",
    )
    parser.add_argument(
        "--cache-views",
        metavar="M+S",
        default="off",
        help="train on a token cache of M weak and S strong views of each image, as in 16+8; such runs are never "
        "averaged with exact ones (default: off, exact mode)",
    )
    parser.add_argument(
        "--parallel",
        metavar="R",
        type=int,
        default=1,
        help="train R runs at once, where they share data set, backbone, device, precision and store (default: 1)",
    )
    parser.add_argument(
        "--results", metavar="DIR", default="results", help="where results and table go (default: results)"
    )
    parser.add_argument("--out", metavar="DIR", default="runs", help="where run folders go (default: runs)")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    parser.add_argument(
        "--table-only", action="store_true", help="build the table from the results that are there"
    )
    return parser


def make_experiments(given: argparse.Namespace) -> list[Experiment]:
    """Every method on every data set with every seed, settings checked."""
    from holotype.cli.settings import Request, Words, check_dataset, resolve

    methods, datasets = _list(given.methods), _list(given.datasets)
    seeds = [_seed(word) for word in _list(given.seeds)]
    flags = {method: _flags_of(method, given.set, methods) for method in methods}
    experiments = []
    for dataset in datasets:
        check_dataset(dataset)
        for method in methods:
            name, _, preset = method.partition("@")
            for seed in seeds:
                words = [*flags[method], ("--seed", str(seed)), ("--cache_views", given.cache_views)]
                words += [("--root", given.root)] if given.root else []
                words += [("--no_progress", None)] if given.no_progress else []
                experiments.append(resolve(Request(name, dataset, preset or "default", [], Words([], words))))
    return experiments


def _flags_of(method: str, settings: Sequence[str], methods: Sequence[str]) -> list[tuple[str, str | None]]:
    """The --set entries that concern a method, as flags of `holotype train`; later ones win."""
    flags: list[tuple[str, str | None]] = []
    for entry in settings:
        name, equals, value = entry.partition("=")
        scope, _, key = name.rpartition(":")
        if not equals or not key:
            raise InputError(f"--set {entry} is not of the form SETTING=VALUE or METHOD:SETTING=VALUE.")
        key = key.replace("-", "_")
        if key in FIXED:
            raise InputError(f"--set {entry} is not possible; holotype bench --help lists the flag for it.")
        if scope and scope not in methods and scope not in {m.partition("@")[0] for m in methods}:
            raise InputError(f"--set {entry} names the method {scope!r}, which is not among --methods.")
        if scope in ("", method, method.partition("@")[0]):
            flags.append((f"--{key}", value))
    return flags


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _seed(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise InputError(f"--seeds must be whole numbers separated by commas, not {word!r}.") from None
