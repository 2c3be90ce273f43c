"""What decides the result of a run, and the hash that names it.

Two runs of equal identity end with equal weights; everything else (where files lie, how often scores are taken, what a
row is called) is left out. A changed algorithm has another identity too: a method counts its `revision`, `ENGINE`
counts those of the code that all methods share, and the source of a plug-in is a part of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from holotype.config.parse import flatten, plain_tree
from holotype.data.datasets.registry import BENCHMARKS, read_dataset_info
from holotype.data.load import collection_name
from holotype.errors import InputError
from holotype.methods import find_method, is_imported
from holotype.models.backbone import Backbone, expected_pool
from holotype.models.token_cache import CacheViews
from holotype.runs.experiment import Experiment, stages_of
from holotype.runs.resources import RunData, RunResources, effective_views, requested_views
from holotype.utils.serialization import FileSchema

IDENTITY_SCHEMA = FileSchema(1, "restore it from a copy, or choose another --out to start anew")
"""Of the file identity.json."""
ENGINE = 2
"""Raised when loop, samplers, views, token cache or schedules draw or compute otherwise than before."""
NOT_IN_IDENTITY = ("eval_every", "save_seconds", "eager")
"""Settings of training that do not change the weights."""


@dataclass(frozen=True)
class Identity:
    """All that decides a result."""

    seed: int
    engine: int
    method: dict[str, Any]
    """name, revision, settings; of a method outside this package also code, the digest of its source."""
    data: dict[str, Any]
    """name, table (digest of paths, labels and known classes), k; of another protocol than GCD's, what differs."""
    backbone: dict[str, Any]
    """name, digest, train_blocks, image_size; pool, mean and std where they are not those of timm's name."""
    train: dict[str, Any]
    """Settings of training with the precision in use; of a method that does not train, the precision alone."""
    views: str
    """Of the token cache that the run draws from, as in 16+8; off in exact mode."""

    @cached_property
    def parts(self) -> dict[str, Any]:
        """Everything by dotted name."""
        return flatten(dataclasses.asdict(self))

    @cached_property
    def hash(self) -> str:
        """Sixteen characters for all but the seed: equal for runs that may be averaged."""
        content = {name: value for name, value in dataclasses.asdict(self).items() if name != "seed"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """Names the run and the file of its record."""
        return f"{self.hash}-s{self.seed}"

    @property
    def is_current(self) -> bool:
        """Whether a run of today would have the same engine, revision and code; True for a method that is not here."""
        name = self.method["name"]
        if self.engine != ENGINE:
            return False
        if ":" in name and not is_imported(name):
            return True
        try:
            kind = find_method(name)
        except InputError:
            return True
        code = kind.code_digest or None
        return (self.method["revision"], self.method.get("code")) == (kind.revision, code)

    def as_dict(self) -> dict[str, Any]:
        return {"format": IDENTITY_SCHEMA.format, **dataclasses.asdict(self)}

    def check_same(self, other: Identity, where: Path | str) -> None:
        """Raise InputError unless `other`, found in the folder `where`, is of the very same run."""
        mine, theirs = self.parts, other.parts
        key = next((key for key in mine | theirs if mine.get(key) != theirs.get(key)), None)
        if key is None:
            return
        what = f"with {key} = {theirs.get(key)!r}, not {mine.get(key)!r}"
        if key == "method.code":
            what = f"of {self.method['name']} with other code: it, or what it imports from beside it, has changed"
        raise InputError(f"{where} holds a run {what}; choose another --out, or delete it to start anew.")


def identify(experiment: Experiment, data: RunData, backbone: Backbone, views: CacheViews | None) -> Identity:
    """Return what decides a run. views: of the token cache that it draws from, None in exact mode."""
    return Identity(
        seed=experiment.seed,
        engine=ENGINE,
        method=_method(experiment),
        data={"name": data.table.name, "table": data.table.fingerprint(), "k": data.k}
        | _protocol(experiment),
        backbone={
            "name": backbone.name,
            "digest": backbone.digest,
            "train_blocks": experiment.backbone.train_blocks,
            "image_size": backbone.image_size,
            **backbone.changes,
        },
        train=_train(experiment) | {"precision": experiment.precision},
        views=str(views) if views else "off",
    )


def identity_of(experiment: Experiment, prepared: RunResources) -> Identity:
    """Return what decides a run with the views that it asks for."""
    views = effective_views(experiment, requested_views(experiment))
    return identify(experiment, prepared.data, prepared.backbone, views)


def _protocol(experiment: Experiment) -> dict[str, Any]:
    """What differs from the GCD protocol; of a file of classes its name, since the table has its content."""
    differs = _shown(experiment.protocol)
    if "known" in differs:
        differs["known"] = Path(differs["known"]).stem
    return {"protocol": differs} if differs else {}


def _method(experiment: Experiment) -> dict[str, Any]:
    kind = find_method(experiment.method_name)
    named, settings = {"name": experiment.method_name, "revision": kind.revision}, _shown(experiment.method)
    code = {"code": kind.code_digest} if kind.code_digest else {}
    return named | {"settings": plain_tree(settings)} | code


def _train(experiment: Experiment) -> dict[str, Any]:
    """Without the precision, which depends on the device; nothing where the method does not train."""
    if not stages_of(experiment):
        return {}
    return plain_tree(_shown(experiment.train, (*NOT_IN_IDENTITY, "precision")))


def _shown(settings: Any, left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings of a dataclass by name, those of dataclasses inside it too.

    Without a setting that came later and has the value that held before there was it, which its field names: runs of
    that time are the same runs, and keep their hash.
    """
    told = {}
    for one in dataclasses.fields(settings):
        value = getattr(settings, one.name)
        at_rest = "before" in one.metadata and one.metadata["before"] == value
        if one.name not in left_out and not at_rest:
            told[one.name] = _shown(value) if dataclasses.is_dataclass(value) else value
    return told


def identity_outline(experiment: Experiment) -> dict[str, Any]:
    """Return the dotted parts of an identity that the settings alone decide; `identity_matches` finds records by them.

    Left out: digests, and what the device or the data set decides.
    """
    own, dataset = experiment.backbone, experiment.dataset
    told: dict[str, Any] = {
        "engine": ENGINE,
        **flatten(
            {"method": _method(experiment), "train": _train(experiment), "data": _protocol(experiment)}
        ),
        "data.name": dataset if dataset in BENCHMARKS else collection_name(dataset),
        "backbone.name": Path(own.name).stem if own.name.endswith(".safetensors") else own.name,
        "backbone.train_blocks": own.train_blocks,
        "backbone.mean": list(own.mean) if own.mean else None,
    }
    told |= {f"backbone.{key}": value for key, value in expected_pool(own).items()}
    if experiment.cache_views != "auto":
        exact = experiment.cache_views == "off"
        views = effective_views(experiment, None if exact else CacheViews.parse(experiment.cache_views))
        told["views"] = str(views) if views else "off"
    if isinstance(experiment.k, int):
        told["data.k"] = experiment.k
    elif experiment.k is None and dataset in BENCHMARKS:
        # and not a number that was counted, or another one given
        told["data.k"] = read_dataset_info(dataset).classes
    told |= {"backbone.image_size": own.image_size} if own.image_size else {}
    told |= {"train.precision": experiment.train.precision} if experiment.train.precision != "auto" else {}
    return told


def identity_matches(identity: Identity, told: Mapping[str, Any]) -> bool:
    """Return whether a run is one that an outline asks for. Settings that either has alone make it another."""
    held = identity.parts
    if any(held.get(key) != value for key, value in told.items()):  # most of many records end here
        return False
    own = {key for key in held if key.startswith(("method.", "train.", "data.protocol."))} - {
        "train.precision"
    }
    return own <= told.keys()
