"""Loops that take turns end where they would end alone; one that fails or is stopped leaves the others in order."""

import contextlib
import re
from types import SimpleNamespace

import pytest
import torch

from holotype.errors import InputError, Stopped
from holotype.methods import Prediction
from holotype.training.interleave import step_loop, train_in_turns
from tests.cli.test_bad_input import pressed

from .conftest import assert_equal_weights, weights
from .stubs import ClustersAtTheEnd, TwoStages


def test_loops_that_take_turns_end_as_they_would_alone(world):
    """Different methods, seeds and lengths, one of them without a single step."""
    plans = {
        "simgcd s0": ("simgcd", {"seed": 0}),
        "simgcd s1": ("simgcd", {"seed": 1, "epochs": 3}),
        "two stages": (TwoStages, {"seed": 2}),
        "clusters": (ClustersAtTheEnd, {"seed": 0, "epochs": 1}),
        "kmeans": ("kmeans", {"seed": 0}),
    }
    together = {name: world.loop(method, **given) for name, (method, given) in plans.items()}
    ended = train_in_turns(together)
    assert sorted(ended) == sorted(plans)
    assert next(iter(ended)) == "kmeans"  # has nothing to learn
    for name, (method, given) in plans.items():
        alone = world.loop(method, **given)
        prediction = alone.fit()
        assert_equal_weights(weights(together[name]), weights(alone))
        assert torch.equal(ended[name].prediction().category, prediction.category)
        assert ended[name].seconds > 0


def test_a_loop_that_fails_does_not_end_the_others(world):
    diverges = world.loop("simgcd", lr=1e30)
    sound = world.loop("simgcd", seed=1)
    ended = train_in_turns({"diverges": diverges, "sound": sound})
    assert isinstance(ended["diverges"].outcome, InputError)
    with pytest.raises(InputError, match="the loss became"):
        ended["diverges"].prediction()
    alone = world.loop("simgcd", seed=1)
    alone.fit()
    assert_equal_weights(weights(sound), weights(alone))


def test_a_stop_lets_every_loop_save_and_go_on_later(world, tmp_path, monkeypatch):
    def make(part: str) -> dict:
        return {str(seed): world.loop("simgcd", seed=seed, out=tmp_path / f"{part}{seed}") for seed in (0, 1)}

    with monkeypatch.context() as patch:
        patch.setattr("holotype.training.progress.StopRequest.__enter__", pressed)
        ended = train_in_turns(make("stopped"))
    assert [str(end.outcome) for end in ended.values()] == ["stage train, epoch 1 of 2, step 1"] * 2
    assert all(isinstance(end.outcome, Stopped) for end in ended.values())
    resumed, whole = make("stopped"), make("whole")
    assert all(isinstance(end.outcome, Prediction) for end in train_in_turns(resumed).values())
    train_in_turns(whole)
    for seed in resumed:
        assert_equal_weights(weights(resumed[seed]), weights(whole[seed]))


NO_MEMORY = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 TB")


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "GPU"),
        (MemoryError(), "memory"),
        (NO_MEMORY, "memory"),
    ],
)
def test_a_machine_without_memory_is_an_error_of_one_run(error, where):
    def runs_out(error):
        raise error
        yield

    found = step_loop(runs_out(error), 8)
    assert isinstance(found, InputError)
    assert re.search(rf"{where} ran out with 8 runs at once.*--parallel.*--memory\.", str(found))
    assert str(step_loop(runs_out(error), 3, "--seeds")).endswith("with a smaller --seeds.")
    with pytest.raises(ZeroDivisionError):  # a fault in the code is nobody's input
        step_loop(runs_out(ZeroDivisionError()), 2)
    assert train_in_turns({}) == {}


def test_on_a_gpu_every_loop_has_a_stream_and_the_default_one_is_waited_for(monkeypatch):
    """With a stand-in for the GPU: what is queued where, and when everybody waits."""
    happened: list[object] = []

    def current(stream):
        happened.append(stream)
        return contextlib.nullcontext()

    def training(stop, bar):
        yield from (None, None)
        return Prediction(*(torch.zeros(1) for _ in range(3)))

    monkeypatch.setattr(torch.cuda, "Stream", lambda device: object())
    monkeypatch.setattr(torch.cuda, "stream", current)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: happened.append("wait"))
    gpu = SimpleNamespace(device=torch.device("cuda"))
    facts = {"compute": gpu, "progress": False, "training": training, "seconds": lambda: 1.0}
    facts["total_steps"] = 2
    ended = train_in_turns({name: SimpleNamespace(**facts) for name in ("one", "other")})
    assert set(ended) == {"one", "other"}
    assert happened[0] == happened[-1] == "wait"
    one, other = happened[1:3]
    assert one is not other
    assert happened[1:-1] == [one, other] * 3
