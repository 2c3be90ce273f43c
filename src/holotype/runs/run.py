"""A run from its settings to its scores: `begin`, train, `finish`. Every run goes this way, discoveries too."""

from __future__ import annotations

import dataclasses
import logging
import shutil
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import torch

from holotype.clustering.metrics import has_truth
from holotype.errors import InputError
from holotype.methods import Method, Prediction
from holotype.models.token_cache import CacheViews, TokenCache
from holotype.results.centroids import Centroids
from holotype.results.discovery import RunFacts
from holotype.results.features import write_features
from holotype.runs.discovered import put_together, with_opinion
from holotype.runs.experiment import Experiment
from holotype.runs.folder import IDENTITY, SCORES, RunFolder
from holotype.runs.identity import Identity, identify
from holotype.runs.later import as_if_later, asks_opinion, place_all
from holotype.runs.outcome import (
    REST,
    Placed,
    Rest,
    Told,
    carry_ids,
    name_categories,
    one_category,
    place_own,
)
from holotype.runs.parts import check_fits, make_method
from holotype.runs.prepared import Prepared, Shelf, make_compute
from holotype.runs.provenance import describe
from holotype.runs.record import Made, Record, Scores, count_placed, headline, score_held_out, score_table
from holotype.runs.trained import save_trained
from holotype.runs.views import drawn, tell_partial, views_needed, wanted_views
from holotype.training.batches import training_rows
from holotype.training.checkpoint import clear_checkpoint
from holotype.training.loop import Loop
from holotype.utils.atomic import clean_partial_tree, refuse_links
from holotype.utils.distributed import rank
from holotype.utils.heartbeat import HEARTBEAT_FILE as HEARTBEAT
from holotype.utils.heartbeat import running_heartbeat, update_heartbeat
from holotype.utils.locks import lock_folder
from holotype.utils.serialization import FileSchema

CACHE = "cache.json"
"""Names the views that a run trains on, so that a resumed run takes the same."""
VIEWS = FileSchema(1, "restore it from a copy, or choose another --out")

log = logging.getLogger(__name__)


@dataclass
class Run:
    """A run that is ready to train."""

    experiment: Experiment
    prepared: Prepared
    folder: RunFolder
    identity: Identity
    facts: dict[str, Any]
    loop: Loop
    cache: TokenCache | None
    views: CacheViews | None
    """Those it draws from; None in exact mode."""
    started: float = field(default_factory=time.monotonic)


def run_experiment(experiment: Experiment, shelf: Shelf | None = None) -> Record:
    """Train (or continue, or find finished), score, write the run folder; returns the record of the run.

    shelf: keeps what the run is made of for the next one on the same data.
    """
    started = time.monotonic()
    with lock_folder(experiment.folder):
        refuse_links(experiment.folder)
        clean_partial_tree(experiment.folder)
        with running_heartbeat(experiment.folder):
            found = begin(experiment, shelf or Shelf())
            if not isinstance(found, Run):
                return found
            found.started = started
            prediction = found.loop.fit()
            return finish(found, prediction, found.loop.seconds(), parallel=1)


def begin(experiment: Experiment, shelf: Shelf, *, keep_caches: bool = False) -> Run | Record:
    """Everything up to the first step, or the record of a run that is finished.

    keep_caches: whether another run trains on the caches that are open.
    """
    torch.set_float32_matmul_precision(experiment.train.matmul)
    compute = make_compute(experiment)
    prepared = shelf.get(experiment, compute)
    folder = RunFolder(experiment.folder)
    said = check_fits(experiment, prepared.data, prepared.backbone)
    wanted = wanted_views(experiment)
    identity = identify(experiment, prepared.data, prepared.backbone, drawn(experiment, wanted))
    folder.claim(identity)
    if record := folder.finished():
        if rank() == 0:
            tidy(folder)  # a kill may have come right after the scores
        return record
    for sentence in said:
        log.info(sentence)
    if rank() == 0:
        update_heartbeat(folder.path, phase="preparing")
    images = prepared.images
    facts = describe(prepared.backbone, prepared.data.table, compute) | {"images": prepared.placed}
    torch.manual_seed(experiment.seed)
    method = make_method(experiment, prepared.data, prepared.backbone)
    # before the folder is claimed, so that it takes the run with the setting that the refusal advises
    training_rows(prepared.data.table, experiment.train, method.stages())
    if rank() == 0:
        folder.write_json(IDENTITY, identity.as_dict())
        folder.write_config(experiment.as_dict())
        folder.write_json("provenance.json", facts)
    if not keep_caches:
        prepared.release()
    if wanted is None and experiment.cache_views not in ("auto", "off"):
        log.info(f"{experiment.method_name} does not train on tokens, so it runs without the token cache.")
    if wanted and (partial := tell_partial(method.stages(), experiment.method_name)):
        log.info(partial)
    cache, views = take_cache(prepared, folder, wanted, method) if wanted else (None, None)
    table = prepared.data.table

    def score_now(prediction: Prediction) -> dict[str, Any]:
        return headline(score_table(table, prediction))

    loop = Loop(
        experiment.train,
        method,
        prepared.network(),
        images,
        table,
        compute,
        seed=experiment.seed,
        folder=folder.path,
        score=score_now if has_truth(table) else None,
        progress=experiment.progress,
        cache=cache,
        identity=identity.name,
    )
    return Run(experiment, prepared, folder, identity, facts, loop, cache, views)


def take_cache(
    prepared: Prepared, folder: RunFolder, wanted: CacheViews, method: Method
) -> tuple[TokenCache, CacheViews]:
    """The cache of a run, and the views it draws from, which are written down.

    A run that goes on takes the views it began with. The cache may hold strong views for the sake of other runs:
    they are not counted for a method that draws none, so that it is the same run alone and in a sweep.
    """
    fixed = None
    file = folder.path / CACHE
    if file.exists():
        told = VIEWS.read(file).get("views")
        try:
            fixed = CacheViews.parse(str(told))
        except InputError as error:
            raise VIEWS.broken(file, "it does not say which views the run was trained on") from error
    cache = prepared.cache(wanted, method, fixed)
    needs = views_needed([method])
    views = cache.views if needs and needs.strong else CacheViews(cache.views.weak, 0)
    if fixed is None and rank() == 0:
        VIEWS.write(file, {"views": str(views)})
    return cache, views


def finish(
    run: Run,
    prediction: Prediction,
    seconds: float,
    parallel: int,
    *,
    rest: Rest | None = None,
    told: Told | None = None,
) -> Record:
    """Place and describe every image, score, and write what the run leaves behind; scores.json comes last.

    seconds: of training. parallel: runs that trained at once. rest: the collection that the run's images were drawn
    from; the others are placed as well. told: what a discovery says of its round, which keeps its features.
    """
    prepared, folder, loop = run.prepared, run.folder, run.loop
    started = time.monotonic()
    update_heartbeat(folder.path, phase="placing")
    placed = place_own(loop, prediction, prepared.data.k, prepared.images.note)
    shards, progress = folder.path / REST, run.experiment.progress
    placed = place_all(placed, loop, prepared.backbone, rest, told, shards, progress)
    if (alike := one_category(placed)) and rank() == 0:
        log.warning(alike)
    scores = score_table(placed.table, placed.said)
    test = score_held_out(loop, *prepared.held_out) if prepared.held_out is not None else None
    if rank() == 0:
        told = told or Told(uuid.uuid4().hex[:12], RunFacts(title=placed.table.name, root=placed.table.root))
        write_outcome(run, placed, told, {"training": seconds, "placing": time.monotonic() - started})
    record = Record(
        # fewer views than asked for, where memory was short, are another run
        identity=dataclasses.replace(run.identity, views=str(run.views) if run.views else "off"),
        scores=Scores(**headline(scores)),
        placed=count_placed(placed.table, placed.said),
        made=describe_making(run, seconds, parallel),
        test=test,
        restarts=tuple(loop.guard.restarts),
    )
    if rank() == 0:
        if scores["per_class"]:
            folder.write_per_class(scores["per_class"])
        folder.write_json(SCORES, record.as_dict())
        tidy(folder)
    return record


def tidy(folder: RunFolder) -> None:
    """Remove what a run needs to go on: one that is finished does not, and its state is twice its model."""
    shutil.rmtree(folder.path / REST, ignore_errors=True)
    clear_checkpoint(folder.path)
    (folder.path / HEARTBEAT).unlink(missing_ok=True)  # of a process that was killed


def write_outcome(run: Run, placed: Placed, told: Told, seconds: dict[str, float]) -> None:
    """Model, categories and assignments. seconds: by step, so far."""
    started, folder, loop = time.monotonic(), run.folder.path, run.loop
    carried = carry_ids(placed, told.before, told.withdrawn)
    ids = name_categories(placed.category, placed.table.known, placed.k, carried, told.taken)
    centres = Centroids.measure(placed.features, placed.category, placed.k)
    placed = with_opinion(placed, told.embedded)
    judged = placed.opinion
    opinion = judged.opinion if judged and asks_opinion(loop.method) else None
    later = as_if_later(placed, loop.method, opinion) if judged and judged.labelled else None
    found = put_together(placed, ids, told, later)
    seconds["describing"] = time.monotonic() - started
    made = describe_making(run, seconds["training"], 1)
    about = dataclasses.replace(
        found.facts,
        method=run.experiment.method_name,
        k=placed.k,
        in_use=len(found.categories),
        seed=run.experiment.seed,
        steps=loop.position.counter,
        epochs=made.epochs,
        batch_size=run.experiment.train.batch_size,
        mode=made.mode,
        trained_on=len(loop.rows.usable),
        seconds=told.about.seconds
        | {s: round(n, 1) for s, n in seconds.items() if s not in told.about.seconds},
        provenance=run.facts,
    )
    save_trained(
        folder,
        experiment=run.experiment,
        backbone=run.prepared.backbone,
        method=loop.method,
        tensors=loop.model_tensors(),
        known=placed.table.known,
        ids=ids,
        centres=centres,
        run_id=told.run_id,
        opinion=opinion.kept() if opinion else None,
    )
    if told.about.round:
        write_features(folder, placed.features)
    dataclasses.replace(found, facts=about).save(folder)


def describe_making(run: Run, seconds: float, parallel: int) -> Made:
    """seconds: of training. parallel: runs that trained at once."""
    loop = run.loop
    return Made(
        variant=run.experiment.variant,
        mode=loop.sources.mode(run.experiment.train.epochs, f"cached {run.views}"),
        epochs=sum(loop.epochs(stage) for stage in loop.stages),
        seconds=round(seconds, 1),
        commit=run.facts["commit"],
        hardware=run.facts["hardware"],
        captured=loop.captured,
        processes=run.facts["processes"],
        parallel=parallel,
        decode_seconds=round(run.prepared.decode_seconds, 1),
        cache_seconds=round(run.cache.seconds, 1) if run.cache else 0.0,
        wall_seconds=round(time.monotonic() - run.started, 1),
    )
