"""The identity holds all that decides the weights, and nothing else; its hash names the runs that may be averaged."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch

from holotype.config.parse import flatten
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import METHODS, find_method
from holotype.models.token_cache import CacheViews
from holotype.runs.build import RunData, effective_views, stages_of
from holotype.runs.experiment import Experiment
from holotype.runs.identity import NOT_IN_IDENTITY, Identity, identify, identity_matches, identity_outline
from holotype.runs.resolve import resolve
from holotype.utils.memory import MemoryConfig
from tests.training.conftest import tiny_backbone

BACKBONE = tiny_backbone()
PRESETS = [(method, preset) for method, cls in METHODS.items() for preset in cls.presets]
WHERE = {
    "out": "elsewhere",
    "label": "another-name",
    "progress": False,
    "device": "cpu",
    "devices": 2,
    "root": "elsewhere",
    "store": "disk",
    "memory": MemoryConfig(host_gb=1),
}
"""Settings that say where a run takes place and what is seen of it."""


def small_table(label: str = "a") -> Table:
    columns = [["0.png", "1.png", "2.png"], [label, "b", ""]]
    return Table(*(np.array(x, dtype=object) for x in columns), ("a", "b"), name="three")


def identity_of(
    experiment: Experiment, table: Table | None = None, k: int = 4, views: CacheViews | None = None
) -> Identity:
    return identify(experiment, RunData(table or small_table(), k), BACKBONE, views)


def other(value: Any, hint: Any) -> Any:
    """Another value that the setting may have."""
    if get_origin(hint) in (Union, types.UnionType) and value is None:
        hint = next(one for one in get_args(hint) if one is not types.NoneType)
        return {int: 3, float: 0.5, str: "x"}[hint]
    if get_origin(hint) is Literal:
        return next(one for one in get_args(hint) if one != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value * 0.75 or 0.25
    return value + 1 if isinstance(value, int) else f"{value}x"


def leaves(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted name, value and type of every setting in a dataclass."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from leaves(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value, hints[field.name]


# -- what decides a result ------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "preset"), PRESETS)
def test_every_setting_of_every_method_is_part_of_the_hash(method: str, preset: str) -> None:
    before = identity_of(resolve(method, "cub", preset)).hash
    seen = {before}
    for name, value, hint in leaves(resolve(method, "cub", preset).method):
        changed = resolve(method, "cub", preset, {f"method.{name}": other(value, hint)})
        seen.add(identity_of(changed).hash)
        assert identity_outline(changed) != identity_outline(resolve(method, "cub", preset)), name
    assert len(seen) == 1 + len(list(leaves(resolve(method, "cub", preset).method)))


@pytest.mark.parametrize("method", METHODS)
def test_settings_of_training_are_part_of_the_hash_where_they_decide(method: str) -> None:
    """k-means trains nothing: epochs, batch size, rate and the rest are nothing to it, the arithmetic is."""
    trains = bool(stages_of(resolve(method, "cub")))
    assert trains == (method != "kmeans")
    before = identity_of(resolve(method, "cub"))
    own_pace = trains and all(stage.paced for stage in stages_of(resolve(method, "cub")))
    for name, value, hint in leaves(resolve(method, "cub").train):
        if name == "warmup" and own_pace:  # refused there
            continue
        value = "fp64" if name == "precision" else other(value, hint)
        found = identity_of(resolve(method, "cub", overrides={f"train.{name}": value}))
        decides = name == "precision" or (trains and name not in NOT_IN_IDENTITY)
        assert (found.hash != before.hash) == decides, name
        assert (found == before) == (not decides), name
    assert set(NOT_IN_IDENTITY) == {"eval_every", "save_seconds", "eager"}


def test_the_identity_of_k_means_holds_no_training_and_no_views() -> None:
    experiment = resolve("kmeans", "cub", overrides={"cache_views": "16+8"})
    found = identity_of(experiment, views=effective_views(experiment, CacheViews(16, 8)))
    assert set(found.train) == {"precision"}
    assert found.views == "off"
    assert identity_outline(experiment)["views"] == "off"
    assert not [key for key in identity_outline(experiment) if key.startswith("train.")]


@pytest.mark.parametrize("field", WHERE)
@pytest.mark.parametrize("method", METHODS)
def test_where_a_run_takes_place_is_left_out(method: str, field: str) -> None:
    experiment = resolve(method, "cub")
    before, told = identity_of(experiment), identity_outline(experiment)
    setattr(experiment, field, WHERE[field])
    assert identity_of(experiment) == before
    assert identity_outline(experiment) == told


def test_every_setting_of_an_experiment_has_its_place() -> None:
    """A setting that comes later has to be sorted in here, and into the identity where it decides."""
    elsewhere = {
        "method_name",
        "dataset",
        "labels",
        "k",
        "seed",
        "cache_views",
        "method",
        "train",
        "backbone",
    }
    names_only = {"preset"}
    assert {field.name for field in dataclasses.fields(Experiment)} == elsewhere | names_only | set(WHERE)
    fields = {field.name for field in dataclasses.fields(Identity)}
    assert fields == {"seed", "engine", "method", "data", "backbone", "train", "views"}


def test_data_network_and_categories_are_part_of_the_identity() -> None:
    experiment = resolve("simgcd", "cub")
    before = identity_of(experiment)
    assert identity_of(experiment, small_table("b")).hash != before.hash
    assert identity_of(experiment, k=5).hash != before.hash
    with_truth = dataclasses.replace(small_table(), truth=np.array(["a", "b", "c"], dtype=object))
    assert identity_of(experiment, with_truth) == before
    two = resolve("simgcd", "cub", overrides={"backbone.train_blocks": 2})
    assert identity_of(two).hash != before.hash
    for change in ({"name": "other"}, {"digest": "0"}, {"image_size": 64}, {"changes": {"pool": "token"}}):
        found = identify(experiment, RunData(small_table(), 4), dataclasses.replace(BACKBONE, **change), None)
        assert found.hash != before.hash, change


@pytest.mark.parametrize("method", METHODS)
def test_the_hash_leaves_out_the_seed_and_nothing_else(method: str) -> None:
    identity = identity_of(resolve(method, "cub"))
    assert dataclasses.replace(identity, seed=17).hash == identity.hash
    assert dataclasses.replace(identity, seed=17).name == f"{identity.hash}-s17"
    keys = [key for key in flatten(dataclasses.asdict(identity)) if key != "seed"]
    assert {"engine", "data.table", "data.k", "method.name", "method.revision", "backbone.digest"} <= set(
        keys
    )
    for key in keys:
        changed = json.loads(json.dumps(identity.as_dict()))
        *parents, last = key.split(".")
        target = changed
        for parent in parents:
            target = target[parent]
        target[last] = other(target[last], type(target[last])) if target[last] is not None else 1
        assert Identity.from_dict(changed, "").hash != identity.hash, key


# -- a changed algorithm --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_changed_algorithm_has_another_hash(method: str, monkeypatch) -> None:
    experiment = resolve(method, "cub")
    before, told = identity_of(experiment), identity_outline(experiment)
    with monkeypatch.context() as patch:
        patch.setattr(METHODS[method], "revision", METHODS[method].revision + 1)
        assert identity_of(experiment).hash != before.hash
        assert not identity_matches(before, identity_outline(experiment) | {"data.name": "three"})
    with monkeypatch.context() as patch:
        patch.setattr("holotype.runs.identity.ENGINE", before.engine + 1)
        assert identity_of(experiment).hash != before.hash
        assert identity_outline(experiment) != told
    assert identity_of(experiment) == before


def test_a_method_of_ones_own_has_a_revision_too() -> None:
    name = "tests.training.stubs:TwoStages"
    experiment = resolve(name, "cub")
    told = {"name": name, "revision": 1, "settings": {}, "code": find_method(name).code_digest}
    assert identity_of(experiment).method == told
    assert METHODS["rpc"].revision > 1  # it drew its first weights otherwise once
    assert find_method("simgcd").revision == 1


# -- views ----------------------------------------------------------------------------------------------


def test_another_token_cache_is_another_configuration() -> None:
    experiment = resolve("rpc", "cub")
    views = [None, CacheViews(16, 8), CacheViews(16, 0), CacheViews(4, 2)]
    assert len({identity_of(experiment, views=one).hash for one in views}) == 4
    assert identity_of(experiment).views == "off"
    assert identity_of(experiment, views=CacheViews(16, 8)).views == "16+8"


@pytest.mark.parametrize(
    ("method", "found"), [("simgcd", "16+0"), ("debgcd", "16+0"), ("rpc", "16+8"), ("kmeans", "off")]
)
def test_only_views_that_are_drawn_count(method: str, found: str) -> None:
    """SimGCD draws no strong views: asked for 16+8 it is the run that 16+0 is."""
    asked = resolve(method, "cub", overrides={"cache_views": "16+8"})
    views = effective_views(asked, CacheViews.parse("16+8"))
    assert (str(views) if views else "off") == found == identity_outline(asked)["views"]
    fewer = resolve(method, "cub", overrides={"cache_views": "16+0"})
    alike = identity_of(asked, views=views) == identity_of(
        fewer, views=effective_views(fewer, CacheViews.parse("16+0"))
    )
    assert alike == (method != "rpc")
    assert effective_views(asked, None) is None


def test_looking_at_a_method_draws_nothing_from_the_generator() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    identity_of(resolve("rpc", "cub", overrides={"method.alpha": 0.123}))  # which is not remembered
    assert torch.equal(torch.random.get_rng_state(), before)


# -- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "preset"), PRESETS)
def test_an_identity_survives_a_file(method: str, preset: str) -> None:
    identity = identity_of(resolve(method, "cub", preset), views=CacheViews(4, 2))
    found = Identity.from_dict(json.loads(json.dumps(identity.as_dict())), "identity.json")
    assert found == identity
    assert (found.hash, found.name) == (identity.hash, identity.name)


def test_an_identity_of_another_version_is_refused() -> None:
    content = identity_of(resolve("rpc", "cub")).as_dict()
    with pytest.raises(
        InputError, match=r"there/identity\.json was written by another version \(format 7, not 1\)"
    ):
        Identity.from_dict(content | {"format": 7}, "there/identity.json")


@pytest.mark.parametrize("wrong", [None, "", 3, [], {}, {"format": 1}, [{}]])
def test_what_is_no_identity_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"identity\.json does not say which run it belongs to"):
        Identity.from_dict(wrong, "identity.json")


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Identity)])
@pytest.mark.parametrize("wrong", [None, True, 2.5, "x", [], {"a": 1}, "missing"])
def test_each_part_must_be_there_and_of_its_kind(field: str, wrong: Any) -> None:
    content = identity_of(resolve("rpc", "cub")).as_dict()
    if type(wrong) is type(content[field]):
        return
    content[field] = wrong
    if wrong == "missing":
        del content[field]
    with pytest.raises(InputError) as refused:
        Identity.from_dict(content, "identity.json")
    assert len(str(refused.value).splitlines()) == 1


def test_another_run_is_refused_by_the_name_of_what_differs() -> None:
    mine = identity_of(resolve("rpc", "cub"))
    mine.check_same(mine, "folder")
    theirs = identity_of(resolve("rpc", "cub", overrides={"method.pairing.filter": "none"}))
    words = r"folder holds a run with method\.settings\.pairing\.filter = 'none', not 'pseudo_match'"
    with pytest.raises(InputError, match=words):
        mine.check_same(theirs, "folder")
