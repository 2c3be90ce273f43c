"""What runs share is made once, when it is asked for, and only while the next run needs the same."""

from __future__ import annotations

import dataclasses
import logging

import pytest
import torch

from holotype.errors import InputError
from holotype.models.token_cache import CacheViews
from holotype.runs import resources as module
from holotype.runs.build import build_method
from holotype.runs.experiment import Experiment
from holotype.runs.resolve import default_experiment
from holotype.runs.resources import ResourceCache, RunResources, make_device, sharing_key
from holotype.training import build_token_cache
from holotype.utils.memory import Budget, MemoryConfig
from tests.small_run import set_dotted


@pytest.fixture
def tiny(squares_folder, tiny_backbone_file, tmp_path):
    """A run on 64 squares of 4 classes with a network of two blocks, on the CPU."""

    def make(method: str = "simgcd", **settings) -> Experiment:
        found = default_experiment(method, str(squares_folder / "squares.csv"))
        found.k, found.device, found.progress = 4, "cpu", False
        found.backbone.name = str(tiny_backbone_file)
        found.memory.cache_dir = str(tmp_path / "cache")
        for key, value in settings.items():
            set_dotted(found, key.replace("__", "."), value)
        return found

    return make


@pytest.fixture
def counted(monkeypatch):
    """How often data are read, a backbone is loaded, images are decoded, and a cache is built."""
    calls: list[str] = []

    def count(target, name, label):
        original = getattr(target, name)

        def counting(*given, **named):
            calls.append(label)
            return original(*given, **named)

        monkeypatch.setattr(target, name, counting)

    count(module, "load_data", "data")
    count(module, "load_backbone", "backbone")
    count(module.ImageStore, "decode", "decode")
    count(module, "open_cache", "cache")
    return calls


def get(shelf: ResourceCache, experiment: Experiment) -> RunResources:
    return shelf.get(experiment, make_device(experiment))


def method_of(ready: RunResources, experiment: Experiment):
    return build_method(experiment, ready.data, ready.backbone)


# -- what is shared -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value", "same"),
    [
        ("seed", 3, True),
        ("train.lr", 0.3, True),
        ("cache_views", "8+4", True),
        ("method_name", "rpc", True),
        ("k", 5, False),
        ("store", "disk", False),
        ("memory.host_gb", 1.0, False),
        ("backbone.train_blocks", 2, False),
        ("train.precision", "fp64", False),
        ("devices", 2, False),
    ],
)
def test_runs_share_where_nothing_that_is_shared_differs(tiny, setting, value, same):
    other = tiny()
    set_dotted(other, setting, value)
    assert (sharing_key(other) == sharing_key(tiny())) == same


def test_nothing_is_decoded_before_it_is_asked_for(tiny, counted):
    shelf = ResourceCache()
    ready = get(shelf, tiny())
    assert counted == ["data", "backbone"]
    assert get(shelf, tiny("kmeans", seed=4)) is ready
    store = ready.images
    assert ready.images is store
    assert ready.held_out is None
    assert counted == ["data", "backbone", "decode"]
    assert ready.decode_seconds > 0


def test_only_the_last_is_kept(tiny, counted):
    shelf = ResourceCache()
    first = get(shelf, tiny())
    assert get(shelf, tiny(k=5)) is not first
    assert get(shelf, tiny()) is not first
    assert counted.count("data") == 3


def test_another_depth_takes_the_decoded_images_over(tiny, counted):
    """Two trained blocks instead of one: another trunk, other tokens, the same images."""
    shelf = ResourceCache()
    first = get(shelf, tiny())
    images = first.images
    deeper = get(shelf, tiny(backbone__train_blocks=2))
    assert deeper is not first
    assert deeper.images is images
    assert deeper.data.table is first.data.table  # which knows the broken ones
    assert deeper.decode_seconds == first.decode_seconds
    assert get(shelf, tiny(k=5, backbone__train_blocks=2)).images is not images
    assert counted.count("decode") == 2


def test_every_run_has_a_tail_of_its_own_on_the_trunk_of_all(tiny):
    ready = get(ResourceCache(), tiny())
    one, other = ready.network(), ready.network()
    assert one.trunk is other.trunk is ready.backbone.trunk
    with torch.no_grad():
        for parameter in one.tail.parameters():
            parameter.zero_()
    for mine, whole in zip(other.tail.parameters(), ready.backbone.tail.parameters(), strict=True):
        assert torch.equal(mine, whole)
    assert any(parameter.abs().sum() > 0 for parameter in other.tail.parameters())


# -- where images lie -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "level", "severity"),
    [
        ({}, "host", "INFO"),
        ({"store": "disk"}, "disk", "INFO"),
        ({"memory__host_gb": 1e-5}, "disk", "WARNING"),  # 64 squares take 0.3 MB
        ({"store": "host", "memory__host_gb": 1e-5}, "disk", "WARNING"),
    ],
)
def test_where_the_images_lie_is_said_in_a_line(tiny, caplog, settings, level, severity):
    caplog.set_level(logging.INFO, "holotype")
    ready = get(ResourceCache(), tiny(**settings))
    assert ready.images.level == level
    ((name, message),) = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert name == severity
    assert message == f"{ready.placed}."
    assert message.startswith("64 images, ")
    assert ready.taken() == Budget.at(level, ready.images.nbytes)


def test_budgets_count_all_images_and_every_open_cache(tiny, monkeypatch):
    """Training images, held-out ones and caches share what the settings allow."""
    asked: list[Budget] = []

    def find(config, device, taken):
        asked.append(taken)
        return Budget(0, 10**9, 10**9)

    monkeypatch.setattr(module, "find_budget", find)
    monkeypatch.setattr(build_token_cache, "find_budget", find)
    experiment = tiny("rpc")
    ready = get(ResourceCache(), experiment)
    ready.data.test = ready.data.table
    images, (_, held_out) = ready.images, ready.held_out
    method = method_of(ready, experiment)
    first = ready.cache(CacheViews(5, 3), method)
    ready.cache(CacheViews(6, 3), method)
    so_far = [0, images.nbytes, images.nbytes + held_out.nbytes]
    assert asked == [Budget.at("host", n) for n in (*so_far, so_far[-1] + first.nbytes)]


def test_a_disk_that_is_too_small_is_an_error(tiny):
    with pytest.raises(InputError, match="disk"):
        _ = get(ResourceCache(), tiny(memory__host_gb=1e-5, memory__disk_gb=1e-5)).images


# -- the token cache ------------------------------------------------------------------------------------


def test_a_cache_is_built_once_for_all_seeds_and_methods(tiny, counted):
    """SimGCD comes first and draws no strong view; the cache holds those that RPC will need."""
    runs = [tiny("simgcd", cache_views="5+3"), tiny("rpc", cache_views="5+3"), tiny("kmeans")]
    shelf = ResourceCache(runs)
    ready = get(shelf, runs[0])
    caches = [ready.cache(CacheViews(5, 3), method_of(ready, run)) for run in runs[:2]]
    assert caches[0] is caches[1]
    assert caches[0].views == CacheViews(5, 3)
    assert counted.count("cache") == 1
    assert ready.taken().host >= caches[0].nbytes
    alone = get(ResourceCache(), runs[0])
    assert alone.cache(CacheViews(5, 3), method_of(alone, runs[0])).views == CacheViews(5, 0)


def test_runs_that_ask_for_something_else_do_not_count(tiny):
    shelf = ResourceCache([tiny("rpc", cache_views="off"), tiny("rpc", cache_views="6+3"), tiny("rpc", k=5)])
    ready = get(shelf, tiny("simgcd", cache_views="5+3"))
    found = ready.cache(CacheViews(5, 3), method_of(ready, tiny()))
    assert found.views == CacheViews(5, 0)


def test_a_resumed_run_takes_an_open_cache_of_its_views(tiny, counted):
    ready = get(ResourceCache(), tiny("rpc"))
    method = method_of(ready, tiny("rpc"))
    cache = ready.cache(CacheViews(5, 3), method)
    assert ready.cache(CacheViews(5, 3), method, fixed=CacheViews(5, 3)) is cache
    assert ready.cache(CacheViews(5, 3), method_of(ready, tiny()), fixed=CacheViews(5, 0)) is cache
    assert ready.cache(CacheViews(5, 3), method_of(ready, tiny())) is cache
    fewer = ready.cache(CacheViews(5, 3), method, fixed=CacheViews(4, 2))
    assert fewer.views == CacheViews(4, 2)
    assert counted.count("cache") == 2
    # both are in use until somebody says that they are not
    assert ready.cache(CacheViews(5, 3), method) is cache
    ready.release()
    assert ready.cache(CacheViews(5, 3), method) is cache
    ready.cache(CacheViews(6, 2), method)
    ready.cache(CacheViews(5, 3), method, fixed=CacheViews(4, 2))
    assert counted.count("cache") == 4  # 4+2 was let go for 6+2


def test_a_cache_without_strong_views_is_none_for_a_method_that_draws_them(tiny, counted):
    """Nobody said that RPC would come."""
    ready = get(ResourceCache(), tiny())
    assert ready.cache(CacheViews(5, 3), method_of(ready, tiny())).views == CacheViews(5, 0)
    assert ready.cache(CacheViews(5, 3), method_of(ready, tiny("rpc"))).views == CacheViews(5, 3)
    assert counted.count("cache") == 2


def test_a_resumed_run_in_a_sweep_opens_the_cache_of_all(tiny, counted):
    """It was stopped; the same sweep goes on. What it drew from is a part of what the others need."""
    runs = [tiny("simgcd", cache_views="5+3"), tiny("rpc", cache_views="5+3")]
    ready = get(ResourceCache(runs), runs[0])
    resumed = ready.cache(CacheViews(5, 3), method_of(ready, runs[0]), fixed=CacheViews(5, 0))
    assert resumed.views == CacheViews(5, 3)
    assert ready.cache(CacheViews(5, 3), method_of(ready, runs[1])) is resumed
    assert counted.count("cache") == 1


def test_a_small_budget_shrinks_the_views_of_a_fresh_run_only(tiny):
    """About 9 kB a view of all images: 20 weak and 10 strong ones do not fit 0.6 MB beside the images."""
    wanted, method = CacheViews(20, 10), "rpc"
    free = get(ResourceCache(), tiny(method))
    per_view = free.cache(CacheViews(4, 2), method_of(free, tiny(method))).nbytes / 7
    small = dataclasses.asdict(MemoryConfig()) | {"host_gb": 12 * per_view / 1e9}
    experiment = tiny(method, memory__host_gb=small["host_gb"], store="disk")
    ready = get(ResourceCache(), experiment)
    shrunk = ready.cache(wanted, method_of(ready, experiment))
    assert (shrunk.level, shrunk.views.weak < 20) == ("host", True)
    fixed = ready.cache(wanted, method_of(ready, experiment), fixed=wanted)
    assert (fixed.level, fixed.views) == ("disk", wanted)


# -- what is given, and what is estimated ---------------------------------------------------------------


def test_data_and_backbone_can_be_given(tiny, counted):
    """A discovery has both already; the experiment is not asked for them."""
    experiment = tiny()
    compute = make_device(experiment)
    first = RunResources(experiment, compute)
    counted.clear()
    shelf = ResourceCache(data=first.data, backbone=first.backbone)
    found = shelf.get(experiment, compute)
    assert (found.data, found.backbone) == (first.data, first.backbone)
    assert counted == []


def test_the_number_of_categories_can_be_estimated_for_any_method(tiny, caplog):
    caplog.set_level(logging.INFO)
    experiment = tiny(k="auto")
    found = RunResources(experiment, make_device(experiment))
    assert 2 <= found.data.k <= 32
    assert "categories" in caplog.text
    assert build_method(experiment, found.data, found.backbone).task.k == found.data.k
    with pytest.raises(InputError, match="--k auto"):
        RunResources(tiny(k=None), make_device(experiment))


def test_more_gpus_than_there_are_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InputError, match="--devices 4 asks for more GPUs than the 2 here"):
        make_device(Experiment("simgcd", "cub", devices=4))


@pytest.mark.parametrize(("name", "precision"), [("auto", "fp32"), ("fp64", "fp64"), ("bf16", "bf16")])
def test_precision_on_the_cpu(tiny, name, precision):
    assert make_device(tiny(train__precision=name)).precision == precision
