"""Train the members of an ensemble side by side: other seeds, methods in rotation.

A method that cannot leaves its turns to the others, and the reason is told. Where none can, the reason of the first one
ends the discovery, as it does where one method was asked for.

With `--seeds auto` the table TRAININGS says how many there are, by the kind of device and the number of images, never
by the clock: the same command gives the same result, whatever else the machine does. The number is written down when a
round begins (rounds/N/trainings.json), and later rounds with the same settings have as many.
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

from holotype.config.schema import DiscoverConfig
from holotype.data.table import Table
from holotype.discovery.choose_k import supports_long_tail
from holotype.discovery.rounds import round_folder, started_rounds
from holotype.discovery.training_plan import methods_of, read_round_config, resolve_settings
from holotype.errors import InputError, Stopped
from holotype.methods import Prediction
from holotype.models.backbone import Backbone
from holotype.runs.experiment import Experiment, default_experiment, stages_of
from holotype.runs.predict import EnsembleRuns
from holotype.runs.record import RunFolder
from holotype.runs.resources import VIEWS_FILE, ResourceCache, RunData, check_fits
from holotype.runs.run import Run, begin_run
from holotype.training.interleave import train_in_turns
from holotype.utils.atomic import write_text
from holotype.utils.device import pick_device


def applicable_methods(
    methods: Sequence[str], data: RunData, backbone: Backbone, *, long_tail: bool = False
) -> tuple[tuple[str, ...], list[str]]:
    """The methods that can train on the data, and a sentence on each of the others.

    long_tail: whether categories of very different sizes are expected.
    """
    reasons = {method: _unfit_reason(method, data, backbone, long_tail) for method in methods}
    able = tuple(method for method, reason in reasons.items() if reason is None)
    if not able:
        raise next(reason for reason in reasons.values() if reason is not None)
    return able, [f"{method} does not take part. {reason}" for method, reason in reasons.items() if reason]


def _unfit_reason(method: str, data: RunData, backbone: Backbone, long_tail: bool) -> InputError | None:
    """Why it cannot train on the data; None if it can."""
    if long_tail and not supports_long_tail(method):
        return InputError("It expects categories of equal size, and those here differ.")
    try:
        check_fits(default_experiment(method, "images"), data, backbone)
    except InputError as error:
        return error
    return None


SEEDS_FILE, TRAININGS_FOLDER = "trainings.json", "trainings"
METRICS_FILE = "metrics.jsonl"
TRAININGS = {"cpu": {100: 9, 128: 5}, "cuda": {100: 3, 160_000: 1}}
"""Number of trainings by kind of device, from so many images to train on; 1 for fewer, and on other devices.

The numbers are odd, and keep the trainings of a round within about six minutes on the machines of docs/performance.md:

- CPU, two cores, embedded backbone: 1,000 steps of 64 images take 74 s for RPC and about 48 s for two views, as UNO+
  draws: 61 s in turn, so five take five minutes. The number of steps is fixed, so more images take no longer. Below 128
  the batches are smaller than 32, half as long or less, and there is time for nine.
- CUDA: 6,000 cached steps take 15 to 30 s on an H200; other cards are several times slower, so three. From about
  160,000 images views are drawn anew (plan.pick_views): 33 ms a step, 200 s a training, so one. What votes are worth
  after so many steps is not measured.
- MPS has the 6,000 steps of a GPU, and nobody has timed them: one.
"""
SAME = ("seeds", "method", "sample")
"""Settings with which a later round has as many trainings as the one before it, if the device is the same too."""


def default_trainings(device: str, images: int) -> int:
    """Look up the number of trainings. device: as in --device; images: to train on."""
    table = TRAININGS.get(device.partition(":")[0], {})
    return next((n for least, n in sorted(table.items(), reverse=True) if images >= least), 1)


def choose_trainings(folder: Path, config: DiscoverConfig, images: int) -> int:
    """Return the number of trainings of the next round of the discovery in `folder`.

    It is that of --seeds, or of the rounds before where the settings are the same, or of the table; one for methods
    that do not train. images: of the collection.
    """
    if config.seeds != "auto":
        return int(config.seeds)
    if not any(stages_of(default_experiment(method, "images")) for method in methods_of(config)):
        return 1
    settings, device = resolve_settings(config), pick_device(config.device)
    for number in reversed(started_rounds(folder)):
        own = round_folder(folder, number)
        seeds, asked = stored_seeds(own), read_round_config(own)
        if seeds is None or asked is None:  # stopped while it was begun
            continue
        if asked.device == device and all(asked.taken[name] == settings[name] for name in SAME):
            return len(seeds)
        break
    return default_trainings(device, min(images, settings["sample"]))


def stored_seeds(own: Path) -> tuple[int, ...] | None:
    """The seeds that the round in the folder `own` was begun with; None where it was not begun."""
    file = own / SEEDS_FILE
    if not file.is_file():
        return None
    try:
        seeds = json.loads(file.read_text(encoding="utf-8"))["seeds"]
        return tuple(int(seed) for seed in seeds)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{file} cannot be read ({error}); restore it from a copy, or run holotype discover with another --out."
        ) from error


def store_seeds(own: Path, seeds: Sequence[int]) -> None:
    write_text(own / SEEDS_FILE, json.dumps({"seeds": list(seeds)}) + "\n")


@dataclass(frozen=True)
class EnsembleOutcome:
    """What the trainings of a round come to."""

    run: Run
    """The training that carries the model, in the folder of the round."""
    prediction: Prediction
    trainings: EnsembleRuns | None
    """None where there was one."""


def train_ensemble(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    shelf: ResourceCache,
    table: Table,
    k: int,
    embedded: np.ndarray,
) -> EnsembleOutcome:
    """Train with each of the seeds. experiments: of the round, one a method; their folder is its own. table: the
    images. embedded: (N, D) their features of the frozen backbone."""
    if len(seeds) == 1:
        run = begin_run(dataclasses.replace(experiments[0], seed=seeds[0]), shelf)
        assert isinstance(run, Run)  # a finished round is not run again
        return EnsembleOutcome(run, run.loop.fit(), None)
    own = experiments[0].folder
    runs, said = train_side_by_side(experiments, seeds, shelf)
    methods = tuple(experiment.method_name for experiment in experiments)
    trainings = EnsembleRuns.of(seeds, said, table, k, methods, embedded)
    carrier = runs[trainings.together.carrier]
    return EnsembleOutcome(adopt_run(carrier, own), trainings.prediction(said), trainings)


def train_side_by_side(
    experiments: Sequence[Experiment], seeds: Sequence[int], shelf: ResourceCache
) -> tuple[list[Run], list[Prediction]]:
    """The trainings with each of the seeds, and what they say of the images."""
    each = [
        dataclasses.replace(experiment, seed=seed, out=str(experiment.folder / TRAININGS_FOLDER / str(seed)))
        for experiment, seed in zip(itertools.cycle(experiments), seeds, strict=False)
    ]
    shelf.planned = each
    runs: list[Run] = []
    for one in each:
        run = begin_run(one, shelf, keep_caches=bool(runs))
        assert isinstance(run, Run)  # only the round is ever finished
        runs.append(run)
    ends = train_in_turns({f"seed {run.experiment.seed}": run.loop for run in runs}, fewer="--seeds")
    if stopped := [end.outcome for end in ends.values() if isinstance(end.outcome, Stopped)]:
        raise stopped[0]
    return runs, [ends[f"seed {seed}"].prediction() for seed in seeds]


def adopt_run(run: Run, own: Path) -> Run:
    """The run in the folder of its round, with what it has written on its way."""
    folder = RunFolder(own)
    experiment = dataclasses.replace(run.experiment, out=str(own))
    folder.begin(run.identity, experiment.as_dict(), run.facts)
    for name in (VIEWS_FILE, METRICS_FILE):
        if (run.folder.path / name).is_file():
            shutil.copyfile(run.folder.path / name, own / name)
    return dataclasses.replace(run, experiment=experiment, folder=folder)


def clear_trainings(own: Path) -> None:
    """A finished round needs its trainings no more."""
    shutil.rmtree(own / TRAININGS_FOLDER, ignore_errors=True)
