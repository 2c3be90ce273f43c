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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holotype.clustering.metrics import has_truth, score
from holotype.config.schema import BackboneConfig, DiscoverConfig, parse_by_name, vector_config
from holotype.data.detections import CONFIDENCE
from holotype.data.hashing import file_stamps
from holotype.data.load import check_trainable, folder_name, load_table
from holotype.data.paths import is_address, relative
from holotype.data.table import Table
from holotype.discovery.backbone_choice import BackboneChoice, choose_backbone, preview_backbone
from holotype.discovery.collection import Collection, index_images, read_collection, with_current_paths
from holotype.discovery.dry_run import (
    estimate_time,
    exif_summary,
    inspect_collection,
    log_report,
    preview_plan,
)
from holotype.discovery.groups import round_config
from holotype.discovery.plan import Round, RoundPlan, apply_plan, plan_round
from holotype.discovery.round_runner import MIN_UNLABELLED, run_round
from holotype.discovery.rounds import (
    StepTimer,
    last_round,
    link_round,
    read_refused,
    replay_edits,
    round_folder,
    store_refused,
    write_changes,
)
from holotype.discovery.source import Source
from holotype.discovery.training_plan import applicable_methods, clear_trainings, methods_of
from holotype.embeddings.store import EmbeddingParts
from holotype.errors import InputError
from holotype.export.open_assign import with_proposals
from holotype.methods import find_method
from holotype.report import build_report
from holotype.report.projection import add_projection
from holotype.results.discovery import Discovery
from holotype.results.review_queue import write_queue
from holotype.runs.model_io import ModelConfig
from holotype.runs.record import IDENTITY_FILE, SCORES_FILE, RunFolder, Scores, headline_scores
from holotype.runs.resources import RunData, check_k
from holotype.runs.run import clean_up
from holotype.utils.atomic import clean_partial_tree, refuse_links
from holotype.utils.device import pick_device
from holotype.utils.heartbeat import running_heartbeat
from holotype.utils.locks import lock_folder
from holotype.utils.serialization import SchemaError, from_dict, to_dict

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
    vectors: bool = False,
    **settings: Any,
) -> Discovery:
    """Find the categories in a folder, a CSV or a Parquet file of images; the same as `holotype discover`.

    out: run folder. edits: file of edits. embeddings: folder that holotype embed wrote for these images,
    or for the collection that a sample (holotype sample) was drawn from. unlabelled, skip_missing, boxes,
    box_confidence, vectors: as in load_table. settings: the flags of the command, by the same names: k, method,
    backbone, arch, image_size, pool, mean, std, effort, steps, sample, bursts, seed, seeds, device.
    """
    config = parse_by_name(settings)
    table = load_table(
        images,
        Path(labels) if labels else None,
        unlabelled=unlabelled,
        skip_missing=skip_missing,
        boxes=Path(boxes) if boxes else None,
        box_confidence=box_confidence,
        vectors=vectors,
    )
    folder = Path(out) if out else find_folder(default_folder(images), table)
    source = Source.of(
        images,
        labels=labels,
        boxes=boxes,
        embeddings=embeddings,
        unlabelled=tuple(unlabelled),
        box_confidence=box_confidence if boxes else None,
        skip_missing=skip_missing,
        vectors=vectors,
    )
    return discover_table(
        table, config, folder, progress=progress, edits=edits, embeddings=embeddings, source=source
    )


def discover_table(
    table: Table,
    config: DiscoverConfig,
    folder: Path,
    *,
    progress: bool = True,
    edits: Path | str | None = None,
    embeddings: Path | str | None = None,
    source: Source | None = None,
) -> Discovery:
    """Find the categories in a table of images and write the run folder; resumes, and applies edits.

    embeddings: as in `discover`. source: where the table comes from, to be kept in the folder. edits: a file that the
    report exported. Names count at once. Where there is something that the last round was not given (other images or
    labels, other settings, more edits), a new round is trained.
    """
    folder, embedded = Path(folder), EmbeddingParts(Path(embeddings)) if embeddings else None
    config = with_vectors(config, table)
    check_table(table, config, folder)
    with lock_folder(folder), running_heartbeat(folder):
        refuse_links(folder)
        clean_partial_tree(folder)
        config, chosen = claim_folder(folder, table, config, embedded)
        plan = plan_round(folder, table, config, Path(edits) if edits else None, progress)
        apply_plan(plan)
        if source is not None:
            source.save(folder)
        for line in plan.lines():
            log.info(line)
        if plan.trains:
            chosen = chosen or reload_backbone(folder, config)
            check_method(plan.labelled, config, chosen)
            number, clock = plan.start(), StepTimer(folder)
            RunFolder(folder).write_config(to_dict(config))
            round = Round.of(plan, chosen, number=number, embedded=embedded, progress=progress, clock=clock)
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


def with_vectors(config: DiscoverConfig, table: Table) -> DiscoverConfig:
    """Return the settings with what stands for the network where the table brings vectors; InputError where a network
    is asked for as well."""
    if table.features is None:
        return config
    if config.network != DiscoverConfig().network:
        raise InputError(
            f"{table.name or 'The table'} brings vectors, through which no network looks; leave out --backbone and "
            "what goes with it."
        )
    return config.with_network(vector_config(table.features.shape[1]))


def preview_discovery(
    table: Table, config: DiscoverConfig, folder: Path, *, edits: Path | None = None, progress: bool = False
) -> Iterator[str]:
    """Yield in lines what a discovery would begin or go on with; InputError as it would. Nothing is written."""
    now = index_images(table, read_collection(folder), progress)
    seen = inspect_collection(table, config, now, progress)
    yield from (*seen.lines, *exif_summary(seen.table, config, seen.shots), *seen.unread)
    config = with_vectors(config, table)
    for part in (table, seen.table.take(seen.table.usable)):
        check_table(part, config, folder)
    plan = plan_round(folder, table, config, edits, now=now)
    yield from preview_plan(plan)
    if plan.trains:
        network, needed = preview_backbone(config.network, pick_device(config.device)), plan.to_embed
        config = round_config(plan.labelled, config)
        seeds = 1 if config is not plan.config else len(plan.inputs.seeds)
        yield estimate_time(plan.labelled, config, network, seeds, needed)


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
    found, proposals = with_proposals(folder, with_current_paths(applied.discovery, now))
    found.save(folder)
    write_queue(folder, found)
    for line in (*write_changes(folder, number, now), *proposals):
        log.info(line)
    with StepTimer(folder).step("the report"):
        build_report(found, folder, progress=progress)
    return found


def check_table(table: Table, config: DiscoverConfig, folder: Path) -> None:
    """Raise InputError for collections in which there is nothing to discover, and for methods that do not exist.

    folder: of the discovery. Once it was begun, edits have a say in what can be learned and placed: `RoundPlan.check`.
    """
    stored_backbone(folder, config.network)
    check_labels_remain(folder, table)
    methods = methods_of(config)
    for method in methods:
        find_method(method)
    if len(table) < MIN_UNLABELLED:
        raise InputError(
            f"There are only {len(table)} images in {table.name or 'the collection'}; discover needs at least "
            f"{MIN_UNLABELLED}, and hundreds to be of use."
        )
    if not last_round(folder):
        check_trainable(table, classes=0)
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


#
# It belongs to one discovery with one backbone. Images, labels and settings belong to a round; rounds with other ones
# go on in the same folder.

CLAIM_FORMAT = 4
"""Of the run folder as a whole."""
SAME_IMAGES = 0.5
"""Share of the images of a discovery, by path and size, that make a folder of another name the one that it was of."""


def default_folder(images: Path | str) -> Path:
    return Path("runs") / f"{folder_name(images)}-discover"


def find_folder(own: Path, table: Table) -> Path:
    """Return the run folder of a collection where nobody has named one: `own`, or that of a collection of the same
    images which is no longer where it was; once it has gone on with this one, it is that of this one."""
    if own.exists():
        return own
    paths = relative([str(path) for path in table.path], table.root)
    size = dict(zip(paths, map(_file_size, file_stamps(list(table.path))), strict=True))
    best, share = own, SAME_IMAGES
    for folder in sorted(own.parent.glob("*-discover")):
        try:
            images, first = read_collection(folder), read_collection(round_folder(folder, 1))
        except InputError:  # nobody has asked for that one
            continue
        if images is None or not images.root or is_address(images.root):
            continue
        moved = first is not None and first.root != images.root == table.root
        if Path(images.root).exists() and not moved:
            continue
        same = sum(size.get(path) == _file_size(entry.stamp) for path, entry in images.images.items())
        if same > share * len(images.images):
            best, share = folder, same / len(images.images)
    if best != own:
        log.info(f"{best} holds a discovery of these images and is continued; --out begins another one.")
    return best


def _file_size(stamp: str) -> str:
    """Bytes of a file. A copy has another time."""
    return stamp.partition("-")[0]


def check_labels_remain(folder: Path, table: Table) -> None:
    """Raise InputError where the images of the discovery in a folder had labels and come without any: mostly a list was
    forgotten."""
    if table.labelled.any() or (images := read_collection(folder)) is None:
        return
    if had := sum(bool(entry.label) for entry in images.images.values()):
        raise InputError(
            f"No image of {table.name} comes with a label, and in {folder} {had:,} did; name their list again with "
            "--labels, or choose another folder with --out."
        )


def claim_folder(
    folder: Path, table: Table, config: DiscoverConfig, embedded: EmbeddingParts | None = None
) -> tuple[DiscoverConfig, BackboneChoice | None]:
    """Make sure that the folder is new or of a discovery with this backbone. embedded: features that it must have made.

    Returns the settings with the backbone by its name (where `auto` was asked for, the one that was taken when the
    discovery began), and the backbone where it had to be chosen now.
    """
    if (stored := stored_backbone(folder, config.network)) is not None:
        return config.with_network(stored), None
    chosen = choose_backbone(config.network, pick_device(config.device))
    check_method(table, config, chosen)
    if embedded is not None:
        embedded.check_network(chosen.backbone)
    log.info(chosen.words)
    content = {"format": CLAIM_FORMAT, "backbone": to_dict(chosen.config), "choice_of_backbone": chosen.words}
    RunFolder(folder).write_json(IDENTITY_FILE, content)
    return config.with_network(chosen.config), chosen


def reload_backbone(folder: Path, config: DiscoverConfig) -> BackboneChoice:
    """Load the backbone of a discovery that goes on, with the sentence of when it was chosen."""
    chosen = choose_backbone(config.network, pick_device(config.device))
    words = str(RunFolder(folder).read_json(IDENTITY_FILE).get("choice_of_backbone", ""))
    log.info(words)
    return dataclasses.replace(chosen, words=words)


def stored_backbone(folder: Path, wanted: BackboneConfig) -> BackboneConfig | None:
    """Return the backbone that the discovery in a folder was begun with, None where there is none; InputError where
    another one is wanted, or where the folder holds something else. What is not said of it stays as it was."""
    if not (folder / IDENTITY_FILE).is_file():
        return None
    identity = RunFolder(folder).read_json(IDENTITY_FILE)
    if not isinstance(identity, dict) or identity.get("format") != CLAIM_FORMAT:
        raise InputError(
            f"{folder} holds a run of another kind or version (no discovery of format {CLAIM_FORMAT}); "
            "choose another folder with --out, or delete this one to start anew."
        )
    try:
        stored = from_dict(BackboneConfig, identity.get("backbone"))
    except SchemaError as problem:
        raise InputError(
            f"{folder / IDENTITY_FILE} cannot be read (backbone: {problem}); choose another folder with --out."
        ) from problem
    for name, value in vars(wanted).items():
        begun = getattr(stored, name)
        if value not in (None, begun) and (name, value) not in (("name", "auto"), ("pool", "auto")):
            raise InputError(
                f"{folder} was begun with {'backbone' if name == 'name' else name} = {begun!r}, not {value!r}, and "
                "features of two networks cannot be compared; leave it as it was, or choose another folder with --out."
            )
    return stored


def check_method(table: Table, config: DiscoverConfig, chosen: BackboneChoice) -> None:
    """Refuse what cannot be trained before anything is written; a k that is estimated is looked at then."""
    k = max(len(table.known) + 1 if config.k == "auto" else config.k, len(table.known))
    applicable_methods(methods_of(round_config(table, config)), RunData(table, k), chosen.backbone)
