"""Sweeps: methods x data sets x seeds, or the rows of a study; each run once.

A study selects its records by what its rows resolve to, not by names: one that several studies ask for exists once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.data.csv import unescape_formula
from holotype.data.datasets.registry import check_dataset
from holotype.data.load import collection_name
from holotype.errors import InputError
from holotype.runs.build import drop_unusable_cache
from holotype.runs.experiment import Experiment
from holotype.runs.identity import identity_matches, identity_outline
from holotype.runs.parallel import ScheduledRun, plan_runs, run_scheduled
from holotype.runs.record import Key, Record, Records
from holotype.runs.resolve import resolve
from holotype.runs.resources import ResourceCache
from holotype.runs.study import KEYS_OF_ROWS, Study, StudyRow, build_study, read_study, select_rows_by_name
from holotype.runs.tables import COLUMN_TEXTS, Row, make_row, summarise, table_csv, table_markdown
from holotype.utils.atomic import write_text
from holotype.utils.text import suggest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SettingChange:
    """A setting on top of what a study says."""

    setting: str
    value: Any
    where: str = ""
    """A row, a METHOD or a METHOD@PRESET; "" for all rows."""

    def __str__(self) -> str:
        return f"{self.where}{':' if self.where else ''}{self.setting}={self.value}"


@dataclass(frozen=True)
class SweepRequest:
    """Which part of a study is run, and how."""

    rows: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    changes: Sequence[SettingChange] = ()
    cache_views: str | None = None
    root: str | None = None
    progress: bool = True


def flags_study(methods: Sequence[str], datasets: Sequence[str], seeds: Sequence[int]) -> Study:
    """Methods (each with its preset, or not, as in rpc@reading) on data sets, as a study without a file."""
    rows = {}
    for word in methods:
        method, _, preset = word.partition("@")
        rows[word] = StudyRow(word, method, preset or "default", "", {}, tuple(datasets), tuple(seeds))
    own: dict[str, tuple[str, ...]] = dict.fromkeys(rows, ())
    return Study(Path("bench"), "", "off", None, rows, None, own)


def selected_rows(study: Study, ask: SweepRequest) -> list[StudyRow]:
    """The rows that are asked for, with the seeds that are asked for."""
    rows = list(study.rows.values()) if ask.rows is None else select_rows_by_name(study, ask.rows)
    if not rows:
        raise InputError(f"--rows names no row; the rows of {study.name} are {', '.join(study.rows)}.")
    if ask.seeds is None:
        return rows
    seeds = tuple(dict.fromkeys(ask.seeds))  # one that stands twice is no second run
    if not seeds:
        raise InputError("The list of seeds is empty; give whole numbers, or leave it out.")
    return [replace(row, seeds=seeds) for row in rows]


def experiments(study: Study, ask: SweepRequest, *, label: bool = True) -> list[Experiment]:
    """Every row on each of its data sets with each of its seeds, settings checked.

    label: whether the row's name is to stand in tables.
    """
    rows = [row for row in selected_rows(study, ask) if can_run(row, study, ask)]
    changes = changes_by_row(ask.changes, rows, study if label else None)
    made = []
    for dataset in dict.fromkeys(dataset for row in rows for dataset in row.datasets):
        for row in rows:
            if dataset in row.datasets:
                for seed in row.seeds:
                    one = resolve_row(study, replace(row, seeds=(seed,)), dataset, ask, changes[row.name])
                    made.append(replace(one, label=row.name if label else None))
    return made


def can_run(row: StudyRow, study: Study, ask: SweepRequest) -> bool:
    """A row that names its records belongs to another version; it is passed over, and refused if it was asked for."""
    if row.record is not None and ask.rows is not None:
        at = f" (it belongs to commit {study.commit})" if study.commit else ""
        raise InputError(
            f"Row {row.name} of {study.file} cannot be run by this version{at}: its settings or its revision are gone; "
            "its records are kept."
        )
    return row.record is None


def resolve_row(
    study: Study,
    row: StudyRow,
    dataset: str,
    ask: SweepRequest | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Experiment:
    """A row on one data set, with its first seed."""
    ask = ask or SweepRequest()
    overrides = {**row.settings, **(changes or {}), "cache_views": ask.cache_views or study.cache_views}
    overrides |= {"seed": row.seeds[0]} | ({} if ask.progress else {"progress": False})
    overrides |= {"root": ask.root} if ask.root else {}
    try:
        check_dataset(dataset)
        return drop_unusable_cache(resolve(row.method, dataset, row.preset, overrides))
    except InputError as error:
        if not study.question:  # made of flags: there is no row to name
            raise
        past = (
            f" The study belongs to commit {study.commit}: check that out to run it." if study.commit else ""
        )
        raise InputError(f"Row {row.name} of {study.file}: {error}{past}") from error


def changes_by_row(
    changes: Sequence[SettingChange], rows: Sequence[StudyRow], study: Study | None
) -> dict[str, dict[str, Any]]:
    """The changes that concern each row; later ones win."""
    found: dict[str, dict[str, Any]] = {row.name: {} for row in rows}
    names = list(study.rows) if study else []
    for change in changes:
        if change.setting in KEYS_OF_ROWS:
            raise InputError(f"--set {change} is not possible; holotype bench --help lists the flag for it.")
        concerned = [row for row in rows if _applies_to(change.where, row, names)]
        if not concerned:
            near = suggest(change.where, [word for row in rows for word in (row.name, row.method)])
            rule = f"is neither a row that is run nor the method of one; the rows are {', '.join(found)}"
            rule = rule if study else "is not among --methods"
            raise InputError(f"--set {change} names {change.where!r}{near}, which {rule}.")
        for row in concerned:
            found[row.name][change.setting] = change.value
    return found


def _applies_to(where: str, row: StudyRow, names: Sequence[str]) -> bool:
    """Where a row is called like a method, its name means the row alone."""
    if where in names:
        return where == row.name
    return where in ("", row.method, f"{row.method}@{row.preset}")


# -- records --------------------------------------------------------------------------------------------


def select_records(
    study: Study,
    row: StudyRow,
    dataset: str,
    records: Iterable[Record],
    ask: SweepRequest | None = None,
    changes: Mapping[str, Any] | None = None,
) -> list[Record]:
    """The records of a row on one data set (as records call it), by seed; conflicting ones are refused."""
    if row.record is not None:
        found = [r for r in records if r.identity.hash == row.record and r.identity.data["name"] == dataset]
    else:
        named = next(name for name in row.datasets if dataset in (name, collection_name(name)))
        told = identity_outline(resolve_row(study, row, named, ask, changes))
        found = [record for record in records if identity_matches(record.identity, told)]
    found = sorted(
        (r for r in found if r.identity.seed in row.seeds), key=lambda record: record.identity.seed
    )
    other = next((r.identity for r in found if r.identity.hash != found[0].identity.hash), None)
    if other is not None:
        first = found[0].identity
        keys = first.parts | other.parts
        apart = (key for key in keys if key != "seed" and first.parts.get(key) != other.parts.get(key))
        raise InputError(
            f"The row {row.name} of {study.name} has records of two kinds, {first.name} and {other.name}, which "
            f"differ in {next(apart)}; move those of one kind away."
        )
    return found


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep."""

    rows: list[Row]
    """One for each configuration and data set, in the order in which they were asked for."""
    records: list[Record]

    def to_markdown(self) -> str:
        """The table for people."""
        return table_markdown(self.rows)

    def to_csv(self) -> str:
        """The table for programs, numbers unrounded."""
        return table_csv(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """The same as a frame of pandas."""
        import io

        import pandas as pd

        frame = pd.read_csv(
            io.StringIO(self.to_csv()),
            dtype=dict.fromkeys(COLUMN_TEXTS, str),
            keep_default_na=False,
            na_values=[""],
        )
        return frame.assign(
            **{name: frame[name].map(unescape_formula, na_action="ignore") for name in COLUMN_TEXTS}
        )


def bench(
    study: Path | str | Mapping[str, Any] | None = None,
    *,
    methods: Sequence[str] = (),
    datasets: Sequence[str | os.PathLike[str]] = (),
    seeds: Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    rows: Sequence[str] | None = None,
    root: Path | str | None = None,
    cache_views: str | None = None,
    parallel: int = 1,
    results: Path | str | None = None,
    out: Path | str | None = None,
    progress: bool = True,
) -> Sweep:
    """Run methods on data sets with several seeds, or the rows of a study; a run that is recorded is not run again.

    study: a study file, or what would stand in one. Without it: methods (each with its preset or not, as in
    rpc@reading), datasets, seeds. settings: dotted settings of `holotype train` for all rows, or for one with
    ROW:SETTING. results: folder of records (default: results, or results beside the study file); out: of run folders.
    If runs fail, the others are still made and recorded; then RunsFailed, an InputError, names the failed ones.
    """
    made, label = _study(study, methods, datasets, seeds)
    changes = []
    for key, value in (settings or {}).items():
        where, _, setting = key.rpartition(":")
        changes.append(SettingChange(setting.replace("-", "_"), value, where))
    ask = SweepRequest(rows, seeds, changes, cache_views, str(root) if root else None, progress)
    records = Records(results or default_results(made, label))
    shelf = ResourceCache()
    planned = plan_runs(
        experiments(made, ask, label=label), records, Path(out or default_out(made, label)), shelf
    )
    return plan_sweep(planned, run_scheduled(planned, lambda line: None, shelf, parallel=parallel))


def _study(
    study: Path | str | Mapping[str, Any] | None,
    methods: Sequence[str],
    datasets: Sequence[str | os.PathLike[str]],
    seeds: Sequence[int] | None,
) -> tuple[Study, bool]:
    """The study, and whether it has names of its own for its rows."""
    for name, given in {"methods": methods, "datasets": datasets, "seeds": seeds or ()}.items():
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InputError(f"bench takes a list of {name}, not {given!r}; put it into brackets.")
    if study is None:
        if not methods or not datasets:
            raise InputError("bench needs methods and datasets, or a study.")
        return flags_study(methods, [os.fspath(one) for one in datasets], tuple(seeds or (0,))), False
    if methods or datasets:
        raise InputError("bench takes a study, or methods and datasets; leave out one of them.")
    return build_study(study, "study") if isinstance(study, Mapping) else read_study(Path(study)), True


def default_results(study: Study, label: bool) -> Path:
    """Beside the study file; `results` where there is none."""
    return study.file.parent / "results" if label and study.file.suffix else Path("results")


def default_out(study: Study, label: bool) -> Path:
    return Path("runs") / study.name if label else Path("runs")


# -- tables ---------------------------------------------------------------------------------------------


def plan_sweep(planned: Sequence[ScheduledRun], found: Mapping[Key, Record]) -> Sweep:
    """The rows of planned runs. found: their records, by the keys of the plan; those that failed have none."""
    named: dict[tuple[str, str], list[Record]] = {}
    for run in sorted((run for run in planned if run.key in found), key=lambda run: run.asked):
        record = found[run.key]
        named.setdefault((run.experiment.variant, record.identity.hash), []).append(record)
    rows = [make_row(records, variant) for (variant, _), records in named.items()]
    return Sweep(rows, [record for records in named.values() for record in records])


def write_tables(folder: Path, name: str, sweep: Sweep) -> str:
    """NAME.md and NAME.csv in a folder of results; returns the Markdown."""
    write_text(folder / f"{name}.md", sweep.to_markdown())
    write_text(folder / f"{name}.csv", sweep.to_csv())
    return sweep.to_markdown()


def all_records(records: Records) -> Sweep:
    """All records of a folder of results."""
    found = list(records.by_key.values())
    if not found:
        raise InputError(
            f"There is no record in {records.folder}; run holotype bench first, or name its folder with --results."
        )
    return Sweep(summarise(found), found)
