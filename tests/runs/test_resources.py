"""What runs share is made once, when it is asked for; which views they ask of the token cache, and which they need."""

import dataclasses
import logging
import shutil

import pytest
import torch

from holotype.errors import InputError
from holotype.methods import METHODS, Views
from holotype.models.token_cache import CacheViews
from holotype.runs import resources as module
from holotype.runs.experiment import Experiment
from holotype.runs.resources import ResourceCache, load_data, requested_views
from holotype.utils.memory import Budget
from tests.conftest import draw_squares
from tests.small_run import set_dotted
from tests.training.stubs import STUBS

WEAK, STRONG = Views(2, 0), Views(2, 1)  # what a step of SimGCD draws, and one of RPC


def test_the_number_of_categories_must_be_given_and_data_be_trainable(tiny, tmp_path) -> None:
    for k, said in ((None, "is unknown"), (1, "smaller than the 2 known"), (65, "more than the 64 images")):
        with pytest.raises(InputError, match=said):
            load_data(tiny(k=k))
    assert load_data(tiny(k=2)).k == 2
    assert load_data(tiny(k="auto")).k == 0  # until it is counted
    draw_squares(tmp_path / "squares")
    shutil.rmtree(tmp_path / "squares" / "red")
    for name, said in (("squares", "Only one known class"), ("nowhere", "does not exist")):
        with pytest.raises(InputError, match=said):
            load_data(tiny(dataset=tmp_path / name))


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
def test_a_run_asks_for_a_cache_where_it_can_use_one(tiny, method, asked, views) -> None:
    experiment = tiny(method, cache_views=asked)
    state = torch.get_rng_state()
    assert requested_views(experiment) == views
    assert torch.equal(torch.get_rng_state(), state)


def test_cached_views_that_no_stage_can_use_are_refused(tiny, monkeypatch) -> None:
    monkeypatch.setitem(METHODS, "pictures", STUBS["images"])
    monkeypatch.setitem(METHODS, "both", STUBS["tokens then images"])
    with pytest.raises(InputError, match="pictures cannot use cached views"):
        requested_views(tiny("pictures", cache_views="4+2"))
    assert requested_views(tiny("pictures", cache_views="auto")) is None
    assert requested_views(tiny("both", cache_views="4+2")) == CacheViews(4, 2)
    assert module.effective_views(tiny("both"), CacheViews(4, 2)) == CacheViews(4, 0)
    for method, taken in (("pictures", "off"), ("both", "4+2"), ("kmeans", "4+2")):  # left out in a sweep
        assert module.drop_unusable_cache(tiny(method, cache_views="4+2")).cache_views == taken
    monkeypatch.setattr(module, "pick_device", lambda name: "cuda")  # where auto is exact
    assert requested_views(tiny(cache_views="auto")) is None
    assert requested_views(tiny(cache_views="4+2")) == CacheViews(4, 2)


@pytest.mark.parametrize("read", [float, lambda one: one.tolist(), str])
def test_a_method_that_reads_its_weights_while_it_is_built_has_stages_too(tiny, monkeypatch, read) -> None:
    """Methods of others may do so; only the toy copy that is asked for its stages has none to read."""
    from holotype.methods.simgcd import SimGCD

    build = SimGCD.__init__

    def reading(self, config, task):
        build(self, config, task)
        self.first = read(self.classifier.v.detach().flatten()[0])

    monkeypatch.setattr(SimGCD, "__init__", reading)
    monkeypatch.setattr("holotype.runs.experiment._toy_methods", {})
    experiment = tiny(cache_views="4+2")
    assert requested_views(experiment) == CacheViews(4, 2)
    ready = ResourceCache().get(experiment)
    assert module.check_fits(experiment, ready.data, ready.backbone) == []


@pytest.mark.parametrize(
    ("setting", "value", "same"),
    [
        *(("seed", 3, True), ("train.lr", 0.3, True), ("cache_views", "8+4", True), ("method_name", "rpc", True)),
        *(("k", 5, False), ("store", "disk", False), ("memory.host_gb", 1.0, False), ("devices", 2, False)),
        *(("backbone.train_blocks", 2, False), ("train.precision", "fp64", False)),
    ],
)  # fmt: skip
def test_runs_share_where_nothing_that_is_shared_differs(tiny, setting, value, same) -> None:
    other = tiny()
    set_dotted(other, setting, value)
    assert (module.sharing_key(other) == module.sharing_key(tiny())) == same


@pytest.mark.parametrize(
    ("settings", "level", "severity"),
    [
        ({}, "host", "INFO"),
        ({"store": "disk"}, "disk", "INFO"),
        ({"memory__host_gb": 1e-5}, "disk", "WARNING"),  # 64 squares take 0.3 MB
        ({"store": "host", "memory__host_gb": 1e-5}, "disk", "WARNING"),
    ],
)
def test_where_the_images_lie_is_said_in_a_line(tiny, caplog, settings, level, severity) -> None:
    caplog.set_level(logging.INFO, "holotype")
    ready = ResourceCache().get(tiny(**settings))
    assert ready.images.level == level
    ((name, message),) = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert (name, message) == (severity, f"{ready.placed}.")
    assert message.startswith("64 images, ")
    assert ready.taken() == Budget.at(level, ready.images.nbytes)
    with pytest.raises(InputError, match="disk"):
        _ = ResourceCache().get(tiny(memory__host_gb=1e-5, memory__disk_gb=1e-5)).images


def test_a_resumed_run_takes_an_open_cache_of_its_views(tiny, counted) -> None:
    ready = ResourceCache().get(tiny("rpc"))
    wanted = CacheViews(5, 3)
    cache = ready.cache(wanted, STRONG)
    assert ready.cache(wanted, STRONG, fixed=wanted) is cache
    assert ready.cache(wanted, WEAK, fixed=CacheViews(5, 0)) is cache
    assert ready.cache(wanted, WEAK) is cache
    for fixed in (CacheViews(4, 2), CacheViews(5, 2)):  # other numbers are other views
        assert ready.cache(wanted, STRONG, fixed=fixed).views == fixed
    assert counted.count("cache") == 3
    # all are in use until somebody says that they are not
    assert ready.cache(wanted, STRONG) is cache
    ready.release()
    assert ready.cache(wanted, STRONG) is cache
    ready.cache(CacheViews(6, 2), STRONG)
    ready.cache(wanted, STRONG, fixed=CacheViews(4, 2))
    assert counted.count("cache") == 5  # 4+2 was let go for 6+2


def test_more_gpus_than_there_are_or_one_for_several_processes_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    experiment = Experiment("simgcd", "cub", devices=4)
    with pytest.raises(InputError, match="--devices 4 is more than the 2 GPUs here"):
        module.make_device(experiment)
    with pytest.raises(InputError, match="--device cuda:1 names one GPU for 2 processes"):
        module.make_device(dataclasses.replace(experiment, device="cuda:1", devices=2))
