"""Schedule runs: which are done, which are due, several at once in one process.

They share the images, the frozen trunk and the token cache (resources.py) and take turns step by step
(training/interleave.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holotype.errors import InputError, Stopped
from holotype.runs.build import check_fits, effective_views, requested_views, stages_of
from holotype.runs.experiment import Experiment
from holotype.runs.identity import identify
from holotype.runs.record import PER_CLASS_FILE, Key, Record, Records, check_agree, read_per_class
from holotype.runs.resources import ResourceCache, make_device, sharing_key
from holotype.runs.run import Run, begin_run, finish_run, own_folder, run_experiment
from holotype.training.interleave import train_in_turns
from holotype.utils.distributed import rank
from holotype.utils.heartbeat import update_heartbeat


def run_together(
    experiments: Sequence[Experiment], shelf: ResourceCache | None = None
) -> list[Record | InputError]:
    """Train, score and write several runs at once; of one that fails the error takes its place, and the others go on.

    They must share data, backbone, device, precision and store, and use one process each.
    """
    with contextlib.ExitStack() as folders:
        return _run_together(experiments, shelf or ResourceCache(), folders)


def _run_together(
    experiments: Sequence[Experiment], shelf: ResourceCache, folders: contextlib.ExitStack
) -> list[Record | InputError]:
    started = time.monotonic()
    shelf.planned = [*shelf.planned, *(e for e in experiments if e not in shelf.planned)]
    check_shared_data(experiments)
    names = name_runs(experiments)
    outcome: dict[str, Record | InputError] = {}
    runs: dict[str, Run] = {}
    for name, experiment in zip(names, experiments, strict=True):
        try:
            folders.enter_context(own_folder(experiment.folder))
            run = begin_run(experiment, shelf, keep_caches=bool(runs))
        except InputError as error:
            outcome[name] = _failure(experiment, error)
            continue
        if isinstance(run, Run):
            run.started, runs[name] = started, run
        else:
            outcome[name] = run
    stopped: list[Stopped] = []
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
    return [outcome[name] for name in names]


def _failure(experiment: Experiment, error: InputError) -> InputError:
    """Also in the heartbeat of the run: the others go on, and need the room."""
    update_heartbeat(experiment.folder, ended="failed", words=str(error))
    return error.alone()


def check_shared_data(experiments: Sequence[Experiment]) -> None:
    """Refuse runs that cannot train together."""
    together = {(sharing_key(e), e.train.matmul) for e in experiments}
    if len(experiments) > 1 and (len(together) > 1 or any(e.devices > 1 for e in experiments)):
        raise InputError(
            "Runs that train together must share data set, backbone, device, precision, store and memory, and use "
            "one process each; run the others by themselves."
        )
    folders = [e.folder for e in experiments]
    if twice := [folder for folder in folders if folders.count(folder) > 1]:
        raise InputError(f"Two runs cannot train together in one folder, {twice[0]}; give each its --out.")


def name_runs(experiments: Sequence[Experiment]) -> list[str]:
    """What tells runs apart in a line: label, or else method and preset, and seed; or the folder where these are
    the same."""
    names = [f"{call_together(experiment)} s{experiment.seed}" for experiment in experiments]
    if len(set(names)) < len(names):
        return [str(experiment.folder) for experiment in experiments]
    return names


def call_together(experiment: Experiment) -> str:
    """What a run is called, whatever its seed: its label, or else method and preset."""
    preset = "" if experiment.preset == "default" else f"@{experiment.preset}"
    return experiment.label or f"{experiment.method_name}{preset}"


Log = Callable[[str], None]
T = TypeVar("T")


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
    for group in run_groups(runs, sharing_key):
        for experiment in group:
            ready = shelf.get(experiment, make_device(experiment))
            views = effective_views(experiment, requested_views(experiment))
            identity = identify(experiment, ready.data, ready.backbone, views)
            key = (identity.hash, identity.seed)
            name = run_name(experiment, ready.data.table.name, key)
            experiment.out = str(out / name)
            mine, theirs = records.by_key.get(key), elsewhere.by_key.get(key) if elsewhere else None
            check_agree(mine, theirs, f"The record of {name} in {records.folder}")
            if not (mine or theirs):
                check_fits(experiment, ready.data, ready.backbone)
            run = ScheduledRun(experiment, key, name, records, mine or theirs, asked[id(experiment)])
            same = first.setdefault(key, run)
            if same.name != name:  # the second row would be a copy of the first
                raise InputError(
                    f"{call_together(same.experiment)} and {call_together(experiment)} are the same experiment on "
                    f"{experiment.dataset} with seed {experiment.seed}: nothing that decides the result differs; "
                    "leave one of them out."
                )
            planned.append(run)
    return planned


def run_name(experiment: Experiment, dataset: str, key: Key) -> str:
    """Of a run folder: readable first, then what tells it from others."""
    method = experiment.method_name.replace(":", ".").replace("/", "-")
    return f"{dataset}-{method}-{experiment.variant}-s{key[1]}-{key[0][:8]}"


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
    open_runs = [runs[0][1] for runs in same.values()]
    shelf.planned = [run.experiment for run in open_runs]
    failed: dict[str, InputError] = {}
    for batch in run_batches(open_runs, parallel, say):
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
                score = outcome.scores.all
                say(
                    f"{place}: All {'none' if score is None else f'{100 * score:.1f}'}, {outcome.made.seconds} s"
                )
    if failed:
        count = f"{len(failed)} of {len({run.name for run in planned})} runs failed"
        reason = next(iter(failed.values()))
        raise RunsFailed(f"{count}, {', '.join(failed)}; the first because {reason}", found)
    return found


def save_record(run: ScheduledRun, record: Record) -> None:
    """Put a record where it belongs, once, by the first process."""
    if rank() == 0 and record.key not in run.records.by_key:
        classes = run.experiment.folder / PER_CLASS_FILE
        run.records.add(record, read_per_class(classes) if classes.is_file() else ())


def run_batch(batch: Sequence[ScheduledRun], shelf: ResourceCache) -> list[Record | InputError]:
    """The records of runs that are made at once, or what was wrong with them."""
    try:
        if len(batch) == 1:
            return [run_experiment(batch[0].experiment, shelf)]
        return run_together([run.experiment for run in batch], shelf)
    except InputError as error:
        return [error.alone()] * len(batch)  # the next ones need the room


def run_batches(runs: Sequence[ScheduledRun], parallel: int, say: Log) -> Iterator[list[ScheduledRun]]:
    """Runs that can train together, at most `parallel` at a time; the others one by one, with a word why."""
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
    """Why a run cannot share the device with others; "" if it can."""
    if experiment.devices > 1:
        return f"it takes {experiment.devices} processes"
    if any(stage.needs == "images" for stage in stages_of(experiment)):
        return f"{experiment.method_name} takes images instead of tokens"
    return ""


def run_groups(items: Sequence[T], key: Callable[[T], str]) -> list[list[T]]:
    """Items with the same key, in the order in which the keys first come up."""
    found: dict[str, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())
