"""The settings of a discovery: one list for the command, the estimator and the function, checked in one place."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

from holotype.cli.discover import make_parser
from holotype.config.schema import BackboneConfig, DiscoverConfig
from holotype.discovery.estimator import Discoverer
from holotype.discovery.pipeline import discover
from holotype.errors import InputError

DEFAULTS = {one.name: one.default for one in dataclasses.fields(DiscoverConfig)}


def test_the_estimator_has_the_same_parameters_and_defaults() -> None:
    own = {name: one.default for name, one in inspect.signature(Discoverer).parameters.items()}
    assert {name: own.pop(name) for name in DEFAULTS} == DEFAULTS
    assert set(own) == {"out", "progress"}
    for name in DEFAULTS:
        assert f"    {name}: " in (Discoverer.__doc__ or ""), name


def test_the_command_has_the_same_flags_and_defaults() -> None:
    given = vars(make_parser().parse_args(["photos"]))
    assert DiscoverConfig(**{name: given[name] for name in DEFAULTS}) == DiscoverConfig()
    told = " ".join(make_parser().format_help().split())
    assert "--method METHOD" in told
    assert "Number of categories, known and new together; auto estimates it." in told
    assert "auto estimates it. [a whole number (at least 1) or auto; default auto]" in told
    assert "Seed of everything random. [a whole number (at least 0 and below 2**63); default 0]" in told
    assert "Side of the backbone's input in pixels. [a whole number (at least 1, at most 4,096)]" in told


def test_several_methods_are_names_with_commas_between_them() -> None:
    assert DiscoverConfig(method=" rpc , uno").method == "rpc,uno"
    assert DiscoverConfig().method is None  # the device decides
    for given in ("rpc,", ",", "rpc,,uno"):
        with pytest.raises(InputError, match="lacks a name beside a comma; give names, as in rpc,uno"):
            DiscoverConfig(method=given)


def test_numbers_may_come_as_text_or_as_numpy_has_them() -> None:
    assert DiscoverConfig(k="10").k == 10
    assert DiscoverConfig(k=np.int64(10), steps="20", seed="3") == DiscoverConfig(k=10, steps=20, seed=3)
    assert type(DiscoverConfig(k=np.int64(10)).k) is int


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"k": 2.5}, "k is 2.5, which is neither auto nor a number of categories"),
        ({"k": True}, "k is True"),
        ({"k": 0}, "k is 0"),
        ({"k": "many"}, "k is 'many'"),
        ({"k": None}, "k is None"),
        ({"k": "-3"}, "k is '-3'"),
        ({"steps": 0}, "steps is 0, which is not a number of at least 1"),
        ({"steps": 2**31}, "steps is 2147483648, which is not a number of at least 1 and at most 1,000,000"),
        ({"image_size": 2**31}, "which is not a number of at least 1 and at most 4,096"),
        ({"seeds": 2**31}, "which is neither auto nor a number of trainings, at most 100"),
        ({"sample": 1.0}, "sample is 1.0"),
        ({"image_size": "big"}, "image_size is 'big'"),
        ({"seed": -1}, "seed is -1, which is not a whole number of at least 0"),
        ({"seed": 2**63}, "which is not a whole number of at least 0 and below 2"),
        ({"long_tail": "maybe"}, "long_tail is 'maybe', which is none of auto, yes, no"),
        ({"seeds": 0}, "seeds is 0, which is neither auto nor a number of trainings"),
        ({"seeds": 2.5}, "seeds is 2.5"),
        ({"backbone": None}, "backbone is None"),
        ({"method": 3}, "method is 3"),
        ({"arch": 1}, "arch is 1"),
        ({"bursts": "often"}, "bursts is 'often', which is neither auto, no nor a number of seconds"),
        ({"bursts": 0}, "bursts is 0"),
        ({"bursts": "nan"}, "bursts is 'nan'"),
        ({"bursts": True}, "bursts is True"),
        ({"pool": "max"}, "pool is 'max'"),
        ({"mean": "grey"}, "mean is 'grey'"),
    ],
)
def test_what_cannot_be_is_one_sentence(settings: dict, says: str) -> None:
    with pytest.raises(InputError) as told:
        DiscoverConfig(**settings)
    assert says in str(told.value)
    assert "\n" not in str(told.value)


def test_bursts_are_auto_no_or_seconds() -> None:
    assert [DiscoverConfig(bursts=value).bursts for value in ("AUTO", "no", "5", 5.0, 2.5)] == [
        "auto",
        "no",
        "5",
        "5",
        "2.5",
    ]


def test_the_network_is_the_one_that_was_taken() -> None:
    config = DiscoverConfig(backbone="auto", image_size=64)
    assert config.network == BackboneConfig("auto", image_size=64)
    full = DiscoverConfig(pool="mean", mean="0,0,0", std=[1, 1, 1])
    assert full.network == BackboneConfig("auto", pool="mean", mean=(0, 0, 0), std=(1, 1, 1))
    assert full.with_network(full.network) == full
    taken = config.with_network(BackboneConfig("embedded", image_size=128))
    assert (taken.backbone, taken.image_size) == ("embedded", 128)


def test_the_function_names_them_and_tells_of_others(tmp_path) -> None:
    """Before it looks at the images: there are none here."""
    said = " ".join((discover.__doc__ or "").split())
    assert f"by the same names: {', '.join(DEFAULTS)}." in said
    with pytest.raises(InputError, match="does not take the setting 'stepps'; did you mean steps"):
        discover(tmp_path / "nowhere", stepps=3)
    with pytest.raises(InputError, match="does not take the setting 'quux'; there are k, method, backbone"):
        discover(tmp_path / "nowhere", quux=3)
