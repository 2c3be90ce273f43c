"""Several runs at once in one process.

They share the images, the frozen trunk and the token cache (prepared.py) and take turns step by step
(training/interleave.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from holotype.errors import InputError, Stopped
from holotype.runs.experiment import Experiment
from holotype.runs.prepared import Shelf, sharing_key
from holotype.runs.record import Record
from holotype.runs.run import Run, begin, finish
from holotype.training.interleave import train_in_turns
from holotype.utils.atomic import clean_partial_tree, refuse_links
from holotype.utils.heartbeat import running_heartbeat, update_heartbeat
from holotype.utils.locks import lock_folder


def run_together(experiments: Sequence[Experiment], shelf: Shelf | None = None) -> list[Record | InputError]:
    """Train, score and write several runs at once; of one that fails the error takes its place, and the others go on.

    They must share data, backbone, device, precision and store, and use one process each.
    """
    with contextlib.ExitStack() as locks:
        return _run_together(experiments, shelf or Shelf(), locks)


def _run_together(
    experiments: Sequence[Experiment], shelf: Shelf, locks: contextlib.ExitStack
) -> list[Record | InputError]:
    started = time.monotonic()
    shelf.planned = [*shelf.planned, *(e for e in experiments if e not in shelf.planned)]
    check_sharing(experiments)
    names = name_runs(experiments)
    outcome: dict[str, Record | InputError] = {}
    runs: dict[str, Run] = {}
    for name, experiment in zip(names, experiments, strict=True):
        try:
            locks.enter_context(lock_folder(experiment.folder))
            refuse_links(experiment.folder)
            clean_partial_tree(experiment.folder)
            locks.enter_context(running_heartbeat(experiment.folder))
            found = begin(experiment, shelf, keep_caches=bool(runs))
        except InputError as error:
            outcome[name] = _failed(experiment, error)
            continue
        if isinstance(found, Run):
            found.started, runs[name] = started, found
        else:
            outcome[name] = found
    stopped: list[Stopped] = []
    for name, end in train_in_turns({name: run.loop for name, run in runs.items()}).items():
        if isinstance(end.outcome, Stopped):
            stopped.append(Stopped(f"{name}: {end.outcome}", end.outcome.number))
            continue
        try:
            outcome[name] = finish(runs[name], end.prediction(), end.seconds, parallel=len(runs))
        except InputError as error:
            outcome[name] = _failed(runs[name].experiment, error)
    if stopped:
        raise Stopped("; ".join(map(str, stopped)), stopped[0].number)
    return [outcome[name] for name in names]


def _failed(experiment: Experiment, error: InputError) -> InputError:
    """Also in the heartbeat of the run: the others go on, and need the room."""
    update_heartbeat(experiment.folder, ended="failed", words=str(error))
    return error.alone()


def check_sharing(experiments: Sequence[Experiment]) -> None:
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
    names = [f"{call(experiment)} s{experiment.seed}" for experiment in experiments]
    if len(set(names)) < len(names):
        return [str(experiment.folder) for experiment in experiments]
    return names


def call(experiment: Experiment) -> str:
    """What a run is called, whatever its seed: its label, or else method and preset."""
    preset = "" if experiment.preset == "default" else f"@{experiment.preset}"
    return experiment.label or f"{experiment.method_name}{preset}"
