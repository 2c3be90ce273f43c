"""Build what a run needs from its settings: the data, and the method that fits them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from holotype.data.datasets.registry import BENCHMARKS, load_benchmark
from holotype.data.gcd_split import gcd_split, held_out
from holotype.data.load import check_trainable, load_table
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Method, Task, find_method
from holotype.models.backbone import Backbone
from holotype.runs.experiment import Experiment
from holotype.training.encoder import Unregistered

T = TypeVar("T")


@dataclass
class RunData:
    """What a run is trained and scored on."""

    table: Table
    k: int
    """Number of categories; 0 until it has been estimated."""
    test: Table | None = None


def load_data(experiment: Experiment) -> RunData:
    """The table under the GCD protocol for a benchmark, or as it stands for a collection of one's own."""
    if experiment.dataset in BENCHMARKS:
        benchmark = load_benchmark(experiment.dataset, Path(experiment.root) if experiment.root else None)
        table = gcd_split(benchmark)
        data = RunData(table, len(benchmark.known) + len(benchmark.novel), held_out(benchmark))
    else:
        labels = Path(experiment.labels) if experiment.labels else None
        data = RunData(load_table(experiment.dataset, labels), 0)
    check_trainable(data.table)
    if experiment.k == "auto":
        data.k = 0
        return data
    data.k = experiment.k or data.k
    if not data.k:
        raise InputError(
            f"{experiment.dataset} does not say how many categories there are; give their number, known and novel "
            "together, with --k, or have it estimated with --k auto."
        )
    check_k(data.k, data.table, experiment.dataset)
    return data


def check_k(k: int, table: Table, name: str) -> None:
    """Raise InputError where known classes alone are more than k, or k is more than there are images."""
    if k < len(table.known):
        raise InputError(
            f"--k {k} is smaller than the {len(table.known)} known classes of {name}; "
            "it counts known and novel categories together."
        )
    if k > len(table):
        raise InputError(f"--k {k} is more than the {len(table)} images of {name}; lower it.")


def build_method(experiment: Experiment, data: RunData, backbone: Backbone) -> Method:
    """The method with fresh heads, drawn from torch's generator."""
    table = data.table
    task = Task(
        n_known=len(table.known),
        k=data.k,
        dim=backbone.dim,
        n_images=len(table),
        n_labelled=int(table.labelled.sum()),
        epochs=experiment.train.epochs,
    )
    return find_method(experiment.method_name)(experiment.method, task)


def check_fits(experiment: Experiment, data: RunData, backbone: Backbone) -> list[str]:
    """Raise InputError where the method cannot be trained on the data, or with the network; before anything is
    computed. Returns what it has to say of its settings."""

    def build() -> list[str]:
        method = build_method(experiment, data, backbone)
        said = method.check()
        if type(method).build_encoder is not Method.build_encoder:
            method.build_encoder(Unregistered(backbone.trunk), copy.deepcopy(backbone.tail))
        return said

    return build_on_meta(build)


def build_on_meta(build: Callable[[], T]) -> T:
    """What `build` makes, without weights; with them where it reads some, as a method of somebody else may."""
    with torch.random.fork_rng(devices=[]):  # nobody's generator is to notice
        try:
            with torch.device("meta"):
                return build()
        except InputError:
            raise
        except Exception:  # torch and NumPy each have their own for a value that is not there
            return build()
