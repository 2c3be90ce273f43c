"""`holotype bench`: what to run, as flags or as a study file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holotype.cli.common import CodeOptions, Dir, File, Parser, ProgressOptions, echo, is_rank0_output
from holotype.config.types import Count
from holotype.errors import InputError

if TYPE_CHECKING:
    from holotype.runs.experiment import Experiment
    from holotype.runs.study import SettingChange, Study, SweepRequest


@dataclass
class BenchOptions(CodeOptions, ProgressOptions):
    """Run methods on data sets with several seeds, or the rows of a study file, one result file each, and collect them
    in a table. Runs that already have a result are not run again."""

    methods: Annotated[str, "M,M@PRESET"] | None = None
    """Methods, separated by commas, each with its preset or not."""
    datasets: Annotated[str, "D,D"] | None = None
    """Data sets, separated by commas."""
    study: tuple[File, ...] = ()
    """YAML file that names rows (a method with settings each), data sets and seeds, instead of --methods and
    --datasets; docs/protocol.md shows one. Of several files, a run that two of them name is made once."""
    rows: Annotated[str, "R,R"] | None = None
    """Rows of the study, separated by commas (default: all)."""
    seeds: Annotated[str, "S,S"] | None = None
    """Seeds, separated by commas (default: those of the study, or 0)."""
    root: Annotated[str, "DIR"] | None = None
    """Folder in which the data sets lie."""
    set: list[Annotated[str, "WHERE:SETTING=VALUE"]] = field(default_factory=list)
    """A setting of holotype train, on top of the study's, for all runs or for those of a METHOD, a METHOD@PRESET or a
    row of the study; repeatable, and the last one counts."""
    cache_views: Annotated[str, "M+S"] | None = None
    """Train on a token cache of M weak and S strong views of each image, as in 16+8; such runs are never averaged with
    exact ones (default: that of the study, or off, exact mode)."""
    parallel: Annotated[Count, "R"] = 1
    """Train R runs at once, where they share data set, backbone, device, precision and store."""
    results: Dir | None = None
    """Where records and table go (default: results, or results beside the study file)."""
    out: Dir | None = None
    """Where run folders go (default: runs, or runs/NAME for the study NAME.yaml; of several studies DIR/NAME each)."""
    reuse: Dir | None = None
    """Take records of the same settings, revision and seed from this folder of results as well, instead of running them
    again; a record that contradicts one that is there is refused."""
    table_only: bool = False
    """Build the table from the existing results."""

    def __post_init__(self) -> None:
        """Raise InputError for flags that do not go together, or lack another."""
        for name, value in (("methods", self.methods), ("datasets", self.datasets)):
            if self.study and value:
                raise InputError(
                    f"--{name} cannot be given with --study, whose file names them; leave out one."
                )
            if not (self.study or self.table_only or value):
                raise InputError(
                    f"holotype bench needs --{name}, separated by commas (or --study FILE, or --table-only)."
                )
        if self.rows is not None and len(self.study) != 1:
            raise InputError("--rows picks rows of one study; name its file alone with --study.")
        if self.reuse and not self.reuse.is_dir():
            raise InputError(f"--reuse {self.reuse} is not a folder; name the one in which results lie.")


def make_parser() -> Parser:
    return Parser("bench", BenchOptions)


def command(argv: Sequence[str]) -> int:
    options: BenchOptions = make_parser().parse_args(argv)
    studies = read_studies(options)
    from holotype.runs.record import Records
    from holotype.runs.sweep import all_records, sweep_of, write_tables

    if not studies:
        results = options.results or Path("results")
        echo(write_tables(results, "table", all_records(Records(results))), end="")
        return 0
    if options.table_only:
        for study in studies:
            echo(recorded_text(study, options), end="")
        return 0
    made, failure = run_bench(options, studies)
    for study, planned, found in made:
        sweep = sweep_of(planned, found)
        if is_rank0_output() and sweep.rows:
            folder, name = result_places(study, options)[0], study.name if options.study else "table"
            echo(write_tables(folder, name, sweep), end="", flush=True)
    if failure:
        raise failure
    return 0


def read_studies(options: BenchOptions) -> list[Study]:
    """Those that are named, or the one that flags describe; none where only a table of everything is asked for."""
    from holotype.runs.study import read_study

    studies = {study.name: study for study in (read_study(file) for file in options.study)}
    if len(studies) < len(options.study):
        raise InputError("Two studies of --study have the same name, and so have their tables; rename one.")
    if options.methods:
        from holotype.runs.study import flags_study

        return [
            flags_study(_list(options.methods), _list(options.datasets or ""), _seeds(options.seeds or "0"))
        ]
    return list(studies.values())


def result_places(study: Study, options: BenchOptions) -> tuple[Path, Path]:
    """The folders of records and of runs."""
    from holotype.runs.sweep import default_out, default_results

    out = options.out / study.name if options.out and len(options.study) > 1 else options.out
    return options.results or default_results(study), out or default_out(study)


def sweep_request(options: BenchOptions, study: Study) -> SweepRequest:
    """Which part of a study is run, and how."""
    from holotype.runs.study import SweepRequest

    return SweepRequest(
        rows=_list(options.rows) if options.rows is not None else None,
        seeds=_seeds(options.seeds) if options.seeds is not None else None,
        changes=[read_change(entry, list(study.rows) if options.study else []) for entry in options.set],
        cache_views=options.cache_views,
        root=options.root,
        progress=not options.no_progress,
    )


def experiments_of(study: Study, options: BenchOptions) -> list[Experiment]:
    """All that is to be run of a study."""
    from holotype.runs.study import experiments

    return experiments(study, sweep_request(options, study))


def warn_of_exact_mode(exact: Sequence[Experiment], options: BenchOptions) -> None:
    """Name methods that cannot use the token cache that was asked for by number; or, where nobody has said `off`, say
    that what could use one trains faster on a CPU."""
    from holotype.runs.resources import views_of
    from holotype.utils.device import pick_device

    if options.cache_views is None:
        if any(pick_device(e.device) == "cpu" and views_of(e) is not None for e in exact):
            _log_run(
                "Exact mode is slow on a CPU; --cache-views 4+2 trains many times faster, as an approximation."
            )
    elif options.cache_views not in ("auto", "off") and exact:
        names = ", ".join(dict.fromkeys(e.method_name for e in exact))
        _log_run(f"{names} cannot use cached views, since all stages take images: exact mode.")


def run_bench(options: BenchOptions, studies: Sequence[Study]):  # type: ignore[no-untyped-def]
    """Plan all studies, make the runs, and return each study with its plan and its records; and which runs failed."""
    from holotype.runs.record import Records
    from holotype.runs.resources import ResourceCache
    from holotype.runs.study import selected_rows
    from holotype.runs.sweep import RunsFailed, plan_runs, run_scheduled

    made = {study.name: experiments_of(study, options) for study in studies}
    for study in studies:
        if study.question:
            _log_run(f"{study.name}: {study.question}")
            for row in selected_rows(study, sweep_request(options, study)):
                _log_run(f"  {row.name}{': ' if row.asks else ''}{row.asks}")
    shelf, plans = ResourceCache(), {}
    stores: dict[Path, Records] = {}
    elsewhere = Records(options.reuse) if options.reuse else None
    for study in studies:
        folder, out = result_places(study, options)
        records = stores.setdefault(folder.resolve(), Records(folder))
        plans[study.name] = plan_runs(made[study.name], records, out, shelf, elsewhere)
    warn_of_exact_mode([e for runs in made.values() for e in runs if e.cache_views == "off"], options)
    every = [run for planned in plans.values() for run in planned]
    failure = None
    try:
        found = run_scheduled(every, _log_run, shelf, parallel=options.parallel)
    except RunsFailed as error:
        found, failure = error.found, error
    return [(study, plans[study.name], found) for study in studies], failure


def recorded_text(study: Study, options: BenchOptions) -> str:
    """The table of a study from the records that are there."""
    from holotype.data.load import collection_name
    from holotype.runs.record import Records
    from holotype.runs.study import changes_by_row, rows_by_dataset, select_records, selected_rows
    from holotype.runs.sweep import Sweep, write_tables
    from holotype.runs.tables import make_row

    folder, ask = result_places(study, options)[0], sweep_request(options, study)
    every, rows, records = list(Records(folder).by_key.values()), [], []
    chosen = selected_rows(study, ask)
    changes = changes_by_row(ask.changes, chosen, study)
    for dataset, row in rows_by_dataset(chosen):
        if found := select_records(study, row, collection_name(dataset), every, ask, changes[row.name]):
            rows.append(make_row(found, row.name if options.study else row.preset))
            records += found
    if not rows:
        raise InputError(
            f"There is no record of {study.name} in {folder}; run it, or name its folder with --results."
        )
    return write_tables(folder, study.name if options.study else "table", Sweep(rows, records))


def read_change(entry: str, names: Sequence[str]) -> SettingChange:
    """An entry of --set. names: of rows, which may hold an = themselves."""
    from holotype.runs.study import SettingChange

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
    try:
        seeds = tuple(dict.fromkeys(map(int, _list(text))))
    except ValueError:
        seeds = ()
    if not seeds:
        raise InputError(f"--seeds must be whole numbers separated by commas, not {text!r}.")
    return seeds


def _log_run(text: str) -> None:
    """On stderr, so that stdout holds the table alone."""
    if is_rank0_output():
        echo(text, error=True)
