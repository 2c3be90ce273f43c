"""Which views a run asks of the token cache, and which it needs."""

from __future__ import annotations

import pytest
import torch

from holotype.errors import InputError
from holotype.methods import METHODS, Task, Views, find_method
from holotype.models.token_cache import CacheViews
from holotype.runs import build as module
from holotype.runs.build import (
    cache_covers,
    check_fits,
    drop_unusable_cache,
    effective_views,
    log_partial_cache,
    requested_views,
    views_needed,
)
from holotype.runs.resolve import default_experiment
from holotype.runs.resources import RunResources
from holotype.utils.device import Device
from tests.training.stubs import STUBS

from .test_resources import tiny as tiny  # the fixture: an experiment on coloured squares

TASK = Task(n_known=2, k=4, dim=32, n_images=10, n_labelled=4)


def methods(*names: str) -> list:
    made = []
    for name in names:
        kind = STUBS.get(name) or find_method(name)
        made.append(kind(None if name in STUBS else default_experiment(name, "cub").method, TASK))
    return made


@pytest.mark.parametrize(
    ("names", "most"),
    [
        (("simgcd",), (2, 0)),
        (("rpc",), (2, 1)),
        (("simgcd", "kmeans", "rpc"), (2, 1)),
        (("two stages",), (2, 1)),
        (("kmeans",), None),
        (("images",), None),
        (("images", "simgcd"), (2, 0)),
        (("tokens then images",), (2, 0)),
    ],
)
def test_views_needed_are_the_most_of_all_stages_and_methods(names, most):
    found = views_needed(methods(*names))
    assert found == (most and Views(weak=most[0], strong=most[1]))


@pytest.mark.parametrize(
    ("method", "asked", "views"),
    [
        ("simgcd", "off", None),
        ("simgcd", "auto", CacheViews(4, 2)),  # on the CPU
        ("simgcd", "16+8", CacheViews(16, 8)),
        ("kmeans", "auto", None),
        ("kmeans", "16+8", None),
    ],
)
def test_a_run_asks_for_a_cache_where_it_can_use_one(tiny, method, asked, views):
    experiment = tiny(method, cache_views=asked)
    state = torch.get_rng_state()
    assert requested_views(experiment) == views
    assert torch.equal(torch.get_rng_state(), state)


def test_cached_views_that_no_stage_can_use_are_refused_and_the_stages_named(tiny, monkeypatch):
    monkeypatch.setitem(METHODS, "pictures", STUBS["images"])
    monkeypatch.setitem(METHODS, "both", STUBS["tokens then images"])
    says = "pictures cannot use cached views"
    with pytest.raises(InputError, match=says):
        requested_views(tiny("pictures", cache_views="4+2"))
    assert requested_views(tiny("pictures", cache_views="auto")) is None
    assert requested_views(tiny("pictures", cache_views="off")) is None
    assert requested_views(tiny("both", cache_views="4+2")) == CacheViews(4, 2)
    assert effective_views(tiny("both"), CacheViews(4, 2)) == CacheViews(4, 0)


def test_on_a_gpu_auto_is_exact(tiny, monkeypatch):
    monkeypatch.setattr(module, "pick_device", lambda name: "cuda")
    assert requested_views(tiny()) is None
    assert requested_views(tiny(cache_views="4+2")) == CacheViews(4, 2)


def test_a_cache_that_cannot_be_read_is_refused(tiny):
    with pytest.raises(InputError, match="16"):
        requested_views(tiny(cache_views="16"))


@pytest.mark.parametrize(
    ("cache", "drawn_from", "same"),
    [
        ("5+3", "5+3", True),
        ("5+3", "5+0", True),
        ("5+3", "5+2", False),
        ("5+0", "5+3", False),
        ("6+3", "5+3", False),
    ],
)
def test_a_cache_holds_the_views_of_a_run(cache, drawn_from, same):
    assert cache_covers(CacheViews.parse(cache), CacheViews.parse(drawn_from)) == same


@pytest.mark.parametrize("read", [float, lambda one: one.numpy(), lambda one: one.tolist(), bool, str])
def test_a_method_that_reads_its_weights_while_it_is_built_has_stages_too(tiny, monkeypatch, read):
    """Methods of others may do so; only the toy copy that is asked for its stages has none to read."""
    from holotype.methods.simgcd import SimGCD

    build = SimGCD.__init__

    def reading(self, config, task):
        build(self, config, task)
        self.first = read(self.classifier.v.detach().flatten()[0])

    monkeypatch.setattr(SimGCD, "__init__", reading)
    monkeypatch.setattr("holotype.runs.build._methods_of", {})
    experiment = tiny("simgcd", cache_views="4+2")
    assert requested_views(experiment) == CacheViews(4, 2)
    prepared = RunResources(experiment, Device.on("cpu"))
    assert check_fits(experiment, prepared.data, prepared.backbone) == []


@pytest.mark.parametrize(
    ("method", "asked", "taken"),
    [
        ("simgcd", "16+8", "16+8"),
        ("sptnet", "16+8", "16+8"),
        ("kmeans", "16+8", "16+8"),
        ("promptcal", "16+8", "off"),
        ("promptcal", "auto", "auto"),
    ],
)
def test_a_sweep_leaves_the_cache_out_where_no_stage_can_use_it(tiny, method, asked, taken):
    experiment = tiny(method, cache_views=asked)
    assert drop_unusable_cache(experiment).cache_views == taken
    assert experiment.cache_views == asked  # the one that was given stays as it is


def test_which_stages_draw_from_the_cache_is_told_where_they_differ():
    told = {name: log_partial_cache(methods(name)[0].stages(), name) for name in METHODS}
    assert told.pop("sptnet") == "Of sptnet, simgcd draws from the token cache, and prompts takes images."
    assert not any(told.values())
