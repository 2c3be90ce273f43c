"""Several trainings of a round that differ in their seed, side by side: they share the images and the token cache, and
take turns step by step. Where there are several methods, the first seed is that of the first, the second that of the
second, and so on in turn. The images are placed where they agree (categories/agreement.py), and where a second opinion
agrees with them (categories/weighing.py).

`--seeds auto` asks the clock: fifteen where the steps of one training take ten seconds at most, nine where they take
half a minute, five where they take a minute, three where they take two, else one. Collections of fewer than a hundred
images have one, and so have methods that do not train. How many there are is written down when a round begins
(rounds/N/trainings.json), so that one that was stopped goes on with as many.
Each trains in a folder of its own (rounds/N/trainings/SEED) until all are done; then the one that agrees best with the
outcome gives its model to the round, and the others are gone.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holotype.data.table import Table
from holotype.errors import InputError, Stopped
from holotype.machine.files import write_text
from holotype.machine.json_text import parsed
from holotype.methods import Prediction
from holotype.runs.experiment import Experiment
from holotype.runs.folder import IDENTITY, RunFolder
from holotype.runs.prepared import Shelf
from holotype.runs.run import CACHE, Run, begin
from holotype.runs.trainings import Trainings
from holotype.training.turns import train_in_turns

FILE, FOLDER = "trainings.json", "trainings"
METRICS = "metrics.jsonl"
QUICK = ((10.0, 15), (30.0, 9), (60.0, 5), (120.0, 3))
"""Seconds that the steps of one training may take, and how many trainings there are then."""
FEWEST = 100
"""Images below which there is one."""


def how_many(seconds: float, images: int) -> int:
    """Trainings where nobody has said how many. seconds: that the steps of one take; 0 = it does not train."""
    if images < FEWEST or not seconds:
        return 1
    return next((n for limit, n in QUICK if seconds <= limit), 1)


def kept_seeds(own: Path) -> tuple[int, ...] | None:
    """The seeds that the round in the folder `own` was begun with; None where it was not begun."""
    file = own / FILE
    if not file.is_file():
        return None
    try:
        seeds = parsed(file.read_text(encoding="utf-8"))["seeds"]
        return tuple(int(seed) for seed in seeds)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} cannot be read ({error}); restore it from a copy, or run holotype discover with another --out."
        ) from error


def keep_seeds(own: Path, seeds: Sequence[int]) -> None:
    write_text(own / FILE, json.dumps({"seeds": list(seeds)}) + "\n")


@dataclass(frozen=True)
class Outcome:
    """What the trainings of a round come to."""

    run: Run
    """The training that carries the model, in the folder of the round."""
    prediction: Prediction
    trainings: Trainings | None
    """None where there was one."""


def train(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    shelf: Shelf,
    table: Table,
    k: int,
    embedded: np.ndarray,
) -> Outcome:
    """Train with each of the seeds. experiments: of the round, one a method; their folder is its own. table: the
    images. embedded: (N, D) their features of the frozen backbone."""
    if len(seeds) == 1:
        run = begin(dataclasses.replace(experiments[0], seed=seeds[0]), shelf)
        assert isinstance(run, Run)  # a finished round is not run again
        return Outcome(run, run.loop.fit(), None)
    own = experiments[0].folder
    runs, said = train_side_by_side(experiments, seeds, shelf)
    methods = tuple(experiment.method_name for experiment in experiments)
    trainings = Trainings.of(seeds, said, table, k, methods, embedded)
    carrier = runs[trainings.together.carrier]
    return Outcome(give_home(carrier, own), trainings.prediction(said), trainings)


def train_side_by_side(
    experiments: Sequence[Experiment], seeds: Sequence[int], shelf: Shelf
) -> tuple[list[Run], list[Prediction]]:
    """The trainings with each of the seeds, and what they say of the images."""
    each = [
        dataclasses.replace(experiment, seed=seed, out=str(experiment.folder / FOLDER / str(seed)))
        for experiment, seed in zip(itertools.cycle(experiments), seeds, strict=False)
    ]
    shelf.planned = each
    runs: list[Run] = []
    for one in each:
        run = begin(one, shelf, keep_caches=bool(runs))
        assert isinstance(run, Run)  # only the round is ever finished
        runs.append(run)
    ends = train_in_turns({f"seed {run.experiment.seed}": run.loop for run in runs}, fewer="--seeds")
    if stopped := [end.outcome for end in ends.values() if isinstance(end.outcome, Stopped)]:
        raise stopped[0]
    return runs, [ends[f"seed {seed}"].prediction() for seed in seeds]


def give_home(run: Run, own: Path) -> Run:
    """The run in the folder of its round, with what it has written on its way."""
    folder = RunFolder(own)
    experiment = dataclasses.replace(run.experiment, out=str(own))
    folder.write_json(IDENTITY, run.identity.as_dict())
    folder.write_config(experiment.as_dict())
    folder.write_json("provenance.json", run.facts)
    for name in (CACHE, METRICS):
        if (run.folder.path / name).is_file():
            shutil.copyfile(run.folder.path / name, own / name)
    return dataclasses.replace(run, experiment=experiment, folder=folder)


def clear(own: Path) -> None:
    """A finished round needs its trainings no more."""
    shutil.rmtree(own / FOLDER, ignore_errors=True)
