"""Discover categories in a folder of images: embed, count, train, assign, describe, report.

Every step leaves its result in the run folder, so that a stopped run goes on where it was:

identity.json, config.yaml           the backbone of all rounds, and what was asked for last
collection.parquet                   the images as they were seen last
embeddings/, count.json              of the steps on the way, for all rounds
rounds/N/                            what each round was given and found, before edits: a run folder like any other
                                     (rounds.py)
model.json, model.safetensors, features.npy, provenance.json, scores.json   those of the last round
discovery.json, assignments.*, report.html   what the last round found, with edits
queue.csv                            the images whose answers are worth most
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holotype.clustering.metrics import has_truth, score
from holotype.config.schema import DiscoverConfig, parse_by_name
from holotype.data.detections import CONFIDENCE
from holotype.data.load import check_trainable, folder_name, load_table
from holotype.data.table import Table
from holotype.discovery.backbone_choice import BackboneChoice
from holotype.discovery.choose_k import check_long_tail
from holotype.discovery.collection import Collection, with_current_paths
from holotype.discovery.dry_run import log_report
from holotype.discovery.ensemble_training import choose_trainings, clear_trainings, store_seeds
from holotype.discovery.plan import Round, RoundPlan, apply_plan, plan_round
from holotype.discovery.round_diff import write_changes
from holotype.discovery.round_runner import MIN_UNLABELLED, run_round
from holotype.discovery.rounds import (
    StepTimer,
    last_round,
    link_round,
    read_refused,
    replay_edits,
    round_folder,
    store_refused,
)
from holotype.discovery.run_folder import (
    check_labels_remain,
    check_method,
    claim_folder,
    find_folder,
    reload_backbone,
    stored_backbone,
)
from holotype.discovery.training_plan import methods_of
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from holotype.methods import find_method
from holotype.report import build_report
from holotype.report.projection import add_projection
from holotype.results.discovery import Discovery
from holotype.results.review_queue import write_queue
from holotype.runs.model_io import ModelConfig
from holotype.runs.record import SCORES_FILE, RunFolder, Scores, headline_scores
from holotype.runs.resources import check_k
from holotype.runs.run import clean_up
from holotype.utils.atomic import clean_partial_tree, refuse_links
from holotype.utils.heartbeat import running_heartbeat
from holotype.utils.locks import lock_folder
from holotype.utils.serialization import to_dict

log = logging.getLogger(__name__)


def discover(
    images: Path | str,
    labels: Path | str | None = None,
    *,
    out: Path | str | None = None,
    edits: Path | str | None = None,
    embeddings: Path | str | None = None,
    progress: bool = True,
    unlabelled: Sequence[str] = (),
    skip_missing: bool = False,
    boxes: Path | str | None = None,
    box_confidence: float = CONFIDENCE,
    **settings: Any,
) -> Discovery:
    """Find the categories in a folder, a CSV or a Parquet file of images; the same as `holotype discover`.

    out: run folder. edits: file of edits. embeddings: folder that holotype embed wrote for these images,
    or for the collection that a sample (holotype sample) was drawn from. unlabelled, skip_missing, boxes,
    box_confidence: as in load_table. settings: the flags of the command, by the same names: k, method, backbone,
    arch, image_size, pool, mean, std, steps, sample, long_tail, bursts, seed, seeds, device.
    """
    config = parse_by_name(settings)
    given = None if labels is None else Path(labels)
    table = load_table(
        images,
        given,
        unlabelled=unlabelled,
        skip_missing=skip_missing,
        boxes=Path(boxes) if boxes else None,
        box_confidence=box_confidence,
    )
    folder = Path(out) if out else find_folder(default_folder(images), table)
    return discover_table(
        table,
        config,
        folder,
        progress=progress,
        edits=Path(edits) if edits else None,
        embeddings=Path(embeddings) if embeddings else None,
    )


def default_folder(images: Path | str) -> Path:
    return Path("runs") / f"{folder_name(images)}-discover"


def discover_table(
    table: Table,
    config: DiscoverConfig,
    folder: Path,
    *,
    progress: bool = True,
    edits: Path | None = None,
    embeddings: Path | None = None,
) -> Discovery:
    """Find the categories in a table of images and write the run folder; resumes, and applies edits.

    embeddings: as in `discover`. edits: a file that the report exported. Names count at once. Where there is something
    that the last round was not given (other images or labels, other settings, more edits), a new round is trained.
    """
    folder, embedded = Path(folder), EmbeddingParts(embeddings) if embeddings else None
    check_table(table, config, folder)
    with lock_folder(folder), running_heartbeat(folder):
        refuse_links(folder)
        clean_partial_tree(folder)
        config, chosen = claim_folder(folder, table, config, embedded)
        plan = plan_round(folder, table, config, edits, progress)
        apply_plan(plan)
        for line in plan.lines():
            log.info(line)
        if plan.trains:
            round = begin_round(plan, chosen or reload_backbone(folder, config), progress, embedded)
            log_report(round, table)
            for line in plan.edit_lines():
                log.info(line)
            store_refused(folder, plan.history.left)
            run_round(round)
        elif plan.last:
            # a command that was killed at the end of its round has left what only an unfinished one needs
            own = round_folder(folder, plan.last)
            clean_up(RunFolder(own))
            clear_trainings(own)
            score_round(own, plan)
        return write_round_result(folder, plan.images, progress)


def begin_round(
    plan: RoundPlan, chosen: BackboneChoice, progress: bool, embedded: EmbeddingParts | None = None
) -> Round:
    """Begin or resume a round as planned; what cannot be trained is refused."""
    folder, config = plan.folder, plan.config
    check_method(plan.labelled, config, chosen)
    number = plan.start()
    RunFolder(folder).write_config(to_dict(config))
    seeds = tuple(range(config.seed, config.seed + choose_trainings(folder, config, len(plan.source))))
    store_seeds(round_folder(folder, number), seeds)
    return Round.of(
        plan,
        chosen,
        number=number,
        seeds=seeds,
        embedded=embedded,
        progress=progress,
        clock=StepTimer(folder),
    )


def write_round_result(folder: Path, now: Collection, progress: bool) -> Discovery:
    """Apply the log of edits to the last round, and write model, discovery, assignments and report."""
    number = last_round(folder)
    with StepTimer(folder).step("the map"):
        add_projection(round_folder(folder, number), progress=progress)
    applied, before = replay_edits(folder).applied, read_refused(folder)
    assert applied is not None  # a round has come to its end
    for problem in applied.problems:
        if problem not in before:
            log.warning(problem)
    link_round(folder, number)
    found = with_current_paths(applied.discovery, now)
    found.save(folder)
    write_queue(folder, found)
    for line in write_changes(folder, number, now):
        log.info(line)
    with StepTimer(folder).step("the report"):
        build_report(found, folder, progress=progress)
    return found


# -- before anything is computed --------------------------------------------------------------------------


def check_table(table: Table, config: DiscoverConfig, folder: Path) -> None:
    """Raise InputError for collections in which there is nothing to discover, and for methods that do not exist.

    folder: of the discovery. Once it was begun, edits have a say in what can be learned and placed: `RoundPlan.check`.
    """
    stored_backbone(folder, config.network)
    check_labels_remain(folder, table)
    methods = methods_of(config)
    for method in methods:
        find_method(method)
    if config.long_tail == "yes":
        check_long_tail(methods)
    if len(table) < MIN_UNLABELLED:
        raise InputError(
            f"There are only {len(table)} images in {table.name or 'the collection'}; discover needs at least "
            f"{MIN_UNLABELLED}, and hundreds to be of use."
        )
    if not last_round(folder):
        check_trainable(table)
    if config.k != "auto":
        check_k(config.k, table, table.name)


def score_round(own: Path, plan: RoundPlan) -> None:
    """Score a finished round against the truth of the table, if it has one. own: folder of the round."""
    record, table = RunFolder(own).finished(), plan.source
    if record is None or not has_truth(table):
        return
    found = with_current_paths(Discovery.load(own), plan.images)
    index = {id: i for i, id in enumerate(ModelConfig.read(own).ids)}
    images = found.images.set_index("path")
    table = table.take(np.isin(table.path, images.index))
    images = images.loc[table.path]
    id = images["category_id"].to_numpy(dtype=object)
    judged = dataclasses.replace(
        table,
        label=np.where(images["label"] != "", id, ""),  # a labelled image lies in its class
        known=found.known,
        problem=np.where(id == "", "in no category", ""),
    )
    scores = score(judged, [index.get(one, -1) for one in id], images["known_score"])
    if (now := Scores(**headline_scores(scores))) != record.scores:
        RunFolder(own).write_per_class(scores["per_class"])
        RunFolder(own).write_json(SCORES_FILE, dataclasses.replace(record, scores=now).as_dict())
