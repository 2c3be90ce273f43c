"""`holotype bench`: what to run, as flags or as a study file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holotype.cli.common import Parser, add_code_flag, echo, is_rank0_output, typed_argument
from holotype.config.types import Count
from holotype.errors import InputError
from holotype.runs.study import Study, read_study

if TYPE_CHECKING:
    from holotype.runs.experiment import Experiment
    from holotype.runs.sweep import SettingChange, SweepRequest


def command(argv: Sequence[str]) -> int:
    given = make_parser().parse_args(argv)
    check_flags(given)
    studies = read_studies(given)
    from holotype.runs.record import Records
    from holotype.runs.sweep import all_records, plan_sweep, write_tables

    if not studies:
        table = all_records(Records(given.results or "results"))
        echo(write_tables(Path(given.results or "results"), "table", table), end="")
        return 0
    if given.table_only:
        for study in studies:
            echo(recorded_text(study, given), end="")
        return 0
    made, failure = run_bench(given, studies)
    for study, planned, found in made:
        sweep = plan_sweep(planned, found)
        if is_rank0_output() and sweep.rows:
            folder, name = result_places(study, given)[0], study.name if given.study else "table"
            echo(write_tables(folder, name, sweep), end="", flush=True)
    if failure:
        raise failure
    return 0


def read_studies(given: argparse.Namespace) -> list[Study]:
    """Those that are named, or the one that flags describe; none where only a table of everything is asked for."""
    studies = {study.name: study for study in (read_study(Path(file)) for file in given.study)}
    if len(studies) < len(given.study):
        raise InputError("Two studies of --study have the same name, and so have their tables; rename one.")
    if given.methods:
        from holotype.runs.sweep import flags_study

        return [flags_study(_list(given.methods), _list(given.datasets), _seeds(given.seeds or "0"))]
    return list(studies.values())


def result_places(study: Study, given: argparse.Namespace) -> tuple[Path, Path]:
    """The folders of records and of runs."""
    from holotype.runs.sweep import default_out, default_results

    label = bool(given.study)
    out = Path(given.out, study.name) if given.out and len(given.study) > 1 else given.out
    return Path(given.results or default_results(study, label)), Path(out or default_out(study, label))


def check_flags(given: argparse.Namespace) -> None:
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


def sweep_request(given: argparse.Namespace, study: Study) -> SweepRequest:
    """Which part of a study is run, and how."""
    from holotype.runs.sweep import SweepRequest

    return SweepRequest(
        rows=_list(given.rows) if given.rows is not None else None,
        seeds=_seeds(given.seeds) if given.seeds is not None else None,
        changes=[read_change(entry, list(study.rows) if given.study else []) for entry in given.set],
        cache_views=given.cache_views,
        root=given.root,
        progress=not given.no_progress,
    )


def experiments_of(study: Study, given: argparse.Namespace) -> list[Experiment]:
    """All that is to be run of a study."""
    from holotype.runs.sweep import experiments

    return experiments(study, sweep_request(given, study), label=bool(given.study))


def run_bench(given: argparse.Namespace, studies: Sequence[Study]):  # type: ignore[no-untyped-def]
    """Plan all studies, make the runs, and return each study with its plan and its records; and which runs failed."""
    from holotype.runs.parallel import RunsFailed, plan_runs, run_scheduled
    from holotype.runs.record import Records
    from holotype.runs.resources import ResourceCache
    from holotype.runs.sweep import selected_rows

    made = {study.name: experiments_of(study, given) for study in studies}
    for study in studies:
        if study.question:
            _log_run(f"{study.name}: {study.question}")
            for row in selected_rows(study, sweep_request(given, study)):
                _log_run(f"  {row.name}{': ' if row.asks else ''}{row.asks}")
    if without := exact_despite_cache(made, given):
        _log_run(f"{', '.join(without)} cannot use cached views, since all stages take images: exact mode.")
    shelf, plans = ResourceCache(), {}
    stores: dict[Path, Records] = {}
    elsewhere = Records(given.reuse) if given.reuse else None
    for study in studies:
        folder, out = result_places(study, given)
        records = stores.setdefault(folder.resolve(), Records(folder))
        plans[study.name] = plan_runs(made[study.name], records, out, shelf, elsewhere)
    if warns_slow(made, given):
        _log_run(
            "Exact mode is slow on a CPU; --cache-views 4+2 trains many times faster, as an approximation."
        )
    every = [run for planned in plans.values() for run in planned]
    failure = None
    try:
        found = run_scheduled(every, _log_run, shelf, parallel=given.parallel)
    except RunsFailed as error:
        found, failure = error.found, error
    return [(study, plans[study.name], found) for study in studies], failure


def exact_despite_cache(made: Mapping[str, Sequence[Experiment]], given: argparse.Namespace) -> list[str]:
    """Methods that run without the token cache that was asked for by number."""
    exact = [e for runs in made.values() for e in runs if e.cache_views == "off"]
    asked = given.cache_views not in (None, "auto", "off")
    return list(dict.fromkeys(e.method_name for e in exact)) if asked else []


def warns_slow(made: Mapping[str, Sequence[Experiment]], given: argparse.Namespace) -> bool:
    """Whether something trains in exact mode on a CPU that could use cached views, and nobody has said `off`."""
    from holotype.runs.build import views_of
    from holotype.utils.device import pick_device

    exact = [e for runs in made.values() for e in runs if e.cache_views == "off"]
    return given.cache_views is None and any(
        pick_device(e.device) == "cpu" and views_of(e) is not None for e in exact
    )


def recorded_text(study: Study, given: argparse.Namespace) -> str:
    """The table of a study from the records that are there."""
    from holotype.data.load import collection_name
    from holotype.runs.record import Records
    from holotype.runs.sweep import Sweep, changes_by_row, select_records, selected_rows, write_tables
    from holotype.runs.tables import make_row

    folder, ask = result_places(study, given)[0], sweep_request(given, study)
    every, rows, records = list(Records(folder).by_key.values()), [], []
    chosen = selected_rows(study, ask)
    changes = changes_by_row(ask.changes, chosen, study if given.study else None)
    for dataset in dict.fromkeys(dataset for row in chosen for dataset in row.datasets):
        for row in (row for row in chosen if dataset in row.datasets):
            name = collection_name(dataset)
            if found := select_records(study, row, name, every, ask, changes[row.name]):
                rows.append(make_row(found, row.name if given.study else row.preset))
                records += found
    if not rows:
        raise InputError(
            f"There is no record of {study.name} in {folder}; run it, or name its folder with --results."
        )
    return write_tables(folder, study.name if given.study else "table", Sweep(rows, records))


def read_change(entry: str, names: Sequence[str]) -> SettingChange:
    """An entry of --set. names: of rows, which may hold an = themselves."""
    from holotype.runs.sweep import SettingChange

    head, colon, rest = entry.partition(":")
    where, setting = (head, rest) if colon and head in names else ("", entry)
    name, equals, value = setting.partition("=")
    if not where:
        where, _, name = name.rpartition(":")
    if not equals or not name:
        raise InputError(f"--set {entry} is not of the form SETTING=VALUE or WHERE:SETTING=VALUE.")
    return SettingChange(name.replace("-", "_"), value, where)


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


def _log_run(text: str) -> None:
    """On stderr, so that stdout holds the table alone."""
    if is_rank0_output():
        echo(text, error=True)


# -- flags --------------------------------------------------------------------------------------------


def make_parser() -> Parser:
    parser = Parser(
        prog="holotype bench",
        description="Run methods on data sets with several seeds, or the rows of a study file, one result file each, "
        "and collect them in a table. Runs that already have a result are not run again.",
    )
    _add_what_flags(parser)
    parser.add_argument(
        "--parallel",
        metavar="R",
        type=typed_argument("--parallel", Count),
        default=1,
        help="train R runs at once, at least 1, where they share data set, backbone, device, precision and store "
        "(default: 1)",
    )
    parser.add_argument(
        "--results",
        metavar="DIR",
        help="where records and table go (default: results, or results beside the study file)",
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
        help="take records of the same settings, revision and seed from this folder of results as well, instead of "
        "running them again; a record that contradicts one that is there is refused",
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    add_code_flag(parser)
    parser.add_argument("--table-only", action="store_true", help="build the table from the existing results")
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
