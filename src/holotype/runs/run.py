"""A run from its settings to its scores: `begin`, train, `finish`. Every run goes this way."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from holotype.cluster.evaluate import has_truth
from holotype.errors import InputError
from holotype.machine.processes import rank
from holotype.methods import Method, Prediction
from holotype.models.cache import CacheViews, TokenCache
from holotype.runs.experiment import Experiment
from holotype.runs.folder import IDENTITY, SCORES, RunFolder
from holotype.runs.identity import Identity, identify
from holotype.runs.parts import make_method
from holotype.runs.prepared import Prepared, Shelf, make_compute
from holotype.runs.provenance import describe
from holotype.runs.record import Made, Record, Scores, count_placed, headline, score_held_out, score_table
from holotype.runs.views import drawn, views_needed, wanted_views
from holotype.train.loop import Loop

CACHE = "cache.json"
"""Names the views that a run trains on, so that a resumed run takes the same."""

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
    wanted = wanted_views(experiment)
    identity = identify(experiment, prepared.data, prepared.backbone, drawn(experiment, wanted))
    folder.claim(identity)
    if record := folder.finished():
        return record
    images = prepared.images
    facts = describe(prepared.backbone, prepared.data.table, compute) | {"images": prepared.placed}
    if rank() == 0:
        folder.write_json(IDENTITY, identity.as_dict())
        folder.write_config(experiment.as_dict())
        folder.write_json("provenance.json", facts)
    torch.manual_seed(experiment.seed)
    method = make_method(experiment, prepared.data, prepared.backbone)
    if not keep_caches:
        prepared.release()
    if wanted is None and experiment.cache_views not in ("auto", "off"):
        log.info(
            f"{experiment.method_name} does not train on tokens, so that it runs without the token cache."
        )
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
    if (folder.path / CACHE).exists():
        stored = folder.read_json(CACHE)
        try:
            fixed = CacheViews.parse(stored["views"])
        except (TypeError, KeyError, InputError) as error:
            raise InputError(
                f"{folder.path / CACHE} does not say which views the run was trained on ({error}); restore it "
                "from a copy, or choose another --out."
            ) from error
    cache = prepared.cache(wanted, method, fixed)
    needs = views_needed([method])
    views = cache.views if needs and needs.strong else CacheViews(cache.views.weak, 0)
    if fixed is None and rank() == 0:
        folder.write_json(CACHE, {"views": str(views)})
    return cache, views


def finish(run: Run, prediction: Prediction, seconds: float, parallel: int) -> Record:
    """Score, and write what the run leaves behind. seconds: of training. parallel: runs that trained at once."""
    prepared, data, folder = run.prepared, run.prepared.data, run.folder
    scores = score_table(data.table, prediction)
    record = Record(
        # fewer views than asked for, where memory was short, are another run
        identity=replace(run.identity, views=str(run.views) if run.views else "off"),
        scores=Scores(**headline(scores)),
        placed=count_placed(data.table, prediction),
        made=describe_making(run, seconds, parallel),
        test=score_held_out(run.loop, *prepared.held_out) if prepared.held_out is not None else None,
    )
    if rank() == 0:
        folder.write_model(run.loop.model_tensors())
        folder.write_assignments(
            data.table,
            data.k,
            prediction.category.numpy(),
            prediction.probability.numpy(),
            prediction.known_score.numpy(),
            prepared.images.note,
        )
        if scores["per_class"]:
            folder.write_per_class(scores["per_class"])
        folder.write_json(SCORES, record.as_dict())
    return record


def describe_making(run: Run, seconds: float, parallel: int) -> Made:
    """seconds: of training. parallel: runs that trained at once."""
    loop = run.loop
    return Made(
        variant=run.experiment.variant,
        mode=f"cached {run.views}" if run.views else loop.mode,
        epochs=sum(loop.epochs(stage) for stage in loop.method.stages()),
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
