"""From names to an experiment: the method's defaults, the data set's recipe, the preset."""

from __future__ import annotations

import dataclasses
from typing import Any

from holotype.errors import InputError
from holotype.methods import find_method
from holotype.runs.experiment import Experiment
from holotype.runs.recipes import recipe


def default_experiment(method_name: str, dataset: str, preset: str = "default") -> Experiment:
    """The experiment with the method's preset and the data set's recipe filled in."""
    method = find_method(method_name)
    if preset not in method.presets:
        raise InputError(
            f"{method_name} has no preset {preset!r}; its presets are {', '.join(method.presets)}."
        )
    experiment = Experiment(method_name, dataset, preset=preset, method=method.Config())
    for key, value in recipe(method_name, dataset).items():
        set_dotted(experiment, key, value)
    for key, value in method.presets[preset].items():
        set_dotted(experiment, f"method.{key}", value)
    return experiment


def set_dotted(experiment: Experiment, key: str, value: Any) -> None:
    """Set `train.epochs`, `method.ova.arch`, ... by name."""
    *parents, last = key.split(".")
    target: Any = experiment
    for parent in parents:
        target = getattr(target, parent, None)
    if not dataclasses.is_dataclass(target) or last not in {f.name for f in dataclasses.fields(target)}:
        raise InputError(
            f"there is no setting called {key!r}; `holotype train METHOD DATASET --help` lists them."
        )
    setattr(target, last, value)


def resolve(method: str, dataset: str, preset: str = "default", overrides: Any = None) -> Experiment:
    """Placeholder of the merge."""
    experiment = default_experiment(method, dataset, preset)
    for key, value in (overrides or {}).items():
        target: Any = experiment
        for part in key.split(".")[:-1]:
            target = getattr(target, part, None)
        now = getattr(target, key.split(".")[-1], None)
        if isinstance(value, str) and isinstance(now, (int, float)) and not isinstance(now, bool):
            value = type(now)(value)
        if isinstance(now, float) and isinstance(value, int):
            value = float(value)
        set_dotted(experiment, key, value)
    return experiment
