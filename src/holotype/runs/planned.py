"""From experiments to records: which runs are done, which are made now, one by one or several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holotype.errors import InputError
from holotype.runs.experiment import Experiment
from holotype.runs.folder import PER_CLASS, read_per_class
from holotype.runs.identity import identify
from holotype.runs.parts import check_fits
from holotype.runs.prepared import Shelf, make_compute, sharing_key
from holotype.runs.record import Record
from holotype.runs.records import Key, Records, check_agree
from holotype.runs.run import run_experiment
from holotype.runs.together import call, run_together
from holotype.runs.views import drawn, stages_of, wanted_views
from holotype.utils.distributed import rank

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Planned:
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
    shelf: Shelf,
    elsewhere: Records | None = None,
) -> list[Planned]:
    """Find out before anything is trained that all inputs are there, and which runs are done. Writes nothing.

    A run is done when `records`, or those `elsewhere`, hold one of its identity. The others get run folders in `out`.
    Runs that can share data stand together.
    """
    planned: list[Planned] = []
    first: dict[Key, Planned] = {}
    asked = {id(experiment): number for number, experiment in enumerate(runs)}
    for group in groups(runs, sharing_key):
        for experiment in group:
            ready = shelf.get(experiment, make_compute(experiment))
            views = drawn(experiment, wanted_views(experiment))
            identity = identify(experiment, ready.data, ready.backbone, views)
            key = (identity.hash, identity.seed)
            name = run_name(experiment, ready.data.table.name, key)
            experiment.out = str(out / name)
            mine, theirs = records.by_key.get(key), elsewhere.by_key.get(key) if elsewhere else None
            check_agree(mine, theirs, f"The record of {name} in {records.folder}")
            if not (mine or theirs):
                check_fits(experiment, ready.data, ready.backbone)
            run = Planned(experiment, key, name, records, mine or theirs, asked[id(experiment)])
            check_distinct(first.setdefault(key, run), run)
            planned.append(run)
    return planned


def run_name(experiment: Experiment, dataset: str, key: Key) -> str:
    """Of a run folder: readable first, then what tells it from others."""
    method = experiment.method_name.replace(":", ".").replace("/", "-")
    return f"{dataset}-{method}-{experiment.variant}-s{key[1]}-{key[0][:8]}"


def check_distinct(one: Planned, other: Planned) -> None:
    """Refuse two names for one run: the second row would be a copy of the first."""
    if one.name != other.name:
        raise InputError(
            f"{call(one.experiment)} and {call(other.experiment)} are the same experiment on "
            f"{one.experiment.dataset} with seed {one.experiment.seed}: nothing that decides the result differs; "
            "leave one of them out."
        )


def run_planned(
    planned: Sequence[Planned], say: Say, shelf: Shelf, *, parallel: int = 1
) -> dict[Key, Record]:
    """Make the runs that are not done, `parallel` at a time. One that fails does not keep the others from running: at
    the end RunsFailed names those that did, and has the records of the others.

    A run that several studies plan is made once. Returns the records by the keys of the plan, which a run with fewer
    views than asked for (memory was short) does not bear itself.
    """
    if parallel < 1:
        raise InputError(f"--parallel must be at least 1, not {parallel}.")
    found: dict[Key, Record] = {}
    same: dict[Key, list[tuple[str, Planned]]] = {}
    for number, run in enumerate(planned, start=1):
        place = f"[{number}/{len(planned)}] {run.name}"
        if run.done:
            say(f"{place}: done before, {run.records.path(run.key)}")
            keep(run, run.done)
            found[run.key] = run.done
        else:
            same.setdefault(run.key, []).append((place, run))
    open_runs = [runs[0][1] for runs in same.values()]
    shelf.planned = [run.experiment for run in open_runs]
    failed: dict[str, InputError] = {}
    for batch in batches(open_runs, parallel, say):
        if len(batch) > 1:
            say(f"{len(batch)} runs at once: {', '.join(run.name for run in batch)}")
        for made, outcome in zip(batch, run_batch(batch, shelf), strict=True):
            for place, run in same[made.key]:
                if isinstance(outcome, InputError):
                    say(f"{place}: failed: {outcome}")
                    failed[run.name] = outcome
                    continue
                keep(run, outcome)
                found[run.key] = outcome
                say(f"{place}: All {_percent(outcome.scores.all)}, {outcome.made.seconds} s")
    if failed:
        count = f"{len(failed)} of {len({run.name for run in planned})} runs failed"
        reason = next(iter(failed.values()))
        raise RunsFailed(f"{count}, {', '.join(failed)}; the first because {reason}", found)
    return found


def keep(run: Planned, record: Record) -> None:
    """Put a record where it belongs, once, by the first process."""
    if rank() == 0 and record.key not in run.records.by_key:
        classes = run.experiment.folder / PER_CLASS
        run.records.add(record, read_per_class(classes) if classes.is_file() else ())


def run_batch(batch: Sequence[Planned], shelf: Shelf) -> list[Record | InputError]:
    """The records of runs that are made at once, or what was wrong with them."""
    try:
        if len(batch) == 1:
            return [run_experiment(batch[0].experiment, shelf)]
        return run_together([run.experiment for run in batch], shelf)
    except InputError as error:
        return [error.alone()] * len(batch)  # the next ones need the room


def batches(runs: Sequence[Planned], parallel: int, say: Say) -> Iterator[list[Planned]]:
    """Runs that can train together, at most `parallel` at a time; the others one by one, with a word why."""
    if parallel == 1:
        yield from ([run] for run in runs)
        return
    for group in groups(runs, lambda run: f"{sharing_key(run.experiment)} {run.experiment.train.matmul}"):
        together = []
        for run in group:
            if reason := why_alone(run.experiment):
                say(f"{run.name} runs by itself: {reason}")
                yield [run]
            else:
                together.append(run)
        for first in range(0, len(together), parallel):
            yield together[first : first + parallel]


def why_alone(experiment: Experiment) -> str:
    """Why a run cannot share the device with others; "" if it can."""
    if experiment.devices > 1:
        return f"it takes {experiment.devices} processes"
    if any(stage.needs == "images" for stage in stages_of(experiment)):
        return f"{experiment.method_name} takes images instead of tokens"
    return ""


def groups(items: Sequence[T], key: Callable[[T], str]) -> list[list[T]]:
    """Items with the same key, in the order in which the keys first come up."""
    found: dict[str, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f}"
