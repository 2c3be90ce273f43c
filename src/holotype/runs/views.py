"""Which views the token cache of a run must hold."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from holotype.machine.device import pick_device
from holotype.methods import Method, find_method
from holotype.methods.base import Views
from holotype.models.backbone import Backbone
from holotype.models.cache import CacheViews
from holotype.runs.experiment import Experiment
from holotype.runs.parts import Data, make_method

AUTO_VIEWS = CacheViews(4, 2)
"""Of the cache on a CPU, where running the trunk in every step is out of the question."""


def views_needed(methods: Iterable[Method]) -> Views | None:
    """The most views that a step of these methods takes; None where none of them trains on tokens."""
    return most_views(s.views for method in methods if method.needs == "tokens" for s in method.stages())


def most_views(of: Iterable[Views]) -> Views | None:
    """As many weak and strong views as the greediest of them takes; None of none."""
    views = list(of)
    if not views:
        return None
    return Views(weak=max(v.weak for v in views), strong=max(v.strong for v in views))


_needed: dict[str, Views | None] = {}


def views_of(experiment: Experiment, data: Data, backbone: Backbone) -> Views | None:
    """`views_needed` of a run before it is made; remembered, because heads take long to draw."""
    facts = (experiment.method_name, experiment.method, experiment.train.epochs)
    key = repr((*facts, len(data.table.known), data.k, backbone.dim, len(data.table)))
    if key not in _needed:
        with torch.random.fork_rng(devices=[]):  # the caller's generator is not to notice
            _needed[key] = views_needed([make_method(experiment, data, backbone)])
    return _needed[key]


def wanted_views(experiment: Experiment, data: Data, backbone: Backbone) -> CacheViews | None:
    """The token cache that a run asks for, None for exact mode. auto: 4+2 on a CPU, off elsewhere."""
    asked = experiment.cache_views
    if asked == "off" or find_method(experiment.method_name).needs == "images":
        return None
    if views_of(experiment, data, backbone) is None:
        return None
    if asked == "auto":
        return AUTO_VIEWS if pick_device(experiment.device) == "cpu" else None
    return CacheViews.parse(asked)


def holds(views: CacheViews, fixed: CacheViews) -> bool:
    """Whether a run that drew from `fixed` draws the same from `views`: without strong ones it never sees them."""
    return views.weak == fixed.weak and fixed.strong in (0, views.strong)
