"""`holotype.train`: one run, from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from holotype.data.datasets.registry import check_dataset
from holotype.errors import InputError
from holotype.runs.record import Record
from holotype.runs.run import run_experiment
from holotype.runs.settings import resolve


def train(
    method: str,
    dataset: str | os.PathLike[str],
    *,
    preset: str = "default",
    settings: Mapping[str, Any] | None = None,
    **named: Any,
) -> Record:
    """Train a method on a data set and score it; returns the record of the run, which is also in its scores.json.

    method: a name from `holotype methods`, or one of your own as package.module:Class.
    dataset: the name of a benchmark, or the path of a folder of images or of a CSV or Parquet file.
    preset: named settings of the method.
    settings: whatever has a dot in its name, as in {"train.epochs": 20, "method.lambda_2": 0.1}.
    named: the settings without a dot: root, labels, k, seed, out, device, devices, progress, store, cache_views, label.
        `holotype train METHOD DATASET --help` lists all of them, and `holotype.Experiment` holds them.

    A run that is found in the folder `out` is continued, and one that is finished is not trained again. Raises
    InputError, with one sentence, for whatever cannot be used.
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError(f"settings is {settings!r}; give them by name, as in {{'train.epochs': 20}}.")
    overrides = {key.replace("-", "_"): value for key, value in (settings or {}).items()}
    if twice := overrides.keys() & named.keys():
        raise InputError(f"{min(twice)} is given twice, by name and in `settings`; leave one out.")
    where = os.fspath(dataset)
    experiment = resolve(method, where, preset, overrides | named)
    check_dataset(where)
    return run_experiment(experiment)
