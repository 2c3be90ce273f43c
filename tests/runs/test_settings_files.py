"""Settings as text and in files: whatever is written is read back, and faults name the file."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from holotype.config.parse import value_text, write_yaml
from holotype.config.types import (
    Constraint,
    Cosine,
    Count,
    Epochs,
    Factor,
    Gigabytes,
    LargeInt,
    Momentum,
    Natural,
    Positive,
    RepeatCount,
    Seed,
    Side,
    SmallInt,
    Steps,
    UnitInterval,
    Weight,
    Width,
)
from holotype.errors import InputError
from holotype.methods import METHODS, Method, find_method
from holotype.runs.experiment import CacheViewsText, Experiment
from holotype.runs.resolve import default_experiment, read_settings, resolve, setting_values

EVERY = [(name, preset) for name, method in METHODS.items() for preset in method.presets]

# -- round trips --------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")))
STRATEGIES = {
    Natural: st.integers(0, 10**6),
    UnitInterval: st.floats(0, 1),
    Positive: st.floats(0, 1e30, exclude_min=True),
    Weight: st.floats(0, 1e30),
    Momentum: st.floats(0, 1, exclude_max=True),
    Cosine: st.floats(-1, 1),
    Factor: st.floats(0, 100, exclude_min=True),
    Epochs: st.integers(1, 100_000),
    Steps: st.integers(1, 1_000_000),
    Side: st.integers(1, 4_096),
    Width: st.integers(0, 100_000),
    LargeInt: st.integers(1, 100_000),
    RepeatCount: st.integers(1, 1_000),
    SmallInt: st.integers(1, 100),
    Count: st.integers(1),
    Seed: st.integers(0, 2**63 - 1),
    Gigabytes: st.floats(0, exclude_min=True, allow_infinity=False),
    CacheViewsText: st.sampled_from(["auto", "off", "16+8", "2+0"]),
    int: st.integers(),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    str: WORDS,
    type(None): st.none(),
}


def values(hint: Any) -> st.SearchStrategy:
    if hint in STRATEGIES:
        return STRATEGIES[hint]
    if get_origin(hint) is Annotated and any(isinstance(rule, Constraint) for rule in get_args(hint)):
        return st.sampled_from(["auto", "cpu", "cuda", "cuda:3", "mps"])  # the one that is left: a device
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        return st.tuples(*map(values, get_args(hint)))
    assert get_origin(hint) in (Union, types.UnionType), hint
    may_be_null = type(None) in get_args(hint)
    # as text, nobody can tell the word null from null
    return st.one_of(*map(values, get_args(hint))).filter(lambda value: value != "null" or not may_be_null)


def changes(experiment: Experiment) -> st.SearchStrategy[dict[str, Any]]:
    """Any settings with any values that they may have."""
    fixed = ["method_name", "dataset", "preset"]
    if find_method(experiment.method_name).stages is not Method.stages:
        fixed.append("train.warmup")  # may be refused where stages have a pace of their own
    each = {key: values(hint) for key, _, hint in setting_values(experiment) if key not in fixed}
    return st.fixed_dictionaries({}, optional=each)


@pytest.mark.parametrize(("method", "preset"), EVERY)
@tried(max_examples=tried.default.max_examples // 3)  # of each of two dozen methods and presets
@given(data=st.data())
def test_text_and_files_give_back_every_setting(method: str, preset: str, data, tmp_path_factory) -> None:
    asked = data.draw(changes(default_experiment(method, "cub", preset)))
    found = resolve(method, "cub", preset, asked)
    got = {key: value for key, value, _ in setting_values(found)}
    assert {key: got[key] for key in asked} == asked
    text = {key: value_text(value) for key, value, _ in setting_values(found)}
    assert resolve(method, "cub", preset, text) == found
    file = tmp_path_factory.getbasetemp() / "config.yaml"
    file.write_text(write_yaml(found.as_dict()), encoding="utf-8")
    assert resolve(method, "cub", preset, read_settings(file)) == found


# -- files --------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    return folder / "config.yaml"


def test_a_file_is_read_as_people_mean_it(tmp_path) -> None:
    text = "method_name: rpc\ncache-views: off\nout: 2024\ntrain: {lr: 1e-4, epochs: 1_000}\nk:\n"
    text += "method: {ova: {weight: 2}}\n"
    assert read_settings(written(tmp_path, text)) == {
        "method_name": "rpc",
        "cache_views": "off",
        "out": "2024",
        "train.lr": 1e-4,
        "train.epochs": 1000,
        "k": None,
        "method.ova.weight": 2.0,
    }


def test_settings_of_a_method_that_the_file_does_not_name(tmp_path) -> None:
    file = written(tmp_path, "method: {n_init: 3}")
    assert read_settings(file) == {"method.n_init": "3"}
    assert read_settings(file, "kmeans") == {"method.n_init": 3}
    assert resolve("kmeans", "cub", overrides=read_settings(file)).method.n_init == 3
    with pytest.raises(InputError, match=r"'method\.n_init' in .*config\.yaml is unknown"):
        read_settings(file, "simgcd")
    with pytest.raises(InputError, match="is a group of settings"):
        resolve("kmeans", "cub", overrides=read_settings(written(tmp_path, "method: 3")))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("train: {epoch: 3}", "The setting 'train.epoch' in {} is unknown; did you mean train.epochs?"),
        ("train: 3", "train in {} is a group of settings, not a value: '3'."),
        ("train:", "train in {} is a group of settings, not a value: None."),
        ("train: {epochs: many}", "train.epochs in {} must be a whole number, not 'many'."),
        ("seed: [1, 2]", "seed in {} must be a whole number, not ['1', '2']."),
        ("method_name:", "method_name in {} must be text, not None."),
        (
            "3: 4",
            "The setting '3' in {} is unknown; holotype train METHOD DATASET --help lists what there is.",
        ),
    ],
)
def test_what_is_wrong_with_a_file_names_the_file(tmp_path, text: str, sentence: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InputError) as refused:
        read_settings(file)
    assert str(refused.value) == sentence.format(file)


def test_files_that_are_none(tmp_path) -> None:
    for text, word in (("- 1", "name: value"), ("", "name: value"), ("a: {b", "is not valid YAML")):
        with pytest.raises(InputError, match=word):
            read_settings(written(tmp_path, text))
    with pytest.raises(InputError, match=r"gone\.yaml with settings cannot be read: No such file"):
        read_settings(tmp_path / "gone.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match="not valid YAML"):
        read_settings(tmp_path / "binary.yaml")
