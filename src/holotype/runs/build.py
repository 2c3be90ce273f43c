"""Build what a run needs from its settings: the data, the method that fits them, the views of its token cache."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from holotype.data.datasets.registry import BENCHMARKS, load_benchmark
from holotype.data.gcd_split import gcd_split, held_out
from holotype.data.load import check_trainable, load_table
from holotype.data.table import Table
from holotype.errors import InputError
from holotype.methods import Method, Stage, Task, find_method
from holotype.methods.base import Views
from holotype.models.backbone import Backbone
from holotype.models.token_cache import CacheViews
from holotype.runs.experiment import Experiment
from holotype.training.encoder import Unregistered
from holotype.training.views import check_cacheable
from holotype.utils.device import pick_device

T = TypeVar("T")
AUTO_VIEWS = CacheViews(4, 2)
"""Of the cache on a CPU, where running the trunk in every step is out of the question."""


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


# -- stages and views of a run before it is made --------------------------------------------------------


_methods_of: dict[str, Method] = {}


def toy_method(experiment: Experiment) -> Method:
    """The method on a toy task, whose stages and views are those of the real one.

    Its weights are not made, unless it reads some while it is built, as a method of somebody else may.
    """
    key = repr((experiment.method_name, experiment.method, experiment.train.epochs))
    if key not in _methods_of:
        task = Task(n_known=2, k=4, dim=8, n_images=16, n_labelled=4, epochs=experiment.train.epochs)
        method = find_method(experiment.method_name)
        _methods_of[key] = build_on_meta(lambda: method(experiment.method, task))
    return _methods_of[key]


def stages_of(experiment: Experiment) -> list[Stage]:
    """The stages of a run before it is made."""
    return toy_method(experiment).stages()


def trains_on_tokens(stages: Iterable[Stage]) -> list[Stage]:
    """Those that can draw from a token cache."""
    return [stage for stage in stages if stage.needs == "tokens"]


def max_views(views: Sequence[Views]) -> Views | None:
    """As many weak and strong views as the greediest of them takes; None of none."""
    return Views(weak=max(v.weak for v in views), strong=max(v.strong for v in views)) if views else None


def views_needed(methods: Iterable[Method]) -> Views | None:
    """The most views that a step of these methods takes from tokens; None where none of them trains on tokens."""
    return max_views([stage.views for method in methods for stage in trains_on_tokens(method.stages())])


def views_of(experiment: Experiment) -> Views | None:
    """`views_needed` of a run before it is made."""
    return views_needed([toy_method(experiment)])


def drop_unusable_cache(experiment: Experiment) -> Experiment:
    """The same in exact mode where views are asked for by number and every stage takes images: of a sweep over many
    methods, one that cannot use the cache runs without it."""
    stages = stages_of(experiment)
    if experiment.cache_views not in ("auto", "off") and stages and not trains_on_tokens(stages):
        return dataclasses.replace(experiment, cache_views="off")
    return experiment


def log_partial_cache(stages: Sequence[Stage], method: str) -> str:
    """Which stages draw from the token cache and which do not; empty where all do."""
    some, others = [s.name for s in trains_on_tokens(stages)], [s.name for s in stages if s.needs == "images"]
    if not (some and others):
        return ""
    return f"Of {method}, {' and '.join(some)} draws from the token cache, and {' and '.join(others)} takes images."


def requested_views(experiment: Experiment) -> CacheViews | None:
    """The token cache that a run asks for, None for exact mode. auto: 4+2 on a CPU, off elsewhere.

    Raises InputError where views are asked for by number and every stage takes images.
    """
    asked = experiment.cache_views
    if asked not in ("auto", "off"):
        check_cacheable(stages_of(experiment), experiment.method_name)
    if asked == "off" or views_of(experiment) is None:
        return None
    if asked == "auto":
        return AUTO_VIEWS if pick_device(experiment.device) == "cpu" else None
    return CacheViews.parse(asked)


def effective_views(experiment: Experiment, wanted: CacheViews | None) -> CacheViews | None:
    """The views of a token cache that the run draws from: without strong ones where the method asks for none."""
    needs = views_of(experiment)
    if wanted is None or needs is None:
        return None
    return wanted if needs.strong else CacheViews(wanted.weak, 0)


def cache_covers(views: CacheViews, fixed: CacheViews) -> bool:
    """Whether a run that drew from `fixed` draws the same from `views`: without strong ones it never sees them."""
    return views.weak == fixed.weak and fixed.strong in (0, views.strong)
