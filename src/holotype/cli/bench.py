"""`holotype bench`: what to run, as flags or as a study file."""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.cli.words import Parser, speaks
from holotype.errors import InputError
from holotype.runs.study import ELSEWHERE, Study, StudyRow, pick_rows, read_study

if TYPE_CHECKING:
    from holotype.runs.experiment import Experiment

Flags = list[tuple[str, str | None]]
"""Flags of `holotype train` with their values; None for one that takes none."""


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    _check_given(given)
    studies = read_studies(given)
    from holotype.runs.results import write_table

    if not given.table_only:
        _run(given, studies)
    if speaks():
        for study in studies:
            print(write_table(_place(given.results, "results", study, studies)), end="")
    return 0


def read_studies(given: argparse.Namespace) -> list[Study | None]:
    """Those that are named; [None] where flags say what is run."""
    studies = {study.name: study for study in (read_study(Path(file)) for file in given.study)}
    if len(studies) < len(given.study):
        raise InputError("Two studies of --study have the same name, and so have their results; rename one.")
    return list(studies.values()) or [None]


def _place(given: str | None, default: str, study: Study | None, studies: Sequence[Study | None]) -> Path:
    """The folder of a study: below `default` one of its name, and below a given one if there are several."""
    if study and (given is None or len(studies) > 1):
        return Path(given or default, study.name)
    return Path(given or default)


def _check_given(given: argparse.Namespace) -> None:
    """Flags that do not go together, or lack another."""
    for name in ("methods", "datasets"):
        if given.study and getattr(given, name):
            raise InputError(f"--{name} cannot be given with --study, whose file names them; leave out one.")
        if not (given.study or given.table_only or getattr(given, name)):
            raise InputError(
                f"holotype bench needs --{name}, separated by commas (or --study FILE, or --table-only)."
            )
    if given.rows is not None and len(given.study) != 1:
        raise InputError("--rows picks rows of one study; name its file alone with --study.")
    if given.parallel < 1:
        raise InputError(f"--parallel must be at least 1, not {given.parallel}.")
    if given.reuse and not Path(given.reuse).is_dir():
        raise InputError(f"--reuse {given.reuse} is not a folder; name the one in which results lie.")


def _run(given: argparse.Namespace, studies: Sequence[Study | None]) -> None:
    made = [experiments_of(given, study) for study in studies]
    for study in studies:
        if study:
            _say(f"{study.name}: {study.question}")
            for row in _rows_of_study(study, given):
                _say(f"  {row.name}{': ' if row.asks else ''}{row.asks}")
    from holotype.runs.bench import plan_runs, run_planned
    from holotype.runs.prepared import Shelf
    from holotype.runs.results import find_results

    shelf, planned = Shelf(), []
    elsewhere = find_results(Path(given.reuse)) if given.reuse else {}
    for study, experiments in zip(studies, made, strict=True):
        results = _place(given.results, "results", study, studies)
        out = _place(given.out, "runs", study, studies)
        planned += plan_runs(experiments, results, out, shelf, elsewhere)
    run_planned(planned, _say, shelf, parallel=given.parallel)


def _say(text: str) -> None:
    """On stderr, so that stdout holds the table alone."""
    if speaks():
        print(text, file=sys.stderr)


# -- flags --------------------------------------------------------------------------------------------


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype bench",
        description="Run methods on data sets with several seeds, or the rows of a study file, one result file each, "
        "and collect them in a table. Runs whose result is there are not run again.",
    )
    _add_what_flags(parser)
    parser.add_argument(
        "--parallel",
        metavar="R",
        type=int,
        default=1,
        help="train R runs at once, where they share data set, backbone, device, precision and store (default: 1)",
    )
    parser.add_argument(
        "--results",
        metavar="DIR",
        help="where results and table go (default: results, or results/NAME for the study NAME.yaml; of several "
        "studies DIR/NAME each)",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="where run folders go (default: runs, or runs/NAME for the study NAME.yaml; of several studies "
        "DIR/NAME each)",
    )
    parser.add_argument(
        "--reuse",
        metavar="DIR",
        help="copy results of the same settings and seed from this folder and those below it instead of running "
        "them again, as in --reuse results",
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    parser.add_argument(
        "--table-only", action="store_true", help="build the table from the results that are there"
    )
    return parser


def _add_what_flags(parser: Parser) -> None:
    """Those that say what is run."""
    parser.add_argument(
        "--methods", metavar="M,M@PRESET", help="methods, separated by commas, each with its preset or not"
    )
    parser.add_argument("--datasets", metavar="D,D", help="data sets, separated by commas")
    parser.add_argument(
        "--study",
        metavar="FILE",
        nargs="+",
        default=[],
        help="YAML file that names rows (a method with settings each), data sets and seeds, instead of --methods and "
        "--datasets; docs/protocol.md shows one. Of several files, a run that two of them name is made once",
    )
    parser.add_argument("--rows", metavar="R,R", help="rows of the study, separated by commas (default: all)")
    parser.add_argument(
        "--seeds", metavar="S,S", help="seeds, separated by commas (default: those of the study, or 0)"
    )
    parser.add_argument("--root", metavar="DIR", help="folder in which the data sets lie")
    parser.add_argument(
        "--set",
        metavar="[WHERE:]SETTING=VALUE",
        action="append",
        default=[],
        help="a setting of holotype train, on top of the study's, for all runs or for those of a METHOD, a "
        "METHOD@PRESET or a row of the study; repeatable, and the last one counts",
    )
    parser.add_argument(
        "--cache-views",
        metavar="M+S",
        help="train on a token cache of M weak and S strong views of each image, as in 16+8; such runs are never "
        "averaged with exact ones (default: that of the study, or off, exact mode)",
    )


# -- from flags to experiments ------------------------------------------------------------------------


def make_experiments(given: argparse.Namespace) -> list[Experiment]:
    """All that the flags ask for, study by study."""
    return [experiment for study in read_studies(given) for experiment in experiments_of(given, study)]


def experiments_of(given: argparse.Namespace, study: Study | None) -> list[Experiment]:
    """Every row, or method, on each of its data sets with each of its seeds, settings checked."""
    rows = _rows_of_study(study, given) if study else _rows_of_flags(given)
    cache_views = given.cache_views or (study.cache_views if study else "off")
    changes = _changes(given.set, rows, study)
    running: Flags = [("--cache_views", cache_views)]
    running += [("--root", given.root)] if given.root else []
    running += [("--no_progress", None)] if given.no_progress else []
    experiments = []
    for dataset in dict.fromkeys(dataset for row in rows for dataset in row.datasets):
        for row in rows:
            if dataset in row.datasets:
                flags: Flags = [(f"--{key}", as_word(value)) for key, value in row.settings.items()]
                flags += changes[row.name] + running
                try:
                    experiments += _experiments_of(row, dataset, flags, label=study is not None)
                except InputError as error:
                    if study is None:
                        raise
                    past = f" The study belongs to commit {study.commit}." if study.commit else ""
                    raise InputError(f"Row {row.name} of {study.file}: {error}{past}") from error
    return experiments


def _experiments_of(row: StudyRow, dataset: str, flags: Flags, *, label: bool) -> list[Experiment]:
    """A row on one data set, seed by seed. label: whether the row's name is to stand in tables."""
    from holotype.data.benchmarks import check_dataset
    from holotype.runs.settings import resolve

    check_dataset(dataset)
    overrides = {flag.removeprefix("--"): value for flag, value in flags if value is not None}
    overrides |= {"progress": "false"} if ("--no_progress", None) in flags else {}
    first = resolve(row.method, dataset, row.preset, overrides | {"seed": row.seeds[0]})
    first.label = row.name if label else None
    return [replace(copy.deepcopy(first), seed=seed) for seed in row.seeds]


def _rows_of_flags(given: argparse.Namespace) -> list[StudyRow]:
    """Every method as a row; without a study, it has no settings but those of --set."""
    datasets, seeds = tuple(_list(given.datasets)), _seeds(given.seeds or "0")
    rows = []
    for word in _list(given.methods):
        method, _, preset = word.partition("@")
        rows.append(StudyRow(word, method, preset or "default", "", {}, datasets, seeds))
    return rows


def _rows_of_study(study: Study, given: argparse.Namespace) -> list[StudyRow]:
    """The rows that are asked for, with the seeds that are asked for."""
    rows = list(study.rows.values()) if given.rows is None else pick_rows(study, _list(given.rows))
    if not rows:
        raise InputError(f"--rows names no row; the rows of {study.name} are {', '.join(study.rows)}.")
    return rows if given.seeds is None else [replace(row, seeds=_seeds(given.seeds)) for row in rows]


def as_word(value: Any) -> str:
    """A value of a YAML file as it would be written on the command line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _changes(entries: Sequence[str], rows: Sequence[StudyRow], study: Study | None) -> dict[str, Flags]:
    """The --set entries that concern each row, as flags of `holotype train`; later ones win."""
    flags: dict[str, Flags] = {row.name: [] for row in rows}
    names = list(study.rows) if study else []
    for entry in entries:
        scope, key, value = _take_apart(entry, names)
        if key in ELSEWHERE:
            raise InputError(f"--set {entry} is not possible; holotype bench --help lists the flag for it.")
        concerned = [row for row in rows if _concerns(scope, row, names)]
        if not concerned and study:
            raise InputError(
                f"--set {entry} names {scope!r}, which is neither a row that is run nor the method of one; the "
                f"rows are {', '.join(row.name for row in rows)}."
            )
        if not concerned:
            raise InputError(f"--set {entry} names the method {scope!r}, which is not among --methods.")
        for row in concerned:
            flags[row.name].append((f"--{key}", value))
    return flags


def _take_apart(entry: str, names: Sequence[str]) -> tuple[str, str, str]:
    """Scope ("" for all), setting and value of a --set entry. names: of rows, which may hold an = themselves."""
    head, colon, rest = entry.partition(":")
    scope, setting = (head, rest) if colon and head in names else ("", entry)
    name, equals, value = setting.partition("=")
    if not scope:
        scope, _, name = name.rpartition(":")
    if not equals or not name:
        raise InputError(f"--set {entry} is not of the form SETTING=VALUE or WHERE:SETTING=VALUE.")
    return scope, name.replace("-", "_"), value


def _concerns(scope: str, row: StudyRow, names: Sequence[str]) -> bool:
    """Where a row is called like a method, its name means the row alone."""
    if scope in names:
        return scope == row.name
    return scope in ("", row.method, f"{row.method}@{row.preset}")


def _list(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _seeds(text: str) -> tuple[int, ...]:
    seeds = []
    for word in _list(text):
        try:
            seeds.append(int(word))
        except ValueError:
            raise InputError(f"--seeds must be whole numbers separated by commas, not {word!r}.") from None
    if not seeds:
        raise InputError("--seeds names no seed; write whole numbers separated by commas.")
    return tuple(dict.fromkeys(seeds))
