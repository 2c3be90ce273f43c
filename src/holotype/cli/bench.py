"""`holotype bench`: what to run, as flags or as a study file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holotype.cli.common import echo, is_rank0_output
from holotype.cli.options import BenchOptions
from holotype.data.load import collection_name
from holotype.errors import InputError
from holotype.runs import sweep
from holotype.runs.experiment import Experiment
from holotype.runs.record import Records
from holotype.runs.resources import ResourceCache
from holotype.runs.study import (
    SettingChange,
    Study,
    SweepRequest,
    changes_by_row,
    experiments,
    flags_study,
    read_study,
    rows_by_dataset,
    select_records,
    selected_rows,
    settings_grid,
)
from holotype.runs.tables import make_row


@dataclass
class PlannedStudy:
    """A study, what the flags ask of it, and where its results go."""

    study: Study
    request: SweepRequest
    results: Path
    out: Path
    labelled: bool
    """Whether it is a file, whose rows have names of their own."""

    @property
    def table(self) -> str:
        """Name of its tables."""
        return self.study.name if self.labelled else "table"

    def experiments(self) -> list[Experiment]:
        """Return all that is to be run."""
        return experiments(self.study, self.request)


def bench_command(options: BenchOptions) -> None:
    planned = plan_studies(options)
    if not planned:
        results = options.results or Path("results")
        echo(sweep.write_tables(results, "table", sweep.all_records(Records(results))), end="")
    elif options.table_only:
        for plan in planned:
            echo(recorded_text(plan), end="")
    else:
        run_studies(planned, options)


def plan_studies(options: BenchOptions) -> list[PlannedStudy]:
    """Return the studies that are named, or the one that flags describe; none for a table of all records."""
    studies, label = [read_study(file) for file in options.study], bool(options.study)
    if len({study.name for study in studies}) < len(studies):
        raise InputError("Two studies of --study have the same name, and so have their tables; rename one.")
    seeds = None if options.seeds is None else _seeds(options.seeds)
    if options.methods:
        studies = [flags_study(_list(options.methods), _list(options.datasets or ""), seeds or (0,))]
    planned = []
    for study in studies:
        rows = None if options.rows is None else _list(options.rows)
        changes = [read_change(entry, list(study.rows) if label else []) for entry in options.set]
        views, root = options.cache_views, options.root
        request = SweepRequest(rows, seeds, changes, views, root, options.progress, options.log)
        out = options.out / study.name if options.out and len(studies) > 1 else options.out
        results = options.results or sweep.default_results(study)
        planned.append(PlannedStudy(study, request, results, out or sweep.default_out(study), label))
    return planned


def run_studies(planned: Sequence[PlannedStudy], options: BenchOptions) -> None:
    """Make the runs of all studies and print their tables; raise RunsFailed where runs failed."""
    say = partial(echo, error=True)  # stdout holds the table alone
    made = [plan.experiments() for plan in planned]
    for plan in planned:
        if plan.study.question:
            say(f"{plan.study.name}: {plan.study.question}")
            for row in selected_rows(plan.study, plan.request):
                say(f"  {row.name}{': ' if row.asks else ''}{row.asks}")
    shelf, scheduled = ResourceCache(), []
    stores: dict[Path, Records] = {}
    elsewhere = Records(options.reuse) if options.reuse else None
    for plan, runs in zip(planned, made, strict=True):
        records = stores.setdefault(plan.results.resolve(), Records(plan.results))
        scheduled.append(sweep.plan_runs(runs, records, plan.out, shelf, elsewhere))
    exact = {e.method_name: None for runs in made for e in runs if e.cache_views == "off"}
    if exact and options.cache_views not in (None, "auto", "off"):
        say(f"{', '.join(exact)} cannot use cached views, since all stages take images: exact mode.")
    every, failure = [run for runs in scheduled for run in runs], None
    try:
        found = sweep.run_scheduled(every, say, shelf, parallel=options.parallel)
    except sweep.RunsFailed as error:
        found, failure = error.found, error
    for plan, own in zip(planned, scheduled, strict=True):
        table = sweep.sweep_of(own, found)
        if is_rank0_output() and table.rows:
            echo(sweep.write_tables(plan.results, plan.table, table), end="")
    if failure:
        raise failure


def recorded_text(plan: PlannedStudy) -> str:
    """Return the table of a study from the records that are there."""
    study, every = plan.study, list(Records(plan.results).by_key.values())
    rows, records, chosen = [], [], selected_rows(study, plan.request)
    changes = changes_by_row(plan.request.changes, chosen, study)
    for dataset, row in rows_by_dataset(chosen):
        name = collection_name(dataset)
        for point in settings_grid(row, changes[row.name]):
            if found := select_records(study, row, name, every, plan.request, point):
                rows.append(make_row(found, row.name if plan.labelled else row.preset))
                records += found
    if not rows:
        missing = f"There is no record of {study.name} in {plan.results}"
        raise InputError(f"{missing}; run it, or name its folder with --results.")
    return sweep.write_tables(plan.results, plan.table, sweep.Sweep(rows, records))


def read_change(entry: str, names: Sequence[str]) -> SettingChange:
    """Parse an entry of --set. names: of rows, which may hold an = themselves."""
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
