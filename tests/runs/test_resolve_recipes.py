"""The values that differ between data sets: those of the published scripts, each a setting that exists."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest

from holotype.config.schema import BackboneConfig, TrainConfig
from holotype.data.datasets.registry import BENCHMARKS
from holotype.errors import InputError
from holotype.methods import METHODS
from holotype.methods.rpc import RPC
from holotype.runs.experiment import Experiment
from holotype.runs.resolve import default_experiment, preset_settings, recipe

EPS = {
    "cifar10": 1,
    "cifar100": 4,
    "imagenet100": 1,
    "cub": 2,
    "scars": 1,
    "aircraft": 1,
    "herbarium19": 1,
}
"""SimGCD's weight of the mean-entropy term."""

DEBGCD = """
data set     grad_from_block batch thr  adl sdl
cub          10              128   0.65 4.0 0.005
scars        10              128   0.70 2.0 0.005
aircraft     10              128   0.85 2.0 0.01
cifar10      11              128   0.90 2.0 0.01
cifar100     11              256   0.55 0.5 0.001
imagenet100  11              128   0.85 2.0 0.005
"""
"""The released scripts; a ViT-B has blocks 0 to 11, and those from grad_from_block on learn."""
SCRIPTS = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in DEBGCD.splitlines()[2:]}


def value(experiment: Experiment, key: str) -> object:
    target: object = experiment
    for name in key.split("."):
        assert name in {field.name for field in dataclasses.fields(target)}, key
        target = getattr(target, name)
    return target


@pytest.mark.parametrize("dataset", EPS)
@pytest.mark.parametrize("method", ["simgcd", "debgcd", "sptnet"])
def test_the_weight_of_the_entropy_term(method, dataset):
    assert default_experiment(method, dataset).method.memax_weight == EPS[dataset]


@pytest.mark.parametrize("dataset", SCRIPTS)
def test_debgcd_is_set_as_in_its_scripts(dataset):
    first_block, batch, threshold, adl, sdl = SCRIPTS[dataset]
    found = default_experiment("debgcd", dataset)
    assert found.backbone.train_blocks == 12 - first_block
    assert found.train.batch_size == batch
    assert found.train.lr == pytest.approx(0.1 * batch / 128)
    assert (found.method.threshold, found.method.adl, found.method.sdl) == (threshold, adl, sdl)
    assert found.train.epochs == 200


@pytest.mark.parametrize("dataset", SCRIPTS)
def test_rpc_has_one_set_of_values_for_all_data(dataset):
    found = default_experiment("rpc", dataset)
    assert found.method == RPC.Config()
    assert found.train == TrainConfig()
    assert found.backbone == BackboneConfig()


@pytest.mark.parametrize(("part", "whole"), [("cifar100-200", "cifar100"), ("scars-8137", "scars")])
def test_a_part_of_a_data_set_is_set_like_the_whole(part, whole):
    for method in METHODS:
        assert recipe(method, part) == recipe(method, whole)
    assert recipe("debgcd", part) != {}


@pytest.mark.parametrize("dataset", BENCHMARKS)
@pytest.mark.parametrize(("method", "preset"), [(m, p) for m, cls in METHODS.items() for p in cls.presets])
def test_every_value_is_a_setting_that_exists_and_arrives(method, preset, dataset):
    found = default_experiment(method, dataset, preset)
    given = preset_settings(METHODS[method], preset)
    for key, wanted in recipe(method, dataset).items():
        if key not in given:
            assert value(found, key) == wanted, key
        assert type(value(found, key)) in (type(wanted), type(None)), key
    for key, wanted in given.items():
        assert value(found, key) == wanted, key


@pytest.mark.parametrize("method", METHODS)
def test_elsewhere_the_defaults_hold(method):
    """But for what the method says of all data sets: its weight decay, its rate."""
    everywhere = METHODS[method].recipes.get("*", {}) if "recipes" in vars(METHODS[method]) else {}
    assert everywhere.keys() <= {"train.weight_decay", "train.lr"}
    for dataset in ("fashion-sample", "some/folder"):
        assert recipe(method, dataset) == everywhere
        found = default_experiment(method, dataset)
        assert found.method == METHODS[method].Config()
        plain = Experiment(method, dataset)
        plain.train.weight_decay = everywhere.get("train.weight_decay", plain.train.weight_decay)
        plain.train.lr = everywhere.get("train.lr", plain.train.lr)
        assert (found.train, found.backbone) == (plain.train, plain.backbone)


def test_the_peers_are_set_as_their_scripts_are_known():
    for dataset in BENCHMARKS:
        fine = dataset in ("cub", "scars", "scars-8137", "aircraft", "herbarium19")
        rs, uno, gcd, protogcd = (
            default_experiment(name, dataset) for name in ("rs", "uno", "gcd", "protogcd")
        )
        rate = 0.01 if dataset == "fashion-sample" else 0.001 if fine else 0.1
        assert (rs.train.lr, rs.train.weight_decay) == (rate, 1e-4)
        assert (uno.train.lr, uno.train.weight_decay, uno.train.batch_size) == (0.1, 1e-4, 128)
        assert (gcd.train.lr, gcd.train.weight_decay, gcd.method.proj_out) == (0.1, 5e-5, 65_536)
        generic = dataset.startswith(("cifar", "imagenet"))
        assert protogcd.method.separation == (0.1 if generic else 0.05)
        ramp = (rs.method.ramp * 200, rs.method.consistency)
        assert ramp == ((50, 5) if dataset == "cifar10" else (150, 50))


def test_k_means_has_nothing_to_set():
    assert all(recipe("kmeans", dataset) == {} for dataset in BENCHMARKS)


def test_a_recipe_is_not_carried_into_the_next_experiment():
    default_experiment("debgcd", "cub")
    assert default_experiment("debgcd", "some/folder").train.batch_size == 128
    assert default_experiment("debgcd", "some/folder").backbone.train_blocks == 1


class Mine(METHODS["debgcd"]):
    """Built on a method with recipes."""

    recipes: ClassVar = {"*": {"train.lr": 0.02, "method.adl": 3.0}, "cub": {"method.adl": 5.0}}


class Heir(METHODS["debgcd"]):
    """The same without recipes of its own."""


def test_a_method_brings_its_recipes_and_does_not_inherit_any(monkeypatch):
    monkeypatch.setitem(METHODS, "mine", Mine)
    monkeypatch.setitem(METHODS, "heir", Heir)
    everywhere = default_experiment("mine", "some/folder")
    assert (everywhere.train.lr, everywhere.method.adl) == (0.02, 3.0)
    assert recipe("mine", "cub") == {"train.lr": 0.02, "method.adl": 5.0}  # the data set's own wins
    assert recipe("heir", "cub") == {}
    assert default_experiment("heir", "cub").backbone.train_blocks == 1


@pytest.mark.parametrize(
    ("key", "close"), [("method.adk", "method.adl"), ("train.epoch", "train.epochs"), ("adl", "method.adl")]
)
def test_a_key_of_a_recipe_that_does_not_exist_is_refused_with_the_nearest(monkeypatch, key, close):
    monkeypatch.setitem(METHODS, "mine", Mine)
    monkeypatch.setattr(Mine, "recipes", {"*": {key: 1}})
    with pytest.raises(InputError) as refused:
        default_experiment("mine", "cub")
    sentence = str(refused.value)
    assert f"The setting {key!r} in the recipe of mine for cub is unknown" in sentence
    assert close in sentence
