"""Sweeps: methods x data sets x seeds, or the rows of a study; each run once, several at a time in one process.

Runs that train at once share the images, the frozen trunk and the token cache (resources.py) and take turns step by
step (training/interleave.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holotype.data.arrays import dataset_path
from holotype.errors import InputError, Stopped
from holotype.methods import Method, method_name
from holotype.runs.experiment import Experiment, check_settings, stages_of
from holotype.runs.identity import identity_of
from holotype.runs.record import Key, Record, Records, check_agree
from holotype.runs.resources import ResourceCache, check_fits, sharing_key
from holotype.runs.run import Run, begin_run, closing_callbacks, finish_run, own_folder, run_experiment
from holotype.runs.study import SettingChange, Study, SweepRequest, experiments, flags_study, read_study
from holotype.runs.tables import (
    Row,
    make_row,
    row_values,
    setting_columns,
    summarise,
    table_csv,
    table_markdown,
)
from holotype.training.callbacks import tracker_names
from holotype.training.interleave import train_in_turns
from holotype.utils.atomic import write_text
from holotype.utils.distributed import rank
from holotype.utils.heartbeat import update_heartbeat

if TYPE_CHECKING:
    import pandas as pd

Log = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep."""

    rows: list[Row]
    """One for each configuration and data set, in the order in which they were asked for."""
    records: list[Record]
    older: tuple[str, ...] = ()
    """Methods of records that are left out, since their revision is an older one."""

    def to_markdown(self) -> str:
        """Return the table for people."""
        return table_markdown(self.rows, self.older)

    def to_csv(self) -> str:
        """Return the table for programs, numbers unrounded."""
        return table_csv(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """Return the same as a frame of pandas."""
        import pandas as pd

        settings = setting_columns(self.rows)
        return pd.DataFrame([row_values(row, settings) for row in self.rows])


def bench(
    study: Path | str | Mapping[str, Any] | None = None,
    *,
    methods: Sequence[str | type[Method] | tuple[type[Method], str]] = (),
    datasets: Sequence[Any] = (),
    seeds: Sequence[int] | None = None,
    settings: Mapping[str, Any] | None = None,
    rows: Sequence[str] | None = None,
    root: Path | str | None = None,
    cache_views: str | None = None,
    parallel: int = 1,
    results: Path | str | None = None,
    out: Path | str | None = None,
    progress: bool = True,
    log: str | None = None,
) -> Sweep:
    """Run methods on data sets with several seeds, or the rows of a study; a run that is recorded is not run again.

    Args:
        study: A study file, or what would stand in one. Without it: methods, datasets, seeds.
        methods: Names, each with its preset or not, as in rpc@reading; classes, as Mine or (Mine, preset).
        datasets: Names, paths, or data sets in memory, as `holotype.train` takes them.
        settings: Dotted settings of `holotype train` for all rows, or for one with ROW:SETTING.
        results: Folder of records (default: results, or results beside the study file).
        out: Folder of run folders.
        log: Trackers of every run, as in tensorboard,wandb.

    Raises:
        RunsFailed: Some runs failed; the others were made and recorded. It is an InputError.
    """
    for name, given in {"methods": methods, "datasets": datasets, "seeds": seeds or ()}.items():
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InputError(f"bench takes a list of {name}, not {given!r}; put it into brackets.")
    settings = check_settings(settings)
    if (study is not None) == bool(methods or datasets) or bool(methods) != bool(datasets):
        raise InputError("bench needs a study, or methods and datasets; give one of the two.")
    if study is None:
        pairs = [one if isinstance(one, tuple) else (one, "") for one in methods]
        if odd := [pair for pair in pairs if len(pair) != 2 or not isinstance(pair[1], str)]:
            raise InputError(f"{odd[0]!r} is no method with its preset; write it as (Mine, 'preset').")
        names = [f"{method_name(kind)}{'@' * bool(preset)}{preset}" for kind, preset in pairs]
        places = [dataset_path(one) for one in datasets]
        plan = flags_study(names, places, tuple(seeds or (0,)))
    else:
        plan = read_study(study)
    changes = []
    for key, value in settings.items():
        where, _, setting = key.rpartition(":")
        changes.append(SettingChange(setting, value, where))
    ask = SweepRequest(rows, seeds, changes, cache_views, str(root) if root else None, progress, log)
    records, shelf = Records(results or default_results(plan)), ResourceCache()
    planned = plan_runs(experiments(plan, ask), records, Path(out or default_out(plan)), shelf)
    return sweep_of(planned, run_scheduled(planned, lambda line: None, shelf, parallel=parallel))


def default_results(study: Study) -> Path:
    """Return the folder beside the study file; `results` where there is none."""
    return study.file.parent / "results" if study.file.suffix else Path("results")


def default_out(study: Study) -> Path:
    return Path("runs") / study.name if study.question else Path("runs")


@dataclass(frozen=True)
class ScheduledRun:
    """A run to be made, or one that is done."""

    experiment: Experiment
    key: Key
    """Hash and seed: equal for runs that are one, whatever they are called."""
    name: str
    """Of its run folder, and in lines."""
    records: Records
    """Where its record belongs."""
    done: Record | None
    asked: int = 0
    """Its place among the runs as they were asked for, which tables keep."""


class RunsFailed(InputError):
    """Some runs of a sweep failed; the others were made all the same."""

    def __init__(self, sentence: str, found: dict[Key, Record]) -> None:
        """found: the records of those that did not fail, by the keys of the plan."""
        super().__init__(sentence)
        self.found = found


def plan_runs(
    runs: Sequence[Experiment],
    records: Records,
    out: Path,
    shelf: ResourceCache,
    elsewhere: Records | None = None,
) -> list[ScheduledRun]:
    """Find out before anything is trained that all inputs are there, and which runs are done. Writes nothing.

    A run is done when `records`, or those `elsewhere`, hold one of its identity. The others get run folders in `out`.
    Runs that can share data stand together.
    """
    planned: list[ScheduledRun] = []
    first: dict[Key, ScheduledRun] = {}
    asked = {id(experiment): number for number, experiment in enumerate(runs)}
    for experiment in (one for group in run_groups(runs, sharing_key) for one in group):
        tracker_names(experiment.log)
        ready = shelf.get(experiment)
        identity = identity_of(experiment, ready)
        key = (identity.hash, identity.seed)
        method = experiment.method_name.removeprefix("__main__:").replace(":", ".").replace("/", "-")
        name = f"{ready.data.table.name}-{method}-{experiment.variant}-s{key[1]}-{key[0][:8]}"
        experiment.out = str(out / name)
        mine, theirs = records.by_key.get(key), elsewhere.by_key.get(key) if elsewhere else None
        check_agree(mine, theirs, f"The record of {name} in {records.folder}")
        if not (mine or theirs):
            check_fits(experiment, ready.data, ready.backbone)
        run = ScheduledRun(experiment, key, name, records, mine or theirs, asked[id(experiment)])
        same = first.setdefault(key, run)
        if same.name != name:  # the second row would be a copy of the first
            one, two = same.experiment.label or same.name, experiment.label or name
            raise InputError(f"{one} and {two} are the same experiment with seed {key[1]}; leave one out.")
        planned.append(run)
    return planned


def run_groups(items: Sequence[T], key: Callable[[T], object]) -> list[list[T]]:
    """Group items with the same key, in the order in which the keys first come up."""
    found: dict[object, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def run_scheduled(
    planned: Sequence[ScheduledRun], say: Log, shelf: ResourceCache, *, parallel: int = 1
) -> dict[Key, Record]:
    """Make the runs that are not done, `parallel` at a time. One that fails does not keep the others from running: at
    the end RunsFailed names those that did, and has the records of the others.

    A run that several studies plan is made once. Returns the records by the keys of the plan, which a run with fewer
    views than asked for (memory was short) does not bear itself.
    """
    if parallel < 1:
        raise InputError(f"--parallel must be at least 1, not {parallel}.")
    found: dict[Key, Record] = {}
    same: dict[Key, list[tuple[str, ScheduledRun]]] = {}
    for number, run in enumerate(planned, start=1):
        place = f"[{number}/{len(planned)}] {run.name}"
        if run.done:
            say(f"{place}: done before, {run.records.path(run.key)}")
            save_record(run, run.done)
            found[run.key] = run.done
        else:
            same.setdefault(run.key, []).append((place, run))
    due = [runs[0][1] for runs in same.values()]
    shelf.planned = [run.experiment for run in due]
    failed: dict[str, InputError] = {}
    for batch in run_batches(due, parallel, say):
        if len(batch) > 1:
            say(f"{len(batch)} runs at once: {', '.join(run.name for run in batch)}")
        for made, outcome in zip(batch, run_batch(batch, shelf), strict=True):
            for place, run in same[made.key]:
                if isinstance(outcome, InputError):
                    say(f"{place}: failed: {outcome}")
                    failed[run.name] = outcome
                    continue
                save_record(run, outcome)
                found[run.key] = outcome
                score = "none" if outcome.scores.all is None else f"{100 * outcome.scores.all:.1f}"
                say(f"{place}: All {score}, {outcome.made.seconds} s")
                for warning in outcome.warnings:
                    say(f"{place}: {warning}")
    if failed:
        count = f"{len(failed)} of {len({run.name for run in planned})} runs failed"
        reason = next(iter(failed.values()))
        raise RunsFailed(f"{count}, {', '.join(failed)}; the first because {reason}", found)
    return found


def save_record(run: ScheduledRun, record: Record) -> None:
    """Put a record where it belongs, once, by the first process."""
    if rank() == 0 and record.key not in run.records.by_key:
        run.records.add(record)


def run_batches(runs: Sequence[ScheduledRun], parallel: int, say: Log) -> Iterator[list[ScheduledRun]]:
    """Yield runs that can train together, at most `parallel` at a time; the others one by one, with a word why."""
    if parallel == 1:
        yield from ([run] for run in runs)
        return
    for group in run_groups(runs, lambda run: f"{sharing_key(run.experiment)} {run.experiment.train.matmul}"):
        together = []
        for run in group:
            if reason := reason_alone(run.experiment):
                say(f"{run.name} runs by itself: {reason}")
                yield [run]
            else:
                together.append(run)
        for first in range(0, len(together), parallel):
            yield together[first : first + parallel]


def reason_alone(experiment: Experiment) -> str:
    """Return why a run cannot share the device with others; "" if it can."""
    if experiment.devices > 1:
        return f"it takes {experiment.devices} processes"
    if any(stage.needs == "images" for stage in stages_of(experiment)):
        return f"{experiment.method_name} takes images instead of tokens"
    return ""


def run_batch(batch: Sequence[ScheduledRun], shelf: ResourceCache) -> list[Record | InputError]:
    """Return the records of runs that are made at once, or what was wrong with them."""
    try:
        if len(batch) == 1:
            return [run_experiment(batch[0].experiment, shelf)]
        return run_together([run.experiment for run in batch], shelf)
    except InputError as error:
        return [error.alone()] * len(batch)  # the next ones need the room


def run_together(
    experiments: Sequence[Experiment], shelf: ResourceCache | None = None
) -> list[Record | InputError]:
    """Train, score and write several runs at once; of one that fails the error takes its place, and the others go on.

    They must share data, backbone, device, precision and store, use one process each (`run_batches`), and have folders
    of different names.
    """
    started, shelf = time.monotonic(), shelf or ResourceCache()
    shelf.planned = [*shelf.planned, *(e for e in experiments if e not in shelf.planned)]
    outcome: dict[str, Record | InputError] = {}
    runs: dict[str, Run] = {}
    stopped: list[Stopped] = []
    with contextlib.ExitStack() as folders:
        for experiment in experiments:
            name = experiment.folder.name
            try:
                folders.enter_context(own_folder(experiment.folder))
                run = begin_run(experiment, shelf, keep_caches=bool(runs))
            except InputError as error:
                outcome[name] = _failure(experiment, error)
                continue
            if isinstance(run, Run):
                folders.enter_context(closing_callbacks(run))
                run.started, runs[name] = started, run
            else:
                outcome[name] = run
        for name, end in train_in_turns({name: run.loop for name, run in runs.items()}).items():
            if isinstance(end.outcome, Stopped):
                stopped.append(Stopped(f"{name}: {end.outcome}", end.outcome.number))
                continue
            try:
                outcome[name] = finish_run(runs[name], end.prediction(), end.seconds, parallel=len(runs))
            except InputError as error:
                outcome[name] = _failure(runs[name].experiment, error)
        if stopped:
            raise Stopped("; ".join(map(str, stopped)), stopped[0].number)
    return [outcome[experiment.folder.name] for experiment in experiments]


def _failure(experiment: Experiment, error: InputError) -> InputError:
    """Also in the heartbeat of the run: the others go on, and need the room."""
    update_heartbeat(experiment.folder, ended="failed", words=str(error))
    return error.alone()


def sweep_of(planned: Sequence[ScheduledRun], found: Mapping[Key, Record]) -> Sweep:
    """Return the rows of planned runs. found: their records, by the keys of the plan; those that failed have none."""
    named: dict[tuple[str, str], list[Record]] = {}
    for run in sorted((run for run in planned if run.key in found), key=lambda run: run.asked):
        record = found[run.key]
        named.setdefault((run.experiment.variant, record.identity.hash), []).append(record)
    rows = [make_row(records, variant) for (variant, _), records in named.items()]
    return Sweep(rows, [record for records in named.values() for record in records])


def write_tables(folder: Path, name: str, sweep: Sweep) -> str:
    """Write NAME.md and NAME.csv into a folder of results; returns the Markdown."""
    write_text(folder / f"{name}.md", sweep.to_markdown())
    write_text(folder / f"{name}.csv", sweep.to_csv())
    return sweep.to_markdown()


def all_records(records: Records) -> Sweep:
    """Return all records of a folder of results; those of an older revision are only counted."""
    every = list(records.by_key.values())
    if not every:
        raise InputError(f"There is no record in {records.folder}; run holotype bench, or give --results.")
    found = [record for record in every if record.identity.is_current]
    older = tuple(record.identity.method["name"] for record in every if not record.identity.is_current)
    return Sweep(summarise(found), found, older)
