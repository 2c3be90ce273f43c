"""A captured step does what the eager step does. These tests need a GPU."""

import logging

import pytest
import torch

from holotype.data.image_store import place_pixels
from holotype.errors import Stopped
from holotype.methods import Task, Views
from holotype.methods.simgcd import SimGCD
from holotype.models.token_cache import CacheViews
from holotype.training import step
from holotype.training.build_token_cache import open_cache
from holotype.training.cuda_graph import CapturedStep
from holotype.training.interleave import train_in_turns
from holotype.utils.device import Device
from holotype.utils.memory import MemoryConfig, find_budget

from .conftest import assert_equal_weights, fit_and_watch, make_method, tiny_backbone, weights
from .stubs import TRAINED

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def stages_of(name):
    """The stages of a method, whose weights are not made for that."""
    with torch.device("meta"):
        return make_method(TRAINED[name], Task(2, 4, 32, 48, 12, 3)).stages()


CASES = [(name, False) for name in TRAINED if name != "clusters"]  # of which a last bit may move a centre
CASES += [(name, True) for name, _ in CASES if any(stage.needs == "tokens" for stage in stages_of(name))]
MAGNIFIED = [("uno", False)]
"""Cases in which a rounding of the trunk grows beyond the tolerance: batch norm, ReLU and sharp targets make 5e-4 in a
weight of 1e-5 in a token within three epochs (measured on a CPU). An eager trunk rounds elsewhere than a compiled one,
if only because it convolves where the other multiplies."""
DECIDED = {"promptcal": "method.tally."}
"""Counts of comparisons, which 1e-7 in a feature decides otherwise: 3 of 46 (measured on a CPU)."""


@pytest.fixture(scope="module")
def on_gpu(world, tmp_path_factory):
    device = torch.device("cuda", torch.cuda.current_device())
    budget, folder = find_budget(MemoryConfig(), device), tmp_path_factory.mktemp("s")
    store, _ = place_pixels(world.store, device, "device", budget, folder)
    return type(world)(world.table, store)


def cache_of(world, compute, memory, **how):
    rows, needs = torch.arange(len(world.table)), Views(weak=2, strong=1)
    return open_cache(CacheViews(4, 2), needs, world.store, tiny_backbone(), compute, rows, memory, **how)


def loop_on(on_gpu, method, precision="fp32", cached=False, **settings):
    compute = Device.on("cuda", precision)
    cache = cache_of(on_gpu, compute, MemoryConfig()) if cached else None
    return on_gpu.loop(TRAINED.get(method, method), compute=compute, cache=cache, **settings)


def test_a_captured_function_is_replayed_and_its_warm_up_undone():
    total = torch.zeros((), device="cuda")

    def add(inputs):
        total.add_(inputs["x"].sum())
        return total.clone()

    captured = CapturedStep(add, {"x": torch.ones(3, device="cuda")}, [total])
    assert float(total) == 0
    assert float(captured({"x": torch.full((3,), 2.0, device="cuda")})) == 6
    assert float(captured({"x": torch.full((3,), 1.0, device="cuda")})) == 9
    assert float(total) == 9


@pytest.mark.parametrize(("name", "cached"), CASES)
def test_captured_steps_equal_eager_ones(on_gpu, monkeypatch, name, cached):
    """Those of the same trunk, compiled where there is no cache; and those in which nothing is compiled either."""
    captured = loop_on(on_gpu, name, cached=cached, epochs=3)
    assert fit_and_watch(captured) == {stage.name: stage.capturable for stage in captured.stages}
    eager = loop_on(on_gpu, name, cached=cached, epochs=3, eager=True)
    assert not any(fit_and_watch(eager).values())
    monkeypatch.setattr(step, "can_capture", lambda device: False)
    same_trunk = loop_on(on_gpu, name, cached=cached, epochs=3)
    assert not any(fit_and_watch(same_trunk).values())
    assert_close(captured, same_trunk, DECIDED.get(name))
    if (name, cached) not in MAGNIFIED:
        assert_close(captured, eager, DECIDED.get(name))


def assert_close(loop, other, decided=None):
    """Weights and buffers; those whose names begin with `decided` count decisions, a few of which may differ."""
    found = weights(loop)
    for key, value in weights(other).items():
        few = decided is not None and key.startswith(decided)
        atol, rtol = (1, 0.25) if few else (2e-4, 2e-3)
        torch.testing.assert_close(found[key], value, atol=atol, rtol=rtol, msg=key)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_captured_run_resumes_bit_for_bit(on_gpu, tmp_path, precision):
    whole = loop_on(on_gpu, "rpc", precision, cached=True, epochs=3)
    whole.fit()
    first = loop_on(on_gpu, "rpc", precision, cached=True, epochs=3, out=tmp_path)
    training = first._run_epoch

    def stops(run, epoch, stop, bar):
        for number, _ in enumerate(training(run, epoch, stop, bar)):
            stop.requested = epoch == 1 and number == 0
            yield

    first._run_epoch = stops
    with pytest.raises(Stopped):
        first.fit()
    second = loop_on(on_gpu, "rpc", precision, cached=True, epochs=3, out=tmp_path)
    second.fit()
    assert_equal_weights(weights(whole), weights(second))


class ReadsAValue(SimGCD):
    """What a capture cannot hold: the host waits for a number of the device."""

    def loss(self, batch, now):
        terms = super().loss(batch, now)
        return {name: term * float(term.detach() > -1) for name, term in terms.items()}


def test_a_method_that_cannot_be_captured_runs_eagerly_and_says_so(on_gpu, caplog):
    with caplog.at_level(logging.WARNING, logger="holotype"):
        loop = loop_on(on_gpu, ReadsAValue)
        loop.fit()
    assert loop.captured == {"train": False}
    assert "cannot be captured as a CUDA graph" in caplog.text
    eager = loop_on(on_gpu, "simgcd", eager=True)
    eager.fit()
    assert_close(loop, eager)


def test_images_and_tokens_below_the_device_give_the_same_run(world, on_gpu, tmp_path):
    """Host memory and a memory-mapped file, with the next batches fetched on a side stream."""
    for cached in (False, True):
        expected = loop_on(on_gpu, "rpc", cached=cached)
        expected.fit()
        if cached:
            compute = Device.on("cuda", "fp32")
            disk = MemoryConfig(1e-6, 1e-6, None, str(tmp_path))
            for level, config in {"host": MemoryConfig(device_gb=1e-6), "disk": disk}.items():
                cache = cache_of(on_gpu, compute, config, fixed=True)
                assert cache.level == level
                below = on_gpu.loop("rpc", compute=compute, cache=cache)
                below.fit()
                assert below.captured == {"train": True}
                assert_equal_weights(weights(expected), weights(below))
        else:
            below = loop_on(world, "rpc")  # this world's images are in host memory
            assert not below.source.on_device
            below.fit()
            assert_equal_weights(weights(expected), weights(below))


def test_loops_on_streams_of_their_own_equal_loops_alone(on_gpu):
    """Captured graphs replayed side by side must share no scratch memory."""
    seeds = range(4)
    alone = [loop_on(on_gpu, "rpc", cached=True, seed=seed, epochs=20) for seed in seeds]
    for loop in alone:
        loop.fit()
    together = {str(seed): loop_on(on_gpu, "rpc", cached=True, seed=seed, epochs=20) for seed in seeds}
    train_in_turns(together)
    for seed in seeds:
        assert together[str(seed)].captured == {"train": True}
        assert_equal_weights(weights(alone[seed]), weights(together[str(seed)]))
