"""The trainings of a round: what the device fills in, sample, steps, batch size, views; and running them side by side.

Trainings differ in their seed, and take methods in turn. A method that cannot train leaves its turns to the others, and
the reason is told. Where none can, the reason of the first one ends the discovery, as it does where one was asked for.

With `--seeds auto` the table TRAININGS says how many there are, by the kind of device and the number of images, never
by the clock: the same command gives the same result, whatever else the machine does. Later rounds with the same
settings have as many. Each trains in a folder of its own (rounds/N/trainings/SEED) until all are done; then the one
that agrees best with the outcome gives its model to the round, and the others are gone.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.data.table import Table, burst_units, first_frames
from holotype.errors import InputError, Stopped
from holotype.methods import METHODS, Prediction, Stage, find_method
from holotype.models.backbone import Backbone
from holotype.runs.experiment import Experiment, default_experiment, stages_of
from holotype.runs.predict import EnsembleRuns
from holotype.runs.record import RunFolder
from holotype.runs.resources import VIEWS_FILE, ResourceCache, RunData, check_fits, drop_unusable_cache
from holotype.runs.run import Run, begin_run
from holotype.training.interleave import train_in_turns
from holotype.utils.device import pick_device


class DeviceDefaults(NamedTuple):
    """What a kind of device decides, unless a person does."""

    steps: int
    """Training steps: minutes on a CPU."""
    sample: int
    """Images that are trained on, at most; the rest of a larger collection is placed afterwards, in a stream."""
    batch_size: int
    method: str
    """Methods of the trainings. On a CPU the two agree on more than RPC trained as often; with the steps of a GPU that
    is not measured (docs/studies/31-folder-methods.md)."""


CPU, GPU = DeviceDefaults(1_000, 5_000, 64, "rpc,uno"), DeviceDefaults(6_000, 200_000, 128, "rpc")
CHEAP_PRESETS = ("light", "short")
"""Presets without an expensive head, or with a shorter stage on images."""
VIEWS_OF_A_STEP = 3
"""That RPC draws per image: two weak ones and a strong one."""
MIN_LABELLED_KEPT = 10
"""Labelled images of a class that a sample keeps whatever its size, as far as there are so many."""
TRAININGS_FOLDER, METRICS_FILE = "trainings", "metrics.jsonl"
TRAININGS = {"cpu": {100: 9, 128: 5}, "cuda": {100: 3, 160_000: 1}}
"""Number of trainings by kind of device, from so many images to train on; 1 for fewer, and on other devices.

The numbers are odd, and keep the trainings of a round within about six minutes on the machines of docs/performance.md:

- CPU, two cores, embedded backbone: 1,000 steps of 64 images take 74 s for RPC and about 48 s for two views, as UNO+
  draws: 61 s in turn, so five take five minutes. The number of steps is fixed, so more images take no longer. Below 128
  the batches are smaller than 32, half as long or less, and there is time for nine.
- CUDA: 6,000 cached steps take 15 to 30 s on an H200; other cards are several times slower, so three. From about
  160,000 images views are drawn anew (pick_views): 33 ms a step, 200 s a training, so one. What votes are worth after
  so many steps is not measured.
- MPS has the 6,000 steps of a GPU, and nobody has timed them: one.
"""


@dataclass(frozen=True)
class TrainingPlan:
    """The length and the shape of training."""

    batch_size: int
    epochs: int
    cache_views: str
    """Of the token cache, as in --cache-views."""


def device_defaults(device: str) -> DeviceDefaults:
    return CPU if device == "cpu" else GPU


def resolve_settings(config: DiscoverConfig) -> dict[str, Any]:
    """The settings that decide what comes out, with what the device decides filled in; backbone left out."""
    defaults = device_defaults(pick_device(config.device))
    return {
        "k": config.k,
        "steps": config.steps or defaults.steps,
        "sample": config.sample or defaults.sample,
        "method": config.method or defaults.method,
        "long_tail": config.long_tail,
        "bursts": config.bursts,
        "seed": config.seed,
        "seeds": config.seeds,
    }


def methods_of(config: DiscoverConfig) -> tuple[str, ...]:
    """Those that trainings take in turn; the first trains where there is one training."""
    return tuple(resolve_settings(config)["method"].split(","))


def plan_length(n: int, steps: int, device: str) -> TrainingPlan:
    """For n images, each burst counted once. Small collections get small batches, so that an epoch has at least four
    steps."""
    batch_size = max(2, min(device_defaults(device).batch_size, n // 4))
    epochs = math.ceil(steps / max(n // batch_size, 1))
    views = pick_views(n, steps * batch_size * VIEWS_OF_A_STEP, device)
    return TrainingPlan(batch_size, max(epochs, 1), views)


def spread_epochs(epochs: int, stages: Sequence[Stage]) -> int:
    """The epochs of training with which all stages together take at most `epochs`, or as few as they can."""
    each = range(epochs, 1, -1)
    return next((n for n in each if sum(stage.length(n) for stage in stages) <= epochs), 1)


def plan_training(
    method: str, n: int, k: int, steps: int, device: str, network: BackboneConfig
) -> Experiment:
    """How a discovery trains with a method on n images, each burst counted once."""
    plan = plan_length(n, steps, device)
    # no recipe: a folder called aircraft is no benchmark
    experiment = default_experiment(method, "images", pick_preset(method, device))
    experiment.k, experiment.device = k, device
    experiment.backbone, experiment.cache_views = network, plan.cache_views
    epochs = spread_epochs(plan.epochs, stages_of(experiment))
    experiment.train.epochs, experiment.train.batch_size = epochs, plan.batch_size
    return drop_unusable_cache(experiment)


def pick_preset(method: str, device: str) -> str:
    """A preset that costs less, where a method has one and the device is a CPU."""
    presets = find_method(method).presets if device == "cpu" else ()
    return next((preset for preset in CHEAP_PRESETS if preset in presets), "default")


def pick_views(n: int, drawn: int, device: str) -> str:
    """The largest token cache that costs less than half of drawing every view anew; 4+2 on every CPU."""
    if device == "cpu":
        return "4+2"
    worth = [views for views, entries in (("16+8", 25), ("4+2", 7)) if 2 * n * entries <= drawn]
    return worth[0] if worth else "off"


def draw_sample(table: Table, limit: int, seed: int) -> np.ndarray:
    """(n,) sorted rows to train on: all usable ones, or about `limit` of them where there are more.

    Every class keeps its share of labelled images, but at least ten of them where it has so many, and unlabelled
    images keep theirs. Of each burst at most one frame is drawn, where not all are taken.
    """
    usable = np.flatnonzero(table.usable)
    if len(usable) > limit:
        usable = first_frames(burst_units(table), usable)
    if len(usable) <= limit:
        return usable
    generator = np.random.default_rng(seed)
    share, target = limit / len(usable), table.target
    drawn = []
    for value in range(-1, len(table.known)):
        rows = usable[target[usable] == value]
        wanted = math.ceil(share * len(rows))
        if value >= 0:
            wanted = max(wanted, min(MIN_LABELLED_KEPT, len(rows)))
        drawn.append(generator.choice(rows, wanted, replace=False))
    return np.sort(np.concatenate(drawn))


def default_trainings(config: DiscoverConfig, images: int) -> int:
    """Look up the number of trainings; one for methods that do not train. images: of the collection."""
    if not any(stages_of(default_experiment(method, "images")) for method in methods_of(config)):
        return 1
    table = TRAININGS.get(pick_device(config.device).partition(":")[0], {})
    images = min(images, resolve_settings(config)["sample"])
    return next((n for least, n in sorted(table.items(), reverse=True) if images >= least), 1)


def applicable_methods(
    methods: Sequence[str], data: RunData, backbone: Backbone, *, long_tail: bool = False
) -> tuple[tuple[str, ...], list[str]]:
    """The methods that can train on the data, and a sentence on each of the others.

    long_tail: whether categories of very different sizes are expected.
    """
    reasons: dict[str, InputError] = {}
    for method in methods:
        try:
            if long_tail and not supports_long_tail(method):
                raise InputError("It expects categories of equal size, and those here differ.")
            check_fits(default_experiment(method, "images"), data, backbone)
        except InputError as error:
            reasons[method] = error
    able = tuple(method for method in methods if method not in reasons)
    if not able:
        raise reasons[methods[0]]
    return able, [f"{method} does not take part. {reason}" for method, reason in reasons.items()]


def supports_long_tail(method: str) -> bool:
    return hasattr(find_method(method).Config(), "memax_target")


def check_long_tail(methods: Sequence[str]) -> None:
    """Raise InputError where no method can be told to expect categories of very different sizes."""
    if not any(map(supports_long_tail, methods)):
        *able, last = (name for name in METHODS if supports_long_tail(name))
        names = " and ".join(methods)
        raise InputError(f"--long-tail is not for {names}; use {', '.join(able)} or {last}.")


def train_ensemble(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    shelf: ResourceCache,
    table: Table,
    k: int,
    embedded: np.ndarray,
) -> tuple[Run, Prediction, EnsembleRuns | None]:
    """Train with each of the seeds. Returns the training that carries the model, in the folder of the round, what is
    predicted, and all trainings where there are several.

    experiments: of the round, one a method; their folder is its own. table: the images. embedded: (N, D) their
    features of the frozen backbone."""
    if len(seeds) == 1:
        run = begin_run(dataclasses.replace(experiments[0], seed=seeds[0]), shelf)
        assert isinstance(run, Run)  # a finished round is not run again
        return run, run.loop.fit(), None
    runs, predictions = train_side_by_side(experiments, seeds, shelf)
    methods = tuple(experiment.method_name for experiment in experiments)
    trainings = EnsembleRuns.of(seeds, predictions, table, k, methods, embedded)
    carrier = adopt_run(runs[trainings.together.carrier], experiments[0].folder)
    return carrier, trainings.prediction(predictions), trainings


def train_side_by_side(
    experiments: Sequence[Experiment], seeds: Sequence[int], shelf: ResourceCache
) -> tuple[list[Run], list[Prediction]]:
    """The trainings with each of the seeds, and what they say of the images."""
    shelf.planned = [
        dataclasses.replace(experiment, seed=seed, out=str(experiment.folder / TRAININGS_FOLDER / str(seed)))
        for experiment, seed in zip(itertools.cycle(experiments), seeds, strict=False)
    ]
    begun = (begin_run(one, shelf, keep_caches=place > 0) for place, one in enumerate(shelf.planned))
    runs = [run for run in begun if isinstance(run, Run)]  # all of them: only the round is ever finished
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
