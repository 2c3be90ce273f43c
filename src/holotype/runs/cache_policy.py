"""Cache policy: which views the token cache of a run must hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from holotype.methods import Method, Stage, Task, find_method
from holotype.methods.base import Views
from holotype.models.token_cache import CacheViews
from holotype.runs.build import build_on_meta
from holotype.runs.experiment import Experiment
from holotype.training.views import check_cacheable
from holotype.utils.device import pick_device

AUTO_VIEWS = CacheViews(4, 2)
"""Of the cache on a CPU, where running the trunk in every step is out of the question."""


def views_needed(methods: Iterable[Method]) -> Views | None:
    """The most views that a step of these methods takes from tokens; None where none of them trains on tokens."""
    return max_views(stage.views for method in methods for stage in trains_on_tokens(method.stages()))


def trains_on_tokens(stages: Iterable[Stage]) -> list[Stage]:
    """Those that can draw from a token cache."""
    return [stage for stage in stages if stage.needs == "tokens"]


def max_views(of: Iterable[Views]) -> Views | None:
    """As many weak and strong views as the greediest of them takes; None of none."""
    views = list(of)
    if not views:
        return None
    return Views(weak=max(v.weak for v in views), strong=max(v.strong for v in views))


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


def effective_views(experiment: Experiment, wanted: CacheViews | None) -> CacheViews | None:
    """The views of a token cache that the run draws from: without strong ones where the method asks for none."""
    stages = trains_on_tokens(stages_of(experiment))
    if wanted is None or not stages:
        return None
    return wanted if any(stage.views.strong for stage in stages) else CacheViews(wanted.weak, 0)


def cache_covers(views: CacheViews, fixed: CacheViews) -> bool:
    """Whether a run that drew from `fixed` draws the same from `views`: without strong ones it never sees them."""
    return views.weak == fixed.weak and fixed.strong in (0, views.strong)
