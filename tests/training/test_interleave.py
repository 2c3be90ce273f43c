"""Loops that take turns end where they would end alone; one that fails or is stopped leaves the others in order."""

import contextlib
import re
from types import SimpleNamespace

import pytest
import torch

from holotype.errors import InputError
from holotype.methods import Prediction
from holotype.training.interleave import step_loop, train_in_turns

from .conftest import assert_equal_weights, weights


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


NO_MEMORY = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 TB")


@pytest.mark.parametrize(
    ("error", "where"),
    [(torch.OutOfMemoryError("CUDA out of memory"), "GPU"), (MemoryError(), "memory"), (NO_MEMORY, "memory")],
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
