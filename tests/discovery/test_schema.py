"""The settings of a discovery: one list for the command, the estimator and the function, checked in one place."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

from holotype.cli.common import Parser
from holotype.cli.options import DiscoverOptions
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
    parser = Parser("discover", DiscoverOptions)
    assert parser.parse_args(["photos"]).config == DiscoverConfig()
    told = " ".join(parser.format_help().split())
    assert "--method METHOD" in told
    assert "Number of categories, known and new together; auto estimates it." in told
    assert "auto estimates it. [a whole number (at least 1) or auto; default auto]" in told
    assert "Seed of everything random. [a whole number (at least 0 and below 2**63); default 0]" in told
    assert "Side of the backbone's input in pixels. [a whole number (at least 1, at most 4,096)]" in told


def test_several_methods_are_names_with_commas_between_them() -> None:
    assert DiscoverConfig(method=" rpc , uno").method == "rpc,uno"
    assert DiscoverConfig().method is None  # the device decides
    for given in ("rpc,", ",", "rpc,,uno"):
        with pytest.raises(InputError, match="method must be names"):
            DiscoverConfig(method=given)


def test_numbers_may_come_as_text_or_as_numpy_has_them() -> None:
    assert DiscoverConfig(k="10").k == 10
    assert DiscoverConfig(k=np.int64(10), steps="20", seed="3") == DiscoverConfig(k=10, steps=20, seed=3)
    assert type(DiscoverConfig(k=np.int64(10)).k) is int


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("k", value) for value in (2.5, True, 0, "many", None, "-3")),
        *(("steps", value) for value in (0, 2**31)),
        *(("image_size", value) for value in (2**31, "big")),
        *(("seeds", value) for value in (0, 2.5, 2**31)),
        *(("seed", value) for value in (-1, 2**63)),
        *(("bursts", value) for value in ("often", 0, "nan", True)),
        ("sample", 1.0),
        ("long_tail", "maybe"),
        ("backbone", None),
        ("backbone", ""),
        ("method", 3),
        ("arch", 1),
        ("pool", "max"),
        ("mean", "grey"),
        ("device", "tpu"),
    ],
)
def test_what_cannot_be_is_one_sentence(name: str, value: object) -> None:
    with pytest.raises(InputError) as raised:
        DiscoverConfig(**{name: value})
    assert str(raised.value).startswith(f"{name} ")
    assert repr(value) in str(raised.value)
    assert "\n" not in str(raised.value)


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
