"""Methods x data sets x seeds: every run once, each with a result file of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holotype.errors import InputError
from holotype.machine.processes import rank
from holotype.methods import find_method
from holotype.runs.experiment import Experiment
from holotype.runs.prepared import Shelf, make_compute, sharing_key
from holotype.runs.record import config_hash, identify
from holotype.runs.results import Record, read_results, result_name, write_result
from holotype.runs.run import run_experiment
from holotype.runs.together import call, run_together
from holotype.runs.views import wanted_views

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Planned:
    """A run to be made, or one that is done."""

    experiment: Experiment
    name: str
    """Of its result file and of its run folder."""
    results: Path
    """Folder of its result file."""
    facts: Record
    """What it is called in its result: method, dataset, variant."""
    key: tuple[str, int]
    """config_hash and seed: equal for runs that are one, whatever they are called."""
    done: Path | None
    """The result that is there already."""


def plan_runs(
    experiments: Sequence[Experiment],
    results: Path,
    out: Path,
    shelf: Shelf,
    elsewhere: Mapping[tuple[str, int], Record] | None = None,
) -> list[Planned]:
    """Find out before anything is trained that all inputs are there, and which runs are done.

    A run is done when `results` holds one with the same config_hash (all that decides the weights but the
    seed) and seed. The others get run folders in `out`. Runs that can share data stand together.
    elsewhere: results of other studies by config_hash and seed; a run that is among them is copied.
    """
    done = {(r["config_hash"], r["seed"]): path for path, r in read_results(results).items()}
    elsewhere = elsewhere or {}
    planned: dict[str, Planned] = {}
    first: dict[tuple[str, int], Planned] = {}
    for group in groups(experiments, sharing_key):
        for experiment in group:
            ready = shelf.get(experiment, make_compute(experiment))
            views = wanted_views(experiment, ready.data, ready.backbone)
            identity = identify(experiment, ready.data, ready.backbone, views)
            facts = {
                "method": experiment.method_name,
                "dataset": ready.data.table.name,
                "variant": experiment.variant,
            }
            key = (config_hash(identity), experiment.seed)
            name = result_name({**facts, "seed": experiment.seed, "config_hash": key[0]})
            experiment.out = str(out / name)
            if key not in done and key in elsewhere:
                done[key] = write_result(results, elsewhere[key] | facts)
            planned[name] = Planned(experiment, name, results, facts, key, done.get(key))
            check_distinct(first.setdefault(key, planned[name]), planned[name])
    return list(planned.values())


def check_distinct(one: Planned, other: Planned) -> None:
    """Refuse two names for one run: the second result would be a copy of the first."""
    if one.name != other.name:
        raise InputError(
            f"{call(one.experiment)} and {call(other.experiment)} are the same experiment on "
            f"{one.experiment.dataset} with seed {one.experiment.seed}: nothing that decides the result differs; "
            "leave one of them out."
        )


def run_planned(planned: Sequence[Planned], say: Say, shelf: Shelf, *, parallel: int = 1) -> None:
    """Make the runs that are not done, `parallel` at a time. One that fails does not keep the others from running.

    A run that several studies plan is made once, and each gets its result.
    """
    same: dict[tuple[str, int], list[tuple[str, Planned]]] = {}
    for number, run in enumerate(planned, start=1):
        place = f"[{number}/{len(planned)}] {run.name}"
        if run.done:
            say(f"{place}: done before, {run.done}")
        else:
            same.setdefault(run.key, []).append((place, run))
    open_runs = [runs[0][1] for runs in same.values()]
    shelf.planned = [run.experiment for run in open_runs]
    failed = []
    for batch in batches(open_runs, parallel, say):
        if len(batch) > 1:
            say(f"{len(batch)} runs at once: {', '.join(run.name for run in batch)}")
        for made, outcome in zip(batch, run_batch(batch, shelf), strict=True):
            for place, run in same[made.key]:
                if isinstance(outcome, InputError):
                    say(f"{place}: failed: {outcome}")
                    failed.append(f"{run.name}: {outcome}")
                    continue
                if rank() == 0:
                    write_result(run.results, outcome | run.facts)
                say(f"{place}: All {_percent(outcome['all'])}, {outcome['seconds']} s")
    if failed:
        raise InputError(f"{len(failed)} of {len(planned)} runs failed; the first, {failed[0]}")


def run_batch(batch: Sequence[Planned], shelf: Shelf) -> list[Record | InputError]:
    """The records of runs that are made at once, or what was wrong with them."""
    try:
        if len(batch) == 1:
            return [run_experiment(batch[0].experiment, shelf)]
        return run_together([run.experiment for run in batch], shelf)
    except InputError as error:
        return [error] * len(batch)


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
    if find_method(experiment.method_name).needs == "images":
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
