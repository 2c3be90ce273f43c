"""Run an experiment from its settings to its scores: begin, train, finish; `holotype.train`.

At the end it looks for signs that a method learned nothing: a loss that stands still, images that are all in one place.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holotype.clustering.metrics import has_truth
from holotype.data.arrays import dataset_path
from holotype.data.datasets.registry import check_dataset
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Method, Prediction, method_name
from holotype.models.token_cache import CacheViews, TokenCache
from holotype.results.discovery import RunFacts, write_features
from holotype.results.edits import REJECTED_NOTE
from holotype.results.lda import Centroids
from holotype.runs.experiment import Experiment, check_settings, resolve
from holotype.runs.identity import Identity, identity_of
from holotype.runs.model_io import save_model
from holotype.runs.predict import (
    REMAINDER_FOLDER,
    Placement,
    Predictions,
    RoundContext,
    build_discovery,
    place_images,
)
from holotype.runs.record import (
    Record,
    RunFolder,
    RunMeta,
    count_assigned,
    describe_provenance,
    score_held_out,
    score_table,
)
from holotype.runs.resources import ResourceCache, RunResources, build_method, check_fits, requested_views
from holotype.training.batches import training_rows
from holotype.training.callbacks import Callback, TrackedRun, Tracker, open_trackers, tracker_names
from holotype.training.checkpoint import clear_checkpoint, read_checkpoint_info
from holotype.training.loop import Loop
from holotype.utils.atomic import clean_partial_tree, refuse_links
from holotype.utils.device import threads_remark
from holotype.utils.distributed import rank
from holotype.utils.heartbeat import HEARTBEAT_FILE, running_heartbeat, update_heartbeat
from holotype.utils.locks import lock_folder

log = logging.getLogger(__name__)


@dataclass
class Run:
    """A run that is ready to train."""

    experiment: Experiment
    prepared: RunResources
    folder: RunFolder
    identity: Identity
    facts: dict[str, Any]
    loop: Loop
    cache: TokenCache | None
    views: CacheViews | None
    """Those it draws from; None in exact mode."""
    started: float = field(default_factory=time.monotonic)

    @property
    def mode(self) -> str:
        return self.loop.sources.mode(self.experiment.train.epochs, f"cached {self.views}")

    @property
    def epochs(self) -> int:
        """Over all stages; 0 for a method that does not train."""
        return sum(self.loop.epochs(stage) for stage in self.loop.stages)


def run_experiment(
    experiment: Experiment, shelf: ResourceCache | None = None, callbacks: Sequence[Callback] = ()
) -> Record:
    """Train (or continue, or find finished), score, write the run folder; returns the record of the run.

    shelf: keeps what the run is made of for the next one on the same data. callbacks: called besides those of
    `experiment.log`, and not for a run that was finished before.
    """
    started = time.monotonic()
    with own_folder(experiment.folder):
        run = begin_run(experiment, shelf or ResourceCache(), callbacks=callbacks)
        if not isinstance(run, Run):
            return run
        run.started = started
        with closing_callbacks(run):
            prediction = run.loop.fit()
            return finish_run(run, prediction, run.loop.seconds(), parallel=1)


@contextmanager
def closing_callbacks(run: Run) -> Iterator[None]:
    """Close the callbacks of a run, however it ends."""
    try:
        yield
    finally:
        for callback in run.loop.callbacks:
            callback.close()


@contextmanager
def own_folder(folder: Path) -> Iterator[None]:
    """Lock a run folder, tidy it up, and let its heart beat."""
    with lock_folder(folder):
        refuse_links(folder)
        clean_partial_tree(folder)
        with running_heartbeat(folder):
            yield


def begin_run(
    experiment: Experiment,
    shelf: ResourceCache,
    *,
    keep_caches: bool = False,
    labels: Table | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run | Record:
    """Everything up to the first step, or the record of a run that is finished.

    keep_caches: whether another run trains on the caches that are open. labels: a table of the same images, whose
    labels are learnt from instead.
    """
    torch.set_float32_matmul_precision(experiment.train.matmul)
    prepared, folder = shelf.get(experiment).with_labels(labels), RunFolder(experiment.folder)
    tracker_names(experiment.log)
    remarks = check_fits(experiment, prepared.data, prepared.backbone)
    wanted, identity = requested_views(experiment), identity_of(experiment, prepared)
    folder.claim(identity)
    if record := folder.finished():
        if rank() == 0:
            clean_up(folder)  # a kill may have come right after the scores
        return record
    for remark in remarks:
        log.info(remark)
    _warn_of_threads(prepared.compute.device)
    if rank() == 0:
        update_heartbeat(folder.path, phase="preparing")
    images, table, compute = prepared.images, prepared.data.table, prepared.compute
    facts = describe_provenance(prepared.backbone, table, compute) | {"images": prepared.placed}
    torch.manual_seed(experiment.seed)
    method = build_method(experiment, prepared.data, prepared.backbone)
    # before the folder is claimed, so that it takes the run with the setting that the refusal advises
    training_rows(table, experiment.train, method.stages())
    if rank() == 0:
        folder.begin(identity, experiment.as_dict(), facts)
    if not keep_caches:
        prepared.release()
    if wanted is None and experiment.cache_views not in ("auto", "off"):
        log.info(f"{experiment.method_name} does not train on tokens, so it runs without the token cache.")
    cache, views = prepared.take_cache(experiment, wanted, folder.path) if wanted else (None, None)
    loop = Loop(
        experiment.train,
        method,
        prepared.network(),
        images,
        table,
        compute,
        seed=experiment.seed,
        folder=folder.path,
        score=(lambda said: vars(score_table(table, said)[0])) if has_truth(table) else None,
        progress=experiment.progress,
        cache=cache,
        identity=identity.name,
        callbacks=[*callbacks, *_trackers(experiment, identity)] if rank() == 0 else (),
    )
    return Run(experiment, prepared, folder, identity, facts, loop, cache, views)


@cache
def _warn_of_threads(device: torch.device) -> None:
    """Say it once a process, however many runs it makes."""
    if remark := threads_remark(device):
        log.warning(remark)


def _trackers(experiment: Experiment, identity: Identity) -> list[Tracker]:
    saved = read_checkpoint_info(experiment.folder)
    steps = saved["counter"] if saved else 0
    return open_trackers(
        experiment.log, TrackedRun(experiment.folder, identity.name, experiment.as_dict(), steps)
    )


def finish_run(
    run: Run, prediction: Prediction, seconds: float, parallel: int, context: RoundContext | None = None
) -> Record:
    """Place and describe every image, score, and write what the run leaves behind; scores.json comes last.

    seconds: of training. parallel: runs that trained at once. context: of a discovery, which also places images that
    the run was not trained on, and keeps its features.
    """
    prepared, folder, loop, facts = run.prepared, run.folder, run.loop, run.facts
    started = time.monotonic()
    update_heartbeat(folder.path, phase="placing")
    about = RunFacts(title=loop.table.name, root=loop.table.root)
    context = context or RoundContext(uuid.uuid4().hex[:12], about)
    placed = place_images(loop, prediction, prepared, context, folder.path)
    scores, per_class = score_table(placed.table, placed.said)
    test = None
    if prepared.held_out is not None:
        test, by_class = score_held_out(loop, *prepared.held_out)
        if run.experiment.protocol.inductive:
            scores, per_class, test = test, by_class, None
    terms = loop.current.step.named_sums() if hasattr(loop, "current") else ()
    signs = collapse_signs(placed.table, placed.said, placed.k, folder.path / "metrics.jsonl", terms)
    if rank() == 0:
        write_results(run, placed, context, {"training": seconds, "placing": time.monotonic() - started})
    record = Record(
        # fewer views than asked for, where memory was short, are another run
        identity=dataclasses.replace(run.identity, views=str(run.views) if run.views else "off"),
        scores=scores,
        placed=count_assigned(placed.table, placed.said),
        made=RunMeta(
            variant=run.experiment.variant,
            mode=run.mode,
            epochs=run.epochs,
            seconds=round(seconds, 1),
            commit=facts["commit"],
            hardware=facts["hardware"],
            captured=loop.captured,
            processes=facts["processes"],
            parallel=parallel,
            decode_seconds=round(prepared.decode_seconds, 1),
            cache_seconds=round(run.cache.seconds, 1) if run.cache else 0.0,
            wall_seconds=round(time.monotonic() - run.started, 1),
        ),
        test=test,
        restarts=tuple(loop.guard.restarts),
        warnings=tuple(signs),
    )
    if rank() == 0:
        if per_class:
            folder.write_per_class(per_class)
        folder.finish(record)
        clean_up(folder)
        for callback in loop.callbacks:
            callback.on_finish(record)
    return record


def clean_up(folder: RunFolder) -> None:
    """Remove what a run needs to go on: one that is finished does not, and its state is twice its model."""
    shutil.rmtree(folder.path / REMAINDER_FOLDER, ignore_errors=True)
    clear_checkpoint(folder.path)
    (folder.path / HEARTBEAT_FILE).unlink(missing_ok=True)  # of a process that was killed


def write_results(run: Run, placed: Placement, context: RoundContext, seconds: dict[str, float]) -> None:
    """Calibrate, assemble and write: model, categories and assignments. seconds: by step, so far."""
    started, folder, loop, experiment = time.monotonic(), run.folder.path, run.loop, run.experiment
    centres = Centroids.measure(placed.features, placed.category, placed.k)
    placed.calibrate(context.embedded, loop.method)
    found = build_discovery(placed, context)
    seconds["describing"] = time.monotonic() - started
    timed = context.about.seconds
    found.facts = dataclasses.replace(
        found.facts,
        method=experiment.method_name,
        k=placed.k,
        in_use=len(found.categories),
        seed=experiment.seed,
        steps=loop.position.counter,
        epochs=run.epochs,
        batch_size=experiment.train.batch_size,
        mode=run.mode,
        trained_on=len(loop.rows.usable),
        # of a run that was gone on with, the loop knows what the processes before this one took
        seconds=timed | {step: round(max(n, timed.get(step, 0.0)), 1) for step, n in seconds.items()},
        provenance=run.facts,
    )
    backbone = run.prepared.backbone
    save_model(folder, experiment, backbone, loop, context.run_id, placed.ids, centres, placed.head)
    if context.about.round:
        write_features(folder, placed.features)
    found.save(folder)


def train(
    method: str | type[Method],
    dataset: Any,
    *,
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    **named: Any,
) -> Record:
    """Train a method on a data set and score it; returns the record of the run, which is also in its scores.json.

    Args:
        method: A name from `holotype methods`, one of your own as package.module:Class, or the class itself.
        dataset: The name of a benchmark; the path of a folder of images or of a CSV or Parquet file; or a data set in
            memory: (images, labels), (images, labels, truth), a Table, a data frame with the columns path and label, or
            a torch Dataset. "", None, NaN and, among whole numbers, -1 mean no label. What is in memory is written to
            runs/data.
        preset: Named settings of the method.
        settings: Whatever has a dot in its name, as in {"train.epochs": 20, "method.lambda_2": 0.1}.
        callbacks: Called at every step and epoch and at the end of training.
        named: The settings without a dot: root, labels, k, seed, out, device, devices, progress, store, cache_views,
            label. `holotype train METHOD DATASET --help` lists all of them, and `holotype.Experiment` holds them.

    A run that is found in the folder `out` is continued, and one that is finished is not trained again. Default:
    runs/DATASET-METHOD-PRESET-sSEED.

    Raises:
        InputError: With one sentence, for whatever cannot be used.
    """
    overrides = check_settings(settings)
    if not isinstance(callbacks, list | tuple) or not all(isinstance(one, Callback) for one in callbacks):
        raise InputError(f"callbacks is {callbacks!r}; give a list of objects of holotype.Callback.")
    if twice := overrides.keys() & named.keys():
        raise InputError(f"{min(twice)} is given twice, by name and in `settings`; leave one out.")
    where = dataset_path(dataset)
    experiment = resolve(method_name(method), where, preset, overrides | named)
    check_dataset(where)
    if experiment.out is None and not isinstance(dataset, str | os.PathLike):
        folder = experiment.folder  # the ending of the list says nothing of a data set in memory
        experiment.out = str(folder.with_name(folder.name.replace(".csv-", "-", 1)))
    return run_experiment(experiment, callbacks=callbacks)


FEWEST_EPOCHS = 3
"""Of fewer nobody can say that a term stands still."""
STILL = 1e-4
"""Largest change of a term, as a share of it, that counts as none."""


def collapse_signs(
    table: Table, prediction: Predictions, k: int, metrics: Path, terms: Collection[str]
) -> list[str]:
    """Return a sentence for each sign.

    metrics: the lines of the run. terms: of the loss of its last stage; none where nothing was trained.
    """
    return [*_places(table, prediction, k), *_constant_terms(metrics, terms)]


def _places(table: Table, prediction: Predictions, k: int) -> Iterator[str]:
    category = prediction.category[~table.labelled & (table.problem != REJECTED_NOTE)]
    category, known = category[category >= 0], len(table.known)
    if not len(category):
        return
    n = f"{len(category):,} unlabelled images"
    if len(np.unique(category)) == 1:
        yield f"All {n} are in one category."
    elif (category < known).all() and k > known:
        yield f"All {n} are in known classes, none in a new category."
    elif (category >= known).all():
        yield f"All {n} are in new categories, none in a known class."


def _constant_terms(metrics: Path, terms: Collection[str]) -> Iterator[str]:
    """A term that is 0 was switched off, and is none of them."""
    if not metrics.is_file():
        return
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    epochs = [line for line in lines if line.get("kind") == "epoch"]
    epochs = [line for line in epochs if line["stage"] == epochs[-1]["stage"]]
    for name in ("loss", *sorted(terms)):
        values = [line[name] for line in epochs if name in line]
        if len(values) < FEWEST_EPOCHS or not values[0] or (name != "loss" and len(terms) == 1):
            continue
        if max(values) - min(values) <= STILL * abs(values[0]):
            what = "The loss" if name == "loss" else f"The loss term {name}"
            yield (
                f"{what} stayed at {values[-1]:.4g} in all {len(values)} epochs, so nothing was learned from it; "
                "look for a rate that is too high, or a head without gradient."
            )
