"""The trainings of a round: what the device fills in, sample, steps, batch size, views; and running them side by side.

Trainings differ in their seed, and take methods in turn. A method that cannot train leaves its turns to the others, and
the reason is told. Where none can, the reason of the first one ends the discovery, as it does where one was asked for.

The effort says how many there are and how long they are, by the kind of device, never by the clock: the same command
gives the same result, whatever else the machine does. Later rounds with the same settings have as many. Each trains in
a folder of its own (rounds/N/trainings/SEED) until all are done; then the one that agrees best with the outcome gives
its model to the round, and the others are gone. Partitions by the frozen features vote beside them (results/frozen.py),
and a rehearsal on hidden labels says how much each of the two counts (rehearsal.py).
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.data.bursts import count_units
from holotype.data.table import Table, burst_units, first_frames
from holotype.discovery.rehearsal import Blend, choose_blend, hide_labels
from holotype.errors import InputError, Stopped
from holotype.methods import Prediction, Stage, find_method
from holotype.models.backbone import Backbone
from holotype.results.ensemble import Training
from holotype.results.frozen import frozen_votes
from holotype.runs.experiment import Experiment, default_experiment, stages_of
from holotype.runs.predict import EnsembleRuns
from holotype.runs.record import RunFolder
from holotype.runs.resources import VIEWS_FILE, ResourceCache, RunData, check_fits, drop_unusable_cache
from holotype.runs.run import Run, begin_run
from holotype.training.interleave import train_in_turns
from holotype.utils.device import pick_device

log = logging.getLogger(__name__)


class Effort(NamedTuple):
    """How long, and how often, is trained."""

    steps: int
    trainings: int


class DeviceDefaults(NamedTuple):
    """What a kind of device decides, unless a person does."""

    efforts: dict[str, Effort]
    """By --effort."""
    sample: int
    """Images that are trained on, at most; the rest of a larger collection is placed afterwards, in a stream."""
    batch_size: int


CPU = DeviceDefaults(
    {"quick": Effort(150, 1), "normal": Effort(1_000, 4), "best": Effort(2_000, 10)}, 5_000, 64
)
GPU = DeviceDefaults(
    {"quick": Effort(500, 2), "normal": Effort(2_000, 4), "best": Effort(6_000, 8)}, 200_000, 128
)
METHODS_IN_TURN = "rpc,uno"
"""Two that err differently: together they place more images right than either alone (docs/studies/ensembles.md)."""
CHEAP_PRESETS = ("light", "short")
"""Presets without an expensive head, or with a shorter stage on images."""
MANY_LABELS = 0.25
"""Share of the images of known classes that carry a label from which on the labels hold these classes together. Then
the entropy term is over the batch, as published, and trainings place the images; below it the term is over the
collection, and partitions by frozen features vote as well (docs/studies/defaults.md)."""
VIEWS_OF_A_STEP = 3
"""That RPC draws per image: two weak ones and a strong one."""
MIN_LABELLED_KEPT = 10
"""Labelled images of a class that a sample keeps whatever its size, as far as there are so many."""
TRAININGS_FOLDER, METRICS_FILE, REHEARSAL = "trainings", "metrics.jsonl", "rehearsal"
FEW_IMAGES = 100
"""Images below which there is one training: there, more labels change more than more votes."""
FRESH_VIEWS_FROM = 160_000
"""Images from which views are drawn anew in every step (pick_views), so that one training takes minutes on a GPU, and
there is no second one."""


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
        "steps": config.steps or defaults.efforts[config.effort].steps,
        "sample": config.sample or defaults.sample,
        "method": config.method or METHODS_IN_TURN,
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


def has_many_labels(table: Table, k: int) -> bool:
    """Do enough images of known classes carry a label, if all k categories are as large as each other?"""
    of_known = table.usable.sum() * len(table.known) / k
    return bool((table.labelled & table.usable).sum() >= MANY_LABELS * of_known)


def plan_training(
    method: str, table: Table, k: int, steps: int, device: str, network: BackboneConfig
) -> Experiment:
    """How a discovery trains with a method on the images of a table."""
    plan = plan_length(count_units(table), steps, device)
    # no recipe: a folder called aircraft is no benchmark
    experiment = default_experiment(method, "images", pick_preset(method, device))
    experiment.k, experiment.device = k, device
    experiment.backbone, experiment.cache_views = network, plan.cache_views
    epochs = spread_epochs(plan.epochs, stages_of(experiment))
    experiment.train.epochs, experiment.train.batch_size = epochs, plan.batch_size
    experiment = drop_unusable_cache(experiment)
    return experiment if has_many_labels(table, k) else with_few_labels(experiment)


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
    """Return how many trainings the effort has; one for methods that do not train. images: of the collection."""
    if not any(stages_of(default_experiment(method, "images")) for method in methods_of(config)):
        return 1
    if not FEW_IMAGES <= min(images, resolve_settings(config)["sample"]) < FRESH_VIEWS_FROM:
        return 1
    return device_defaults(pick_device(config.device)).efforts[config.effort].trainings


def applicable_methods(
    methods: Sequence[str], data: RunData, backbone: Backbone
) -> tuple[tuple[str, ...], list[str]]:
    """The methods that can train on the data, and a sentence on each of the others."""
    reasons: dict[str, InputError] = {}
    for method in methods:
        try:
            check_fits(default_experiment(method, "images"), data, backbone)
        except InputError as error:
            reasons[method] = error
    able = tuple(method for method in methods if method not in reasons)
    if not able:
        raise reasons[methods[0]]
    return able, [f"{method} does not take part. {reason}" for method, reason in reasons.items()]


def train_ensemble(
    experiments: Sequence[Experiment],
    seeds: Sequence[int],
    shelf: ResourceCache,
    table: Table,
    k: int,
    embedded: np.ndarray,
) -> tuple[Run, Prediction, EnsembleRuns | None]:
    """Train with each of the seeds, and once more where labels can be hidden to judge by (rehearsal.py).

    Args:
        experiments: Of the round, one a method; their folder is its own.
        table: The images.
        embedded: (N, D) their features of the frozen backbone.

    Returns:
        The training that carries the model, in the folder of the round; what is predicted; and the votes, None where
        the method does not train.
    """
    if not stages_of(experiments[0]):
        run = begin_run(dataclasses.replace(experiments[0], seed=seeds[0]), shelf)
        assert isinstance(run, Run)  # a finished round is not run again
        return run, run.loop.fit(), None
    hidden = hide_labels(table, seeds[0]) if len(seeds) > 1 else None
    runs, predictions, rehearsed = train_side_by_side(experiments, seeds, shelf, hidden)
    device = runs[0].loop.compute.device.type
    blend = Blend("trainings" if has_many_labels(table, k) else "together")
    if hidden is not None and rehearsed is not None:
        blend = choose_blend(table, hidden, [Training.of(rehearsed)], embedded, k, device, blend.name)
    frozen = frozen_votes(
        embedded, table.target, k, len(seeds), unit=burst_units(table), seed=seeds[0], device=device
    )
    methods = tuple(experiment.method_name for experiment in experiments)
    ensemble = EnsembleRuns.of(seeds, predictions, table, k, methods, embedded, frozen, blend)
    log.info(blend.words)
    carrier = adopt_run(runs[ensemble.together.carrier], experiments[0].folder)
    return carrier, ensemble.prediction(predictions), ensemble


def train_side_by_side(
    experiments: Sequence[Experiment], seeds: Sequence[int], shelf: ResourceCache, hidden: Table | None = None
) -> tuple[list[Run], list[Prediction], Prediction | None]:
    """The trainings with each of the seeds, and what they say of the images; and the same of a rehearsal of the first
    method on the labels of `hidden`, where there is such a table."""
    names = {str(seed): seed for seed in seeds} | ({REHEARSAL: seeds[0]} if hidden is not None else {})
    # with labels hidden there are fewer of them, so that the rehearsal never trains as with many
    turns = [*itertools.islice(itertools.cycle(experiments), len(seeds)), with_few_labels(experiments[0])]
    shelf.planned = [
        dataclasses.replace(experiment, seed=seed, out=str(experiment.folder / TRAININGS_FOLDER / name))
        for experiment, (name, seed) in zip(turns, names.items(), strict=False)
    ]
    begun = [
        begin_run(one, shelf, keep_caches=place > 0, labels=hidden if place == len(seeds) else None)
        for place, one in enumerate(shelf.planned)
    ]
    runs = [run for run in begun if isinstance(run, Run)]  # all of them: only the round is ever finished
    loops = {
        name if name == REHEARSAL else f"seed {name}": run.loop for name, run in zip(names, runs, strict=True)
    }
    ends = train_in_turns(loops, fewer="--seeds")
    if stopped := [end.outcome for end in ends.values() if isinstance(end.outcome, Stopped)]:
        raise stopped[0]
    said = [ends[name].prediction() for name in loops]
    return runs[: len(seeds)], said[: len(seeds)], said[-1] if hidden is not None else None


def with_few_labels(experiment: Experiment) -> Experiment:
    """Return the same with the entropy term over the collection, where the method has a choice."""
    if not hasattr(experiment.method, "memax_target"):
        return experiment
    method = dataclasses.replace(experiment.method, memax_target="collection")
    return dataclasses.replace(experiment, method=method)


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
