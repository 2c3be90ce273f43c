"""The steps of a discovery: count categories, train, place every image, describe what was found."""

from __future__ import annotations

import dataclasses
import json
import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from holotype.categories.found import Discovery, category_name
from holotype.categories.layout import layout
from holotype.categories.relations import describe
from holotype.cluster.count import CountEstimate, count_key, estimate_table, write_count
from holotype.cluster.evaluate import has_truth, score
from holotype.data.table import Table
from holotype.discovery.best_backbone import Chosen
from holotype.discovery.plan import draw_sample, make_plan
from holotype.discovery.rounds import run_id
from holotype.discovery.timing import Clock
from holotype.errors import InputError
from holotype.machine.device import pick_device
from holotype.machine.files import write_beside
from holotype.models.backbone import state_digest
from holotype.runs.embed import Embeddings, embed_table
from holotype.runs.experiment import Experiment
from holotype.runs.parts import Data
from holotype.runs.prepared import Shelf
from holotype.runs.run import Run, begin
from holotype.runs.settings import default_experiment
from holotype.runs.trained import save_trained
from holotype.train.encode import place
from holotype.train.sources import table_features

if TYPE_CHECKING:
    from holotype.discovery.workflow import DiscoverConfig

COUNT = "count.json"
log = logging.getLogger(__name__)


@dataclass
class Placed:
    """Every image of a table after training."""

    features: np.ndarray
    """(N, D) float32; NaN for unread images."""
    category: np.ndarray
    """(N,) index of the category, -1 for unread images; labelled ones lie in the class of their label."""
    said: np.ndarray
    """(N,) what the method says, labelled or not."""
    probability: np.ndarray
    known_score: np.ndarray
    ids: list[str]
    """Ids of all k categories: known classes, then new-01, ... with the largest first."""
    facts: dict[str, Any]


@dataclass
class Round:
    """One way from a table to categories."""

    table: Table
    config: DiscoverConfig
    chosen: Chosen
    folder: Path
    number: int
    confirmed: int
    """Labels that edits have confirmed."""
    progress: bool
    clock: Clock = field(default_factory=Clock)

    @property
    def run_id(self) -> str:
        return run_id(self.folder, self.number)


# -- how many -------------------------------------------------------------------------------------------


def count_categories(round: Round, features: np.ndarray) -> CountEstimate:
    """Estimate k from the embeddings, or read what an earlier call with the same input found."""
    table, config = round.table, round.config
    key = count_key(table, round.chosen.backbone.digest, config.seed)
    path = round.folder / COUNT
    if path.is_file():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.get("of") == key:
                return CountEstimate.from_dict(content)
        except (ValueError, KeyError, TypeError, AttributeError):
            log.warning(f"{path} cannot be read, and is made anew.")
    count = estimate_table(table, features, config.device, seed=config.seed, progress=round.progress)
    write_count(path, count, key)
    return count


# -- training -------------------------------------------------------------------------------------------


def find_categories(round: Round, k: int) -> Placed:
    """Train on the table, or on a sample of it, and place every image."""
    table, settings = round.table, round.config.resolved()
    rows = draw_sample(table, settings["sample"], round.config.seed)
    if len(rows) < int(table.usable.sum()):
        log.info(
            f"Training on a sample of {len(rows):,} of the {len(table):,} images; the rest is placed afterwards."
        )
    sample = dataclasses.replace(table.take(rows), truth=None)
    experiment = make_experiment(round, sample, k)
    clear_other(round.folder / "training", sample)
    with round.clock.step("training"):
        run = begin(experiment, Shelf(data=Data(sample, k), backbone=round.chosen.backbone))
        assert isinstance(run, Run)  # scores.json, which marks a finished run, is never written here
        run.loop.fit()
    with round.clock.step("placing"):
        placed = place_images(run, table, all_features(round, run, rows), k)
    save_trained(
        round.folder,
        experiment=experiment,
        backbone=round.chosen.backbone,
        method=run.loop.method,
        tensors=run.loop.model_tensors(),
        known=table.known,
        ids=placed.ids,
        features=placed.features,
        category=placed.category,
        run_id=round.run_id,
    )
    placed.facts = {**run.facts, **settings, "k": k, "mode": run.loop.mode, "trained_on": len(rows)}
    placed.facts |= {"epochs": experiment.train.epochs, "batch_size": experiment.train.batch_size}
    return placed


def make_experiment(round: Round, sample: Table, k: int) -> Experiment:
    """The training of a discovery, in the words of `holotype train`."""
    config, device = round.config, pick_device(round.config.device)
    plan = make_plan(len(sample), config.resolved()["steps"], device)
    experiment = default_experiment(
        config.method, "images"
    )  # no recipe: a folder called aircraft is no benchmark
    experiment.dataset = sample.name or "images"
    experiment.k, experiment.seed, experiment.out = k, config.seed, str(round.folder / "training")
    experiment.device, experiment.progress = device, round.progress
    experiment.backbone, experiment.cache_views = config.backbone, plan.cache_views
    experiment.train.epochs, experiment.train.batch_size = plan.epochs, plan.batch_size
    if config.long_tail:
        if not hasattr(experiment.method, "memax_target"):
            raise InputError(f"--long-tail is not for {config.method}; use rpc, simgcd or debgcd.")
        experiment.method.memax_target = "estimated"
    return experiment


def clear_other(folder: Path, sample: Table) -> None:
    """Remove the training of an earlier round, whose labels were others; what it found is in rounds/."""
    try:
        table = json.loads((folder / "identity.json").read_text(encoding="utf-8")).get("table")
    except (OSError, ValueError, AttributeError):
        return
    if table != sample.fingerprint():
        shutil.rmtree(folder)


# -- placing --------------------------------------------------------------------------------------------


def all_features(round: Round, run: Run, rows: np.ndarray) -> np.ndarray:
    """(N, D) trained features of every image; those that were not trained on come in a stream, in shards."""
    loop, table = run.loop, round.table
    loop.modules.eval()
    with torch.no_grad():
        trained = table_features(loop.source, loop.rows.usable, len(rows)).float().cpu().numpy()
    features = np.full((len(table), trained.shape[1]), np.nan, dtype=np.float32)
    features[rows] = trained
    rest = np.setdiff1d(np.flatnonzero(table.usable), rows)
    if len(rest):
        tail = loop.source.encoder.tail
        learned = dataclasses.replace(
            run.prepared.backbone, tail=tail, digest=state_digest(tail.state_dict())
        )
        folder = round.folder / "training" / "rest"
        streamed = embed_table(table.take(rest), learned, loop.compute, folder, progress=round.progress)
        features[rest] = streamed.features
    return features


def place_images(run: Run, table: Table, features: np.ndarray, k: int) -> Placed:
    """The method's word on every image; a label has the last one."""
    method, dtype = run.loop.method, run.loop.source.encoder.dtype
    usable = torch.from_numpy(table.usable.copy()).nonzero().flatten()
    with torch.no_grad():
        known = torch.from_numpy(np.nan_to_num(features)).to(run.loop.device, dtype)
        prediction = place(method, known, usable)
    said = prediction.category.numpy()
    labelled = table.labelled & table.usable
    category = np.where(labelled, table.target, said)
    probability = np.where(labelled, 1.0, prediction.probability.numpy())
    return Placed(
        features,
        category,
        said,
        probability,
        prediction.known_score.numpy(),
        name_categories(category, table, k),
        {},
    )


def name_categories(category: np.ndarray, table: Table, k: int) -> list[str]:
    """Ids of the k categories by index; novel ones are numbered by size, and those without an image come last."""
    n_known = len(table.known)
    size = np.bincount(category[category >= 0], minlength=k)[n_known:]
    rank = np.empty(k - n_known, dtype=int)
    rank[np.argsort(-size, kind="stable")] = np.arange(k - n_known)
    return [*table.known, *(category_name(n_known + int(r), table.known, k) for r in rank)]


# -- describing -----------------------------------------------------------------------------------------


def put_together(
    round: Round, embedded: Embeddings, placed: Placed, count: CountEstimate | None
) -> Discovery:
    """Relations, map and scores: the discovery as it will be shown."""
    table = round.table
    with round.clock.step("describing"):
        told = describe(
            placed.features,
            placed.category,
            placed.ids,
            table.known,
            list(table.label),
            placed.probability,
            placed.known_score,
            list(table.path),
        )
        point = layout(placed.features, category=placed.category, seed=round.config.seed)
    images = make_frame(table, embedded, placed, told.typicality, told.doubtful, point)
    write_features(round.folder, placed.features)
    facts = placed.facts | {
        "title": table.name,
        "root": table.root,
        "round": round.number,
        "earlier_runs": [run_id(round.folder, number) for number in range(1, round.number)],
        "confirmed_labels": round.confirmed,
        "seconds": round.clock.seconds,
        "choice_of_backbone": round.chosen.words,
    }
    if has_truth(table):
        scores = score(table, placed.category, placed.known_score)
        facts["scores"] = {key: value for key, value in scores.items() if key != "per_class"}
    counted = count.as_dict() if count else None
    # known classes in their order, then new-01, new-02, ...: the largest first
    categories = sorted(told.categories, key=lambda c: (c.kind == "novel", c.id if c.kind == "novel" else ""))
    return Discovery(round.run_id, table.known, images, categories, counted, facts)


def make_frame(
    table: Table,
    embedded: Embeddings,
    placed: Placed,
    typicality: np.ndarray,
    doubtful: np.ndarray,
    point: np.ndarray,
) -> pd.DataFrame:
    """One row per image with the columns of discovery.COLUMNS."""
    ids = np.array([*placed.ids, ""], dtype=object)  # -1 is the last one
    category = ids[placed.category]
    disagrees = table.labelled & (placed.said >= 0) & (placed.said != placed.category)
    note = [
        "; ".join(x for x in (own, f"the model would say {ids[said]}" if other else "") if x)
        for own, said, other in zip(embedded.note, placed.said, disagrees, strict=True)
    ]
    kind = np.where(placed.category < 0, "", np.where(placed.category < len(table.known), "known", "novel"))
    return pd.DataFrame(
        {
            "path": table.path,
            "label": table.label,
            "category": category,
            "kind": kind.astype(object),
            "probability": placed.probability,
            "known_score": placed.known_score,
            "typicality": typicality,
            "doubtful": doubtful | disagrees,
            "x": point[:, 0],
            "y": point[:, 1],
            "category_id": category,
            "problem": table.problem,
            "note": np.array(note, dtype=object),
        }
    )


def write_features(folder: Path, features: np.ndarray) -> None:
    def write(beside: Path) -> None:
        with beside.open("wb") as file:
            np.save(file, features.astype(np.float16))

    write_beside(folder / "features.npy", write)
