"""What a run says of itself: the identity that a run folder is checked against, and the record of its scores."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from typing import Any

import numpy as np
import torch

from holotype.cluster.evaluate import SCORES, has_truth, score
from holotype.data.store import ImageStore
from holotype.data.table import Table
from holotype.methods import Prediction
from holotype.models.backbone import Backbone
from holotype.models.cache import CacheViews
from holotype.runs.experiment import Experiment
from holotype.runs.folder import GONE, LATER, flat
from holotype.runs.parts import Data
from holotype.train.encode import place
from holotype.train.loop import Loop
from holotype.train.sources import FreshViews, table_features


def score_table(table: Table, prediction: Prediction) -> dict[str, Any]:
    """The scores; every one of them None where the truth is not known."""
    if not has_truth(table):
        return dict.fromkeys(SCORES) | {"n": 0, "per_class": []}
    return score(table, prediction.category.numpy(), prediction.known_score.numpy())


def headline(scores: dict[str, Any]) -> dict[str, Any]:
    """The scores without the table of classes."""
    return {key: value for key, value in scores.items() if key != "per_class"}


def identify(
    experiment: Experiment, data: Data, backbone: Backbone, cache_views: CacheViews | None
) -> dict[str, Any]:
    """What must be equal for a run folder to be continued; settings that do not change the weights are left out.

    cache_views: of the token cache that the run asks for (prepared.wanted_views).
    """
    train = dataclasses.asdict(experiment.train)
    for key in ("eval_every", "save_seconds", "eager"):
        train.pop(key)
    train["precision"] = experiment.precision
    return {
        "method_name": experiment.method_name,
        "dataset": data.table.name,
        "table": data.table.fingerprint(),
        "k": data.k,
        "seed": experiment.seed,
        "method": dataclasses.asdict(experiment.method),
        "train": train,
        "backbone": {
            "name": backbone.name,
            "digest": backbone.digest,
            "train_blocks": experiment.backbone.train_blocks,
            "image_size": backbone.image_size,
        },
        "cache_views": str(cache_views) if cache_views else "off",
    }


def config_hash(identity: dict[str, Any]) -> str:
    """Names what runs over several seeds have in common: the identity but for the seed.

    Settings that came later or are gone since change no name: runs are called what they were called first.
    """
    hashed = copy.deepcopy({key: value for key, value in identity.items() if key != "seed"})
    held = flat(hashed)
    for dotted in [key for key, value in LATER.items() if held.get(key) == value]:
        group, last = _group(hashed, dotted)
        del group[last]
    for dotted, value in GONE.get(identity["method_name"], {}).items():
        group, last = _group(hashed, dotted)
        group.setdefault(last, value)
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:16]


def _group(tree: dict[str, Any], dotted: str) -> tuple[dict[str, Any], str]:
    """The group that a dotted key lies in, made where it is not there, and the key's own name."""
    *parents, last = dotted.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
    return tree, last


def make_record(
    experiment: Experiment,
    data: Data,
    backbone: Backbone,
    loop: Loop,
    prediction: Prediction,
    facts: dict[str, Any],
    identity: dict[str, Any],
) -> dict[str, Any]:
    """The object that stands in results/*.json: what was run, on what, and what came out.

    facts: what provenance.describe says of the run.
    """
    scores = score_table(data.table, prediction)
    return {
        "method": experiment.method_name,
        "dataset": data.table.name,
        "variant": experiment.variant,
        "seed": experiment.seed,
        "mode": loop.mode,
        "captured": loop.captured,
        "epochs": sum(loop.epochs(stage) for stage in loop.method.stages()),
        "backbone": backbone.name,
        **scores,
        "placed": count_placed(data.table, prediction),
        "seconds": round(loop.seconds(), 1),
        "config_hash": config_hash(identity),
        "commit": facts["commit"],
        "hardware": facts["hardware"],
        "processes": facts["processes"],
        "precision": facts["precision"],
        "train_blocks": experiment.backbone.train_blocks,
        "caveat": backbone.caveat,
        "selection": "last epoch",
        "scored_on": "unlabelled training images",
    }


def count_placed(table: Table, prediction: Prediction) -> dict[str, int]:
    """Where the unlabelled images went."""
    category = prediction.category.numpy()[~table.labelled]
    n_known = len(table.known)
    novel = category[category >= n_known]
    return {
        "known": int(((category >= 0) & (category < n_known)).sum()),
        "novel": len(novel),
        "novel_categories": len(np.unique(novel)),
        "unreadable": int((category < 0).sum()),
    }


def score_held_out(loop: Loop, test: Table, store: ImageStore) -> dict[str, Any]:
    """Inductive scores: the official test split, which training never saw. store: its images."""
    rows = torch.from_numpy(np.flatnonzero(test.usable))
    source = FreshViews(store, loop.source.encoder)
    with torch.no_grad():
        placed = place(loop.method, table_features(source, rows, len(test)), rows)
    source.close()
    return headline(score_table(test, placed))
