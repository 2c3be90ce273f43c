"""An outline says what settings alone decide, and finds the records of their runs and no others."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holotype.runs.build import RunData
from holotype.runs.identity import identify, identity_matches, identity_outline
from holotype.runs.resolve import resolve
from tests.made_study import made_identity

from .test_identity import BACKBONE, PRESETS, identity_of, small_table


@pytest.mark.parametrize(("method", "preset"), PRESETS)
def test_an_outline_finds_its_own_run_and_no_other(method: str, preset: str) -> None:
    experiment = resolve(method, "cub", preset, {"cache_views": "16+8"})
    told = identity_outline(experiment)
    own = made_identity(experiment)
    assert identity_matches(own, told)
    changes: dict[str, Any] = {"engine": 9, "method.name": "x", "method.revision": 9, "data.name": "scars"}
    changes |= {"data.k": 194, "backbone.name": "x", "backbone.train_blocks": 7, "views": "3+3"}
    changes |= {"method.settings.added": 1} | ({"train.lr": 9.0} if method != "kmeans" else {"train.lr": 0.1})
    for key, value in changes.items():
        assert not identity_matches(made_identity(experiment, {key: value}), told), key
    for key, value in {
        "seed": 5,
        "data.table": "9",
        "backbone.digest": "9",
        "train.precision": "bf16",
    }.items():
        assert identity_matches(made_identity(experiment, {key: value}), told), key  # the settings do not say
    missing = own.method["settings"].copy()
    missing.popitem()
    assert not identity_matches(dataclasses.replace(own, method=own.method | {"settings": missing}), told)


def test_an_outline_says_what_is_asked_for_and_leaves_open_what_is_not() -> None:
    plain = identity_outline(resolve("rpc", "cub"))
    assert not {"views", "backbone.image_size", "train.precision"} & set(plain)
    assert (
        plain["data.k"] == 200
    )  # as the data set has it: a run with a number that was counted is another row's
    assert "data.k" not in identity_outline(resolve("rpc", "cub", overrides={"k": "auto"}))
    asked = {"k": 7, "cache_views": "off", "backbone.image_size": 64, "train.precision": "fp64"}
    told = identity_outline(resolve("rpc", "birds/table.csv", overrides=asked))
    assert (told["views"], told["data.k"], told["data.name"]) == ("off", 7, "table")
    assert (told["backbone.image_size"], told["train.precision"]) == (64, "fp64")
    network = resolve("rpc", "birds.v2", overrides={"backbone.name": "some/where/vit.safetensors"})
    assert (identity_outline(network)["backbone.name"], identity_outline(network)["data.name"]) == (
        "vit",
        "birds.v2",
    )


def test_a_setting_that_came_later_changes_no_hash_at_the_value_that_held_before() -> None:
    """Runs of the time before warm-up was a setting are runs without it."""
    without, with_it = (
        identity_outline(resolve("simgcd", "cub", overrides={"train.warmup": epochs}))
        for epochs in (0.0, 0.05)
    )
    assert "train.warmup" not in without
    assert with_it == without | {"train.warmup": 0.05}


def test_pool_and_normalisation_are_told_where_they_are_not_the_usual_ones() -> None:
    """Runs of the time before there was a choice keep their hash."""
    experiment = resolve("simgcd", "cub")
    assert set(identity_of(experiment).backbone) == {"name", "digest", "train_blocks", "image_size"}
    changed = dataclasses.replace(BACKBONE, changes={"pool": "mean", "mean": [0, 0, 0], "std": [1, 1, 1]})
    found = identify(experiment, RunData(small_table(), 4), changed, None)
    assert found.backbone == identity_of(experiment).backbone | changed.changes
    asked = {"backbone.name": "vit_small_patch16_dinov3.lvd1689m"}
    told = identity_outline(resolve("simgcd", "cub", overrides=asked))
    assert told["backbone.pool"] == "token"  # so that a run with timm's mean is another
    assert (
        identity_outline(resolve("simgcd", "cub", overrides=asked | {"backbone.pool": "mean"}))[
            "backbone.pool"
        ]
        is None
    )
    assert identity_outline(experiment)["backbone.pool"] is None
    values = {"backbone.mean": "[0, 0, 0]", "backbone.std": "[1, 1, 1]"}
    assert identity_outline(resolve("simgcd", "cub", overrides=values))["backbone.mean"] == [0, 0, 0]
