"""The identity holds all that decides the weights, and nothing else; an outline finds the records of its runs."""

import dataclasses
import json
import types
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest
import torch

from holotype.config.parse import flatten
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import METHODS, find_method
from holotype.runs import identity as module
from holotype.runs.experiment import Experiment, resolve, setting_values, stages_of
from holotype.runs.identity import Identity, identify, identity_matches, identity_outline
from holotype.runs.resources import RunData
from holotype.utils.memory import MemoryConfig
from holotype.utils.serialization import from_dict
from tests.made_study import made_identity
from tests.training.conftest import tiny_backbone
from tests.training.stubs import LEARNING

BACKBONE = tiny_backbone()
PRESETS = [(method, preset) for method, cls in METHODS.items() for preset in cls.presets]
WHERE: dict[str, Any] = {"out": "elsewhere", "label": "another-name", "progress": False, "device": "cpu"}
WHERE |= {"devices": 2, "log": "tensorboard", "root": "elsewhere", "store": "disk"}
WHERE["memory"] = MemoryConfig(host_gb=1)
"""Settings that say where a run takes place and what is seen of it."""


def small_table(label: str = "a") -> Table:
    columns = [["0.png", "1.png", "2.png"], [label, "b", ""]]
    return Table(*(np.array(x, dtype=object) for x in columns), ("a", "b"), name="three")


def of(experiment: Experiment, table: Any = None, k: int = 4, views: Any = None, **network: Any) -> Identity:
    backbone = dataclasses.replace(BACKBONE, **network)
    return identify(experiment, RunData(table or small_table(), k), backbone, views)


def other(value: Any, hint: Any) -> Any:
    """Another value that the setting may have."""
    if get_origin(hint) in (Union, types.UnionType) and value is None:
        return {int: 3, float: 0.5, str: "x"}[getattr(get_args(hint)[0], "__origin__", get_args(hint)[0])]
    if get_origin(hint) is Literal:
        return next(one for one in get_args(hint) if one != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value * 0.75 or 0.25
    return value + 1 if isinstance(value, int) else f"{value}x"


@pytest.mark.parametrize(("method", "preset"), PRESETS)
def test_every_setting_of_every_method_is_part_of_the_hash(method: str, preset: str) -> None:
    plain = resolve(method, "cub", preset)
    seen, settings = {of(plain).hash}, list(setting_values(plain.method))
    for name, value, hint in settings:
        changed = resolve(method, "cub", preset, {f"method.{name}": other(value, hint)})
        seen.add(of(changed).hash)
        assert identity_outline(changed) != identity_outline(plain), name
    assert len(seen) == 1 + len(settings)


@pytest.mark.parametrize("method", METHODS)
def test_settings_of_training_are_part_of_the_hash_where_they_decide(method: str) -> None:
    """k-means trains nothing: epochs, batch size, rate and the rest are nothing to it, the arithmetic is."""
    stages = stages_of(resolve(method, "cub"))
    before = of(resolve(method, "cub"))
    for name, value, hint in setting_values(resolve(method, "cub").train):
        if name == "warmup" and stages and all(stage.paced for stage in stages):  # refused there
            continue
        value = "fp64" if name == "precision" else other(value, hint)
        found = of(resolve(method, "cub", overrides={f"train.{name}": value}))
        decides = name == "precision" or (bool(stages) and name not in module.NOT_IN_IDENTITY)
        assert (found.hash != before.hash) == decides, name
        assert (found == before) == (not decides), name
    assert set(module.NOT_IN_IDENTITY) == {"eval_every", "save_seconds", "eager"}


def test_every_setting_of_the_protocol_is_part_of_the_hash_once_it_differs() -> None:
    plain = resolve("simgcd", "cub")
    for name, value, hint in setting_values(plain.protocol):
        changed = resolve("simgcd", "cub", overrides={f"protocol.{name}": other(value, hint)})
        assert of(changed).hash != of(plain).hash, name
        assert of(changed).data["protocol"].keys() == {name}


@pytest.mark.parametrize("method", METHODS)
def test_where_a_run_takes_place_is_left_out(method: str) -> None:
    before, told = of(resolve(method, "cub")), identity_outline(resolve(method, "cub"))
    for field, value in WHERE.items():
        experiment = dataclasses.replace(resolve(method, "cub"), **{field: value})
        assert of(experiment) == before, field
        assert identity_outline(experiment) == told, field
    # a setting that comes later has to be sorted in here, and into the identity where it decides
    decide = {"method_name", "dataset", "labels", "k", "seed", "cache_views", "method", "train", "backbone"}
    decide |= {"protocol", "side"}  # the latter through the table
    assert {field.name for field in dataclasses.fields(Experiment)} == {*decide, "preset", *WHERE}


def test_data_network_and_categories_are_part_of_the_identity() -> None:
    experiment = resolve("simgcd", "cub", overrides={"method.lam": 0.123})
    state = torch.random.get_rng_state()
    before = of(experiment)
    assert torch.equal(torch.random.get_rng_state(), state)  # looking at a method draws nothing
    with_truth = dataclasses.replace(small_table(), truth=np.array(["a", "b", "c"], dtype=object))
    assert of(experiment, with_truth) == before
    changed = [of(experiment, small_table("b")), of(experiment, k=5)]
    changed.append(of(resolve("simgcd", "cub", overrides={"method.lam": 0.123, "backbone.train_blocks": 2})))
    changed += [of(experiment, name="other"), of(experiment, digest="0"), of(experiment, image_size=64)]
    pool = {"pool": "mean", "mean": [0, 0, 0], "std": [1, 1, 1]}
    changed.append(of(experiment, changes=pool))
    assert len({one.hash for one in (before, *changed)}) == 8
    # pool and normalisation are told where they are not the usual ones: other runs keep their hash
    assert set(before.backbone) == {"name", "digest", "train_blocks", "image_size"}
    assert changed[-1].backbone == before.backbone | pool


@pytest.mark.parametrize("method", METHODS)
def test_the_hash_leaves_out_the_seed_and_nothing_else(method: str) -> None:
    identity = of(resolve(method, "cub"))
    assert dataclasses.replace(identity, seed=17).hash == identity.hash
    assert dataclasses.replace(identity, seed=17).name == f"{identity.hash}-s17"
    keys = [key for key in flatten(dataclasses.asdict(identity)) if key != "seed"]
    assert {"engine", "data.table", "data.k", "method.name", "method.revision", "backbone.digest"} <= {*keys}
    for key in keys:
        changed = json.loads(json.dumps(dataclasses.asdict(identity)))
        *parents, last = key.split(".")
        target = changed
        for parent in parents:
            target = target[parent]
        target[last] = other(target[last], type(target[last])) if target[last] is not None else 1
        assert from_dict(Identity, changed).hash != identity.hash, key


def test_a_method_of_ones_own_has_a_revision_and_its_code() -> None:
    name = "tests.training.stubs:TwoStages"
    told = {"name": name, "revision": 1, "settings": {}, "code": find_method(name).code_digest}
    mine = of(resolve(name, "cub"))
    assert mine.method == told
    assert METHODS["rpc"].revision > 1  # it drew its first weights otherwise once
    theirs = dataclasses.replace(mine, method=told | {"code": "0"})
    with pytest.raises(InputError, match=r"holds a run of tests\S+ with other code"):
        mine.check_same(theirs, "folder")
    mine.check_same(mine, "folder")
    filters = [{"method.pairing.filter": how} for how in ("pseudo_match", "none")]
    rpc = [of(resolve("rpc", "cub", overrides=one)) for one in filters]
    words = r"folder holds a run with method\.settings\.pairing\.filter = 'none', not 'pseudo_match'"
    with pytest.raises(InputError, match=words):
        rpc[0].check_same(rpc[1], "folder")


@pytest.mark.parametrize(("method", "preset"), PRESETS)
def test_an_outline_finds_its_own_run_and_no_other(method: str, preset: str) -> None:
    experiment = resolve(method, "cub", preset, {"cache_views": "16+8"})
    told, own = identity_outline(experiment), made_identity(experiment)
    assert identity_matches(own, told)
    changes: dict[str, Any] = {"engine": 9, "method.name": "x", "method.revision": 9, "data.name": "scars"}
    changes |= {"data.k": 194, "backbone.name": "x", "backbone.train_blocks": 7, "views": "3+3"}
    changes |= {"method.settings.added": 1} | {"train.lr": 9.0 if method in LEARNING else 0.1}
    for key, value in changes.items():
        assert not identity_matches(made_identity(experiment, {key: value}), told), key
    open_ones = {"seed": 5, "data.table": "9", "backbone.digest": "9", "train.precision": "bf16"}
    for key, value in open_ones.items():  # the settings do not say
        assert identity_matches(made_identity(experiment, {key: value}), told), key
    missing = own.method["settings"].copy()
    missing.popitem()
    assert not identity_matches(dataclasses.replace(own, method=own.method | {"settings": missing}), told)


def test_an_outline_says_what_is_asked_for_and_leaves_open_what_is_not() -> None:
    def outline(dataset: str = "cub", **asked: Any) -> dict[str, Any]:
        named = {key.replace("__", "."): value for key, value in asked.items()}
        return identity_outline(resolve("simgcd", dataset, overrides=named))

    plain = outline()
    assert not {"views", "backbone.image_size", "train.precision"} & set(plain)
    assert plain["data.k"] == 200  # as the data set has it: one that was counted is another row's
    assert "data.k" not in outline(k="auto")
    told = outline("birds/t.csv", k=7, cache_views="off", backbone__image_size=64, train__precision="fp64")
    assert (told["views"], told["data.k"], told["data.name"]) == ("off", 7, "t")
    assert (told["backbone.image_size"], told["train.precision"]) == (64, "fp64")
    network = outline("birds.v2", backbone__name="some/where/vit.safetensors")
    assert (network["backbone.name"], network["data.name"]) == ("vit", "birds.v2")
    # a setting that came later changes no hash at the value that held before
    assert "train.warmup" not in outline(train__warmup=0.0)
    assert outline(train__warmup=0.05) == outline(train__warmup=0.0) | {"train.warmup": 0.05}
    # so that a run with timm's mean is another
    dinov3 = "vit_small_patch16_dinov3.lvd1689m"
    assert outline(backbone__name=dinov3)["backbone.pool"] == "token"
    assert outline(backbone__name=dinov3, backbone__pool="mean")["backbone.pool"] is None
    assert plain["backbone.pool"] is None
    assert outline(backbone__mean="[0, 0, 0]", backbone__std="[1, 1, 1]")["backbone.mean"] == [0, 0, 0]
