"""Resolve names to an experiment: defaults, recipe of the data set, preset, overrides.

A setting is called by its dotted key: `seed`, `train.epochs`, `method.new.sharpen`. Dashes may stand for underscores.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from holotype.config.parse import (
    CastError,
    cast,
    describe_type,
    field_docs,
    first_line,
    flatten,
    parse_yaml,
    value_text,
)
from holotype.errors import InputError
from holotype.methods import Method, check_code_allowed, find_method
from holotype.runs.experiment import Experiment
from holotype.utils.text import suggest, suggest_path

ANY_DATASET = "*"
"""Key of what holds for all data sets."""
RECIPE_PARENT = {"scars-8137": "scars", "cifar100-200": "cifar100"}
"""Parts of a data set, which take its values."""


def recipe(method_name: str, dataset: str) -> dict[str, Any]:
    """Dotted settings of `method_name` on `dataset`; empty where the general defaults hold."""
    own = vars(find_method(method_name)).get("recipes", {})  # not those of a method that it is built on
    return {**own.get(ANY_DATASET, {}), **own.get(RECIPE_PARENT.get(dataset, dataset), {})}


WARMUP_KEY = "train.warmup"


def resolve(
    method: str, dataset: str, preset: str = "default", overrides: Mapping[str, Any] | None = None
) -> Experiment:
    """The experiment of a method on a data set: defaults, recipe, preset, overrides; the later one wins.

    overrides: dotted key -> value, typed or as text ("200", "true", "null", "16+8"); a whole group may be a mapping.
    Raises InputError for a key that is not there, and for a value that the setting cannot have.
    """
    kind = find_method(method)
    if preset not in kind.presets:
        raise InputError(
            f"{method} has no preset {preset!r}{suggest(preset, kind.presets)}; its presets are "
            f"{', '.join(kind.presets)}."
        )
    experiment = Experiment(method, dataset, preset=preset, method=kind.Config())
    asked = _check(overrides or {}, experiment)
    for name in ("method_name", "dataset", "preset"):
        if asked.get(name, getattr(experiment, name)) != getattr(experiment, name):
            raise InputError(
                f"{name} is given twice, as {getattr(experiment, name)!r} and {asked[name]!r}; leave one out."
            )
    given = _check(recipe(method, dataset), experiment, f" in the recipe of {method} for {dataset}")
    given |= _check(preset_settings(kind, preset), experiment, f" in the preset {preset} of {method}")
    made: Experiment = _changed(experiment, given | asked)
    usual = given.get(WARMUP_KEY, experiment.train.warmup)
    if asked.get(WARMUP_KEY, usual) != usual and ignores_warmup(made):
        raise InputError(
            f"{WARMUP_KEY} has no effect on {method}, whose learning rate follows a pace of its own; leave it out."
        )
    return made


def ignores_warmup(experiment: Experiment) -> bool:
    """Whether every stage brings a pace of its own, so that the warm-up of training does nothing."""
    if find_method(experiment.method_name).stages is Method.stages:
        return False  # need not be built to know
    from holotype.runs.build import stages_of

    stages = stages_of(experiment)
    return bool(stages) and all(stage.paced for stage in stages)


def preset_settings(kind: type[Method], preset: str) -> dict[str, Any]:
    """The dotted settings of a preset: keys of the method's own config, and train.* as they stand."""
    given = kind.presets[preset]
    return {key if key.startswith("train.") else f"method.{key}": value for key, value in given.items()}


def default_experiment(method: str, dataset: str, preset: str = "default") -> Experiment:
    """The experiment with the data set's recipe and the method's preset filled in."""
    return resolve(method, dataset, preset)


def read_settings(file: Path, method: str | None = None) -> dict[str, Any]:
    """Return the dotted settings that a YAML file such as a run's config.yaml holds, keys and values checked.

    method: whose settings the group `method` holds; by default that of the file's own `method_name`. Where neither
    says it, what is in that group is returned as it stands, for `resolve` to check.
    """
    content = _read_yaml(file)
    name = method or content.get("method_name")
    if not method and isinstance(name, str):
        check_code_allowed(name, file)
    config = find_method(name).Config() if isinstance(name, str) else None
    return flatten(_check(content, Experiment("", "", method=config), f" in {file}"))


def setting_values(target: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted key, value and type hint of every setting of an experiment, or of another dataclass."""
    for name, value, hint in _fields(target):
        if _is_group(value):
            yield from setting_values(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value, hint


class SettingInfo(NamedTuple):
    """A setting as its help tells it."""

    key: str
    type: str
    """In words, with the rules that go with it."""
    value: str
    """As text."""
    help: str
    """The docstring below the field; empty where there is none."""
    group: str
    """Title of the group that it stands in."""


def describe_settings(experiment: Experiment) -> list[SettingInfo]:
    """Every setting, its own before those of its groups."""
    every = list(_describe(experiment, "", first_line(type(experiment))))
    if not ignores_warmup(experiment):
        return every
    inert = f"Has no effect: the learning rate of {experiment.method_name} follows a pace of its own."
    return [row._replace(help=inert) if row.key == WARMUP_KEY else row for row in every]


def nearest_setting(key: str, known: Iterable[str]) -> str | None:
    """The key that was probably meant: of the same name in another group, or spelled alike."""
    known = list(known)
    same = [one for one in known if one.rpartition(".")[2] == key.rpartition(".")[2]]
    close = same or difflib.get_close_matches(key, known, n=1)
    return close[0] if close else None


# -- what can be wrong --------------------------------------------------------------------------------


def _check(given: Mapping[Any, Any], experiment: Experiment, where: str = "") -> dict[str, Any]:
    """Dotted key -> typed value. where: ` in config.yaml`, for sentences about what is wrong."""
    known = {key: hint for key, _, hint in setting_values(experiment)}
    groups = set(_groups(experiment))
    found = {}

    def walk(tree: Mapping[Any, Any], prefix: str) -> None:
        for name, value in tree.items():
            key = prefix + str(name).replace("-", "_")
            if key in groups:
                if _is_group(value):
                    value = {name: one for name, one, _ in _fields(value)}
                if not isinstance(value, Mapping):
                    raise InputError(f"{key}{where} is a group of settings, not a value: {value!r}.")
                walk(value, f"{key}.")
            elif key in known:
                try:
                    found[key] = cast(value, known[key])
                except CastError as error:
                    raise InputError(f"{key}{where} must be {error}, not {value!r}.") from error
            else:
                meant = nearest_setting(key, known)
                listed = "holotype train METHOD DATASET --help lists what there is."
                hint = f"did you mean {meant}?" if meant else listed
                raise InputError(f"The setting {key!r}{where} is unknown; {hint}")

    walk(given, "")
    return found


def _read_yaml(file: Path) -> dict[Any, Any]:
    try:
        content = parse_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"The file {file} with settings cannot be read: {error.strerror}{suggest_path(file)}."
        ) from error
    except ValueError as error:
        raise InputError(f"{file} is not valid YAML: {error}.") from error
    if not isinstance(content, dict):
        raise InputError(
            f"{file} must hold settings as `name: value`; `holotype train METHOD DATASET --print_config` shows how."
        )
    return content


# -- dataclasses in dataclasses -----------------------------------------------------------------------


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except (NameError, TypeError) as error:
        raise InputError(
            f"The types of the settings of {kind.__module__}:{kind.__qualname__} cannot be read ({error}); import "
            "what they name at the top of the module."
        ) from error


def _fields(target: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and type hint of the fields that can be set."""
    hints = _hints(target.__class__)
    for one in dataclasses.fields(target):
        if one.init:
            yield one.name, getattr(target, one.name), hints[one.name]


def _is_group(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _groups(target: Any, prefix: str = "") -> Iterator[str]:
    for name, value, _ in _fields(target):
        if _is_group(value):
            yield f"{prefix}{name}"
            yield from _groups(value, f"{prefix}{name}.")


def _changed(target: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    """A copy with some settings changed, all at once: a dataclass may be frozen, or look at them in __post_init__."""
    changes = {}
    for name, value, _ in _fields(target):
        key = f"{prefix}{name}"
        if _is_group(value):
            changes[name] = _changed(value, values, f"{key}.")
        elif key in values:
            changes[name] = values[key]
    try:
        return dataclasses.replace(target, **changes)
    except ValueError as error:
        raise InputError(f"The settings {prefix}* do not go together: {error}.") from error


def _describe(target: Any, prefix: str, title: str) -> Iterator[SettingInfo]:
    docs, groups = field_docs(target.__class__), []
    for name, value, hint in _fields(target):
        key, doc = f"{prefix}{name}", docs.get(name, "")
        if _is_group(value):  # of a method, the class says more than the field of the experiment
            groups.append((value, f"{key}.", (first_line(type(value)) if key == "method" else doc) or key))
        else:
            yield SettingInfo(key, describe_type(hint, rules=True), value_text(value), doc, title.rstrip("."))
    for group in groups:
        yield from _describe(*group)
