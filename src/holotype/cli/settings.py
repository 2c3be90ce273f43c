"""Words of the command line and keys of a YAML file -> Experiment; the only user of jsonargparse.

METHOD, DATASET and --preset are taken off first, because they decide which settings there are and what
their defaults are. Then one flat parser over the dataclasses of that method checks the types. Whatever it
finds wrong comes out as one sentence.
"""

from __future__ import annotations

import argparse
import difflib
import math
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, set_parsing_settings

from holotype.data.benchmarks import BENCHMARKS
from holotype.errors import InputError
from holotype.models.cache import CacheViews
from holotype.runs.experiment import Experiment
from holotype.runs.settings import default_experiment

BARE = ("--help", "-h", "--print_config", "--no_progress")
"""Flags that take no value."""
USAGE = """holotype train METHOD DATASET [--root DIR] [--SETTING VALUE ...]
       holotype train --config FILE [--SETTING VALUE ...]"""
COUNTS = ("k", "devices", "train.epochs", "train.batch_size", "train.eval_every")
"""Settings that are numbers of something, and at least 1."""
AMOUNTS = ("memory.device_gb", "memory.host_gb", "memory.disk_gb")
"""Settings that are larger than 0."""


@dataclass
class Words:
    """A command line taken apart."""

    places: list[str] = field(default_factory=list)
    """Words that belong to no flag: METHOD and DATASET."""
    flags: list[tuple[str, str | None]] = field(default_factory=list)
    """Flag and value, in order; None for a flag of BARE."""

    def has(self, *names: str) -> bool:
        return any(flag in names for flag, _ in self.flags)

    def pop(self, name: str) -> list[str]:
        """Take the values of a flag off."""
        values = [value for flag, value in self.flags if flag == name and value is not None]
        self.flags = [(flag, value) for flag, value in self.flags if flag != name]
        return values


def read_words(argv: Sequence[str]) -> Words:
    words, rest = Words(), iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        flag = with_underscores(name)
        if not word.startswith("-") or word == "-":
            words.places.append(word)
        elif equals:
            words.flags.append((flag, value))
        elif flag in BARE:
            words.flags.append((flag, None))
        else:
            given = next(rest, None)
            if given is None or given.startswith("--"):
                raise InputError(f"The flag {word} needs a value; write {word} VALUE.")
            words.flags.append((flag, given))
    return words


def with_underscores(flag: str) -> str:
    """A flag as settings are spelled: --cache-views is --cache_views."""
    return "--" + flag[2:].replace("-", "_") if flag.startswith("--") else flag


@dataclass
class Request:
    """What a command line asks for, before types are checked."""

    method: str
    dataset: str
    preset: str
    files: list[Path]
    words: Words


def read_request(words: Words) -> Request:
    """Take METHOD, DATASET, --preset and --config off the words; what is not there comes from the files."""
    files = [Path(file) for file in words.pop("--config")]
    content: dict[str, Any] = {}
    for file in files:
        content |= read_yaml(file)
    if len(words.places) > 2:
        raise InputError(
            f"{words.places[2]!r} is one word too many after METHOD and DATASET; settings are --NAME VALUE."
        )
    given = dict(zip(("method_name", "dataset"), words.places, strict=False))
    for name in ("method_name", "dataset", "preset"):
        for value in words.pop(f"--{name}"):
            if given.get(name, value) != value:
                raise InputError(f"{name} is given twice, as {given[name]!r} and {value!r}; leave one out.")
            given[name] = value
    if given.get("preset", content.get("preset")) != content.get("preset", given.get("preset")):
        raise InputError(
            f"{files[-1]} holds the settings of the preset {content['preset']!r}, so that --preset "
            f"{given['preset']} would change nothing but the name; leave out one of the two."
        )
    found = {"preset": "default", **{key: content[key] for key in content if key in NAMES}, **given}
    for name, place in (("method_name", "METHOD"), ("dataset", "DATASET")):
        if not isinstance(found.get(name), str):
            raise InputError(
                f"{place} is missing; write holotype train METHOD DATASET, or name it in a --config file."
            )
    return Request(found["method_name"], found["dataset"], str(found["preset"]), files, words)


NAMES = ("method_name", "dataset", "preset")


def resolve(request: Request) -> Experiment:
    """The experiment: defaults of method, preset and data set, then the files, then the flags.

    Leaves with SystemExit where --help or --print_config was asked for.
    """
    experiment = default_experiment(request.method, request.dataset, request.preset)
    for file in request.files:
        _check_keys(read_yaml(file), experiment, file)
    _check_flags(request.words, experiment)
    parser = make_parser(experiment)
    argv = [word for file in request.files for word in ("--config", str(file))]
    argv += ["--method_name", request.method, "--dataset", request.dataset, "--preset", request.preset]
    for flag, value in request.words.flags:
        if flag == "--no_progress":
            argv.append("--progress=false")
        else:
            argv.append(flag if value is None else f"{flag}={value}")
    try:
        parsed = parser.parse_args(argv).as_dict()
    except argparse.ArgumentError as error:
        raise InputError(_explain(str(error), experiment)) from error
    _fill(experiment, parsed)
    _check_values(experiment)
    return experiment


def check_dataset(dataset: str) -> None:
    """A data set is the name of a benchmark or something on the disk."""
    if dataset in BENCHMARKS or Path(dataset).exists():
        return
    close = difflib.get_close_matches(dataset, BENCHMARKS, n=1)
    hint = f"did you mean {close[0]}" if close else f"the data sets are {', '.join(BENCHMARKS)}"
    raise InputError(
        f"There is neither a data set nor a file or folder called {dataset!r}; {hint} (or give the path of a "
        "folder of images, or of a CSV or Parquet file)."
    )


def make_parser(experiment: Experiment) -> ArgumentParser:
    """One flat parser over the settings of an experiment, whose values are the defaults."""
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(
        prog="holotype train",
        usage=USAGE,
        description="Train one method on one data set and score it. The defaults shown are those of "
        f"{experiment.method_name} on {experiment.dataset}.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config",
        action=ActionConfigFile,
        help="YAML file with settings, such as a run's config.yaml; flags win over it.",
    )
    parser.add_class_arguments(Experiment, skip={"method"})
    parser.add_class_arguments(type(experiment.method), "method")
    known = {key: value for key, value, _ in settings(experiment)}
    parser.set_defaults(known)
    for action in parser._actions:  # --train FILE and the like: one file for all, with --config, is enough
        if action.dest not in (*known, "help", "config", "print_config"):
            action.help = argparse.SUPPRESS
    return parser


def settings(target: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted key, value and type of every setting of a dataclass, nested ones included."""
    hints = get_type_hints(type(target))
    for one in fields(target):
        value = getattr(target, one.name)
        if is_dataclass(value):
            yield from settings(value, f"{prefix}{one.name}.")
        else:
            yield f"{prefix}{one.name}", value, hints[one.name]


def read_yaml(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"The file {file} given with --config cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file} is not valid YAML: {error}.") from error
    if not isinstance(content, dict):
        raise InputError(
            f"{file} must hold settings as `name: value`; `--print_config` shows how they are written."
        )
    return content


# -- what can be wrong --------------------------------------------------------------------------------


def _check_keys(content: dict[str, Any], experiment: Experiment, file: Path) -> None:
    """Every key of a file must be a setting, and a group must hold settings."""
    known = [key for key, _, _ in settings(experiment)]
    groups = (
        {"method"}
        | {  # a method without settings is an empty group
            ".".join(parts[:n]) for parts in (key.split(".") for key in known) for n in range(1, len(parts))
        }
    )

    def walk(tree: dict[Any, Any], prefix: str) -> None:
        for name, value in tree.items():
            key = f"{prefix}{name}"
            if key in groups:
                if not isinstance(value, dict):
                    raise InputError(f"{key} in {file} is a group of settings, not a value: {value!r}.")
                walk(value, f"{key}.")
            elif key not in known:
                raise InputError(f"{file} holds the unknown setting {key!r}; {_hint(key, known)}")

    walk(content, "")


def _check_flags(words: Words, experiment: Experiment) -> None:
    known = [f"--{key}" for key, _, _ in settings(experiment)]
    for flag, _ in words.flags:
        if flag not in known and flag not in BARE:
            raise InputError(f"There is no flag {flag}; {_hint(flag, known)}")


def _check_values(experiment: Experiment) -> None:
    """What a type cannot say."""
    for key, value, _ in settings(experiment):
        if key in COUNTS and isinstance(value, int) and value < 1:  # k may be auto
            raise InputError(f"{key} must be at least 1, not {value}.")
        if key in AMOUNTS and value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{key} must be a number of GB above 0, not {value}.")
    if experiment.cache_views not in ("auto", "off"):
        CacheViews.parse(experiment.cache_views)


def _hint(given: str, known: Sequence[str]) -> str:
    """The setting that was probably meant: of the same name in another group, or spelled alike."""
    last = given.lstrip("-").rpartition(".")[2]
    same = [key for key in known if key.lstrip("-").rpartition(".")[2] == last]
    close = same or difflib.get_close_matches(given, known, n=1)
    return (
        f"did you mean {close[0]}?" if close else "holotype train METHOD DATASET --help lists what there is."
    )


def _explain(text: str, experiment: Experiment) -> str:
    """jsonargparse's complaint about a value, as one sentence."""
    for key, _, hint in settings(experiment):
        if f'"{key}"' in text or f"--{key}:" in text:
            given = text.rpartition("value: ")[2].strip() if "value: " in text else None
            found = f", not {given!r}" if given is not None else ""
            return f"{key} must be {describe_type(hint)}{found}."
    return f"The settings cannot be read: {text}."


def describe_type(hint: Any) -> str:
    """A type in words: `a whole number`, `auto, cpu or cuda`."""
    *parts, last = _in_words(hint)
    return f"{', '.join(parts)} or {last}" if parts else last


def _in_words(hint: Any) -> list[str]:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    if get_origin(hint) is Literal:
        return [str(choice) for choice in get_args(hint)]
    if get_origin(hint) in (Union, types.UnionType):
        return [word for part in get_args(hint) for word in _in_words(part)]
    return [words.get(hint, f"of type {hint}")]


def _fill(target: Any, values: dict[str, Any]) -> None:
    """Put parsed values into the dataclasses."""
    for one in fields(target):
        current = getattr(target, one.name)
        if is_dataclass(current):
            _fill(current, values.get(one.name, {}))  # a method may have no settings
        else:
            setattr(target, one.name, values[one.name])
