"""A round of a discovery: count the categories, train, place every image. What it leaves is a run like any other."""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Iterable

import numpy as np

from holotype.clustering.k_curve import CountEstimate
from holotype.config.schema import BackboneConfig
from holotype.data import detections
from holotype.data.bursts import count_units
from holotype.data.load import check_trainable
from holotype.data.table import Table
from holotype.discovery.bursting import check_enough, draws_itself, take_bursts
from holotype.discovery.counting import choose_k
from holotype.discovery.in_turn import fitting
from holotype.discovery.plan import draw_sample, make_plan, methods_of, pick_preset, resolved, spread_epochs
from holotype.discovery.round import Round
from holotype.discovery.several import Outcome, clear, train
from holotype.discovery.shots import Shots, take_shots
from holotype.discovery.sizes import choose_sizes
from holotype.discovery.taking_part import check_left, seen_classes, unread_labels
from holotype.embeddings.extract import Embeddings
from holotype.embeddings.store import embed_by_content, import_embeddings
from holotype.errors import InputError
from holotype.results.apply_edits import FOLLOWS_NOTE
from holotype.results.describe import LABELLED as OF_BURST
from holotype.results.discovery import RunFacts
from holotype.results.ensemble import methods_phrase
from holotype.runs.build import RunData
from holotype.runs.cache_policy import drop_unusable_cache, stages_of
from holotype.runs.experiment import Experiment
from holotype.runs.predict import Remainder, RoundContext, seeds_text
from holotype.runs.resolve import default_experiment
from holotype.runs.resources import ResourceCache
from holotype.runs.run import finish_run
from holotype.utils.device import Device, pick_device

FEWEST = 8
"""Usable images below which there is nothing to train on."""

log = logging.getLogger(__name__)


def run_round(round: Round) -> None:
    """Embed, count, train, place and describe; the round's folder holds what came out."""
    with round.clock.step("embedding"):
        images, where = (round.table, round.digests, round.chosen.backbone), round.folder / "embeddings"
        if round.embedded is not None:
            import_embeddings(round.embedded, *images, where, round.progress)
        embedded = embed_by_content(*images, Device.on(round.config.device), where, progress=round.progress)
    shots = take_shots(round.folder, round.table, round.digests, round.progress)
    take_classes(round, embedded)
    take_occasions(round, shots, embedded)
    check_left(round.table, round.given, round.folder)
    check_embedded(round.table, embedded.features, round.out)
    k, count = choose_k(round, embedded.features)
    check_enough(round.active, k)
    round.long_tail, round.sizes = choose_sizes(round.config, round.drawn, embedded.features)
    if round.sizes:
        log.info(round.sizes)
    find_categories(round, embedded, k, count)


def take_occasions(round: Round, shots: Shots, embedded: Embeddings) -> None:
    """Let the round know when, where and with which camera its images were taken, and which are frames of one burst."""
    round.columns |= shots.columns() | detections.box_columns([str(path) for path in round.table.path])
    if round.table.weight is not None:
        round.columns["weight"] = round.table.weights
    features, out = embedded.features, round.out
    spread, lines = take_bursts(round.table, round.config.bursts, shots.each, features, out, round.words)
    round.table = spread.table
    note_also(embedded, spread.rows, OF_BURST)
    for line in (shots.words(), *lines):
        if line:
            log.info(line)
    for method in methods_of(round.config):
        if lines and draws_itself(method):
            log.info(f"{method} draws its images itself, so in its steps every frame counts.")


def take_classes(round: Round, embedded: Embeddings) -> None:
    """Let the table know what cannot be read; a class that has no labelled image then is none, and that is told."""
    table = round.table.with_problems(embedded.problem)
    round.table, lost = seen_classes(table, round.given.names)
    for line in (*unread_labels(table, round.given), *lost):
        log.warning(line)
    for row in np.flatnonzero(table.label != round.table.label):
        embedded.note[row] = f"its label {table.label[row]!r} takes no part"
    note_also(embedded, np.flatnonzero(round.given.follows(round.table) & round.table.labelled), FOLLOWS_NOTE)


def note_also(embedded: Embeddings, rows: Iterable[int], words: str) -> None:
    for row in rows:
        embedded.note[row] = "; ".join(part for part in (embedded.note[row], words) if part)


def check_embedded(table: Table, features: np.ndarray, out: np.ndarray) -> None:
    """Raise InputError where images cannot be read or told apart. out: (N,) bool, those that people have rejected."""
    unread = int((~table.usable).sum())
    usable = table.usable & ~out
    if unread:
        log.warning(f"{unread:,} of {len(table):,} images cannot be read; assignments.csv says why.")
    if usable.sum() < FEWEST:
        raise InputError(
            f"Only {int(usable.sum())} of the {len(table)} images of {table.name} can be used "
            f"({table.problem[~table.usable][0] if unread else 'there are no more'}); discover needs at least {FEWEST}."
        )
    check_trainable(table.take(usable))
    rows = features[usable]
    if np.abs(rows - rows[0]).max() < 1e-5:
        raise InputError(
            f"All {len(rows)} images of {table.name} look the same to the backbone, so there is nothing to tell "
            "apart; check that they are different pictures."
        )


# -- training -------------------------------------------------------------------------------------------


def find_categories(round: Round, embedded: Embeddings, k: int, count: CountEstimate | None) -> None:
    """Train on the table, or on a sample of it, in the round's folder, and place every image."""
    table, limit = round.table, resolved(round.config)["sample"]
    rows = draw_sample(round.active, limit, round.config.seed)
    if len(rows) < int(round.active.usable.sum()):
        log.info(
            f"Training on a sample of {len(rows):,} of the {len(table):,} images; the rest is placed afterwards."
        )
    sample = dataclasses.replace(table.take(rows), truth=None)  # training is not scored on its way
    with round.clock.step("training"):
        trained = train_round(round, sample, k, embedded.features[rows])
    with round.clock.step("placing"):
        about = RunFacts(
            title=table.name,
            root=table.root,
            round=round.number,
            earlier_runs=round.earlier_runs,
            confirmed_labels=len(round.given.labels),
            seconds=round.clock.seconds,
            sizes=round.sizes,
            choice_of_backbone=round.chosen.words,
        )
        counted = count.as_dict() if count else None
        run_id = f"{uuid.uuid4().hex[:12]}-{round.number}"
        given = round.given.names, round.taken, embedded.features
        told = RoundContext(
            run_id,
            about,
            counted,
            round.before,
            round.withdrawn,
            *given,
            columns=round.columns,
            trainings=trained.trainings,
        )
        rest = Remainder(table, rows, embedded.note, round.out)
        seconds, several = trained.run.loop.seconds(), trained.trainings
        parallel = len(several.seeds) if several else 1
        finish_run(trained.run, trained.prediction, seconds, parallel=parallel, rest=rest, told=told)
        clear(round.own)


def train_round(round: Round, sample: Table, k: int, embedded: np.ndarray) -> Outcome:
    """Train on the images of the sample, with one seed or several. embedded: their features of the frozen backbone."""
    data, backbone, asked = RunData(sample, k), round.chosen.backbone, methods_of(round.config)
    methods, remarks = fitting(asked, data, backbone, long_tail=round.long_tail)
    seeds = round.seeds
    if len(seeds) > 1 or asked[0] not in methods:  # else who does not take part would have had no turn
        for remark in remarks:
            log.info(remark)
    methods = methods[: len(seeds)]
    if len(seeds) > 1:
        turns = f", {methods_phrase(methods)}" if len(methods) > 1 else ""
        log.info(
            f"{len(seeds)} trainings with the seeds {seeds_text(seeds)}{turns}, side by side; images are placed "
            "where they agree (--seeds changes how many)."
        )
    experiments = [make_experiment(round, sample, k, method) for method in methods]
    return train(experiments, seeds, ResourceCache(data=data, backbone=backbone), sample, k, embedded)


def make_experiment(round: Round, sample: Table, k: int, method: str) -> Experiment:
    """The training of a discovery with that method, in the words of `holotype train`."""
    config, steps = round.config, resolved(round.config)["steps"]
    device = pick_device(config.device)
    experiment = plan_training(method, count_units(sample), k, steps, device, config.network)
    if experiment.preset != "default":
        log.info(f"On a CPU, {method} is trained with its preset {experiment.preset}.")
    experiment.dataset = sample.name or "images"
    experiment.seed, experiment.out, experiment.progress = config.seed, str(round.own), round.progress
    if round.long_tail:
        experiment.method.memax_target = "estimated"
    return experiment


def plan_training(
    method: str, n: int, k: int, steps: int, device: str, network: BackboneConfig
) -> Experiment:
    """How a discovery trains with a method on n images, each burst counted once."""
    plan = make_plan(n, steps, device)
    # no recipe: a folder called aircraft is no benchmark
    experiment = default_experiment(method, "images", pick_preset(method, device))
    experiment.k, experiment.device = k, device
    experiment.backbone, experiment.cache_views = network, plan.cache_views
    epochs = spread_epochs(plan.epochs, stages_of(experiment))
    experiment.train.epochs, experiment.train.batch_size = epochs, plan.batch_size
    return drop_unusable_cache(experiment)
