"""Sweeps: methods x data sets x seeds, or the rows of a study; every run once, each with a record of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holotype.data.csv import unescape_formula
from holotype.errors import InputError
from holotype.runs.planned import Planned, plan_runs, run_planned
from holotype.runs.prepared import Shelf
from holotype.runs.record import Record
from holotype.runs.records import Key, Records
from holotype.runs.study import Study, make_study, read_study
from holotype.runs.sweep import Ask, Change, experiments, flags_study
from holotype.runs.tables import TEXTS, Row, make_row, summarise, to_csv, to_markdown
from holotype.utils.atomic import write_text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep."""

    rows: list[Row]
    """One for each configuration and data set, in the order in which they were asked for."""
    records: list[Record]

    def to_markdown(self) -> str:
        """The table for people."""
        return to_markdown(self.rows)

    def to_csv(self) -> str:
        """The table for programs, numbers unrounded."""
        return to_csv(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """The same as a frame of pandas."""
        import io

        import pandas as pd

        frame = pd.read_csv(
            io.StringIO(self.to_csv()), dtype=dict.fromkeys(TEXTS, str), keep_default_na=False, na_values=[""]
        )
        return frame.assign(**{name: frame[name].map(unescape_formula, na_action="ignore") for name in TEXTS})


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
    changes = [_change(key, value) for key, value in (settings or {}).items()]
    ask = Ask(rows, seeds, changes, cache_views, str(root) if root else None, progress)
    records = Records(results or default_results(made, label))
    shelf = Shelf()
    planned = plan_runs(
        experiments(made, ask, label=label), records, Path(out or default_out(made, label)), shelf
    )
    return sweep_of(planned, run_planned(planned, lambda line: None, shelf, parallel=parallel))


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
    return (
        (make_study(study, "study"), True) if isinstance(study, Mapping) else (read_study(Path(study)), True)
    )


def _change(key: str, value: Any) -> Change:
    """key: SETTING, or WHERE:SETTING."""
    where, _, setting = key.rpartition(":")
    return Change(setting.replace("-", "_"), value, where)


def default_results(study: Study, label: bool) -> Path:
    """Beside the study file; `results` where there is none."""
    return study.file.parent / "results" if label and study.file.suffix else Path("results")


def default_out(study: Study, label: bool) -> Path:
    return Path("runs") / study.name if label else Path("runs")


# -- tables ---------------------------------------------------------------------------------------------


def sweep_of(planned: Sequence[Planned], found: Mapping[Key, Record]) -> Sweep:
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


def everything(records: Records) -> Sweep:
    """All records of a folder of results."""
    found = list(records.by_key.values())
    if not found:
        raise InputError(
            f"There is no record in {records.folder}; run holotype bench first, or name its folder with --results."
        )
    return Sweep(summarise(found), found)
