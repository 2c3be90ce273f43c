"""How long stages on images take is said before they begin, and saying it changes nothing."""

from __future__ import annotations

import pytest
import torch

from holotype.errors import Stopped
from holotype.methods import METHODS
from holotype.training import stage as module

from .conftest import assert_equal_weights, weights
from .test_every_method import steps_of
from .test_loop import interrupt_after


def said(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if "through the whole network" in r.getMessage()]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_with_stages_on_images_says_how_long_they_take(world, name, caplog):
    loop = world.loop(name, epochs=1)
    names = [stage.name for stage in loop.stages if stage.needs == "images"]
    caplog.set_level("INFO", "holotype")
    next(steps_of(loop), None)
    assert len(said(caplog)) == bool(names)
    assert all(stage in line for line in said(caplog) for stage in names)


def test_the_time_is_that_of_all_steps_of_all_images(world, monkeypatch, caplog):
    """Two epochs and one, of 3 steps with 16 images each, at a minute an image."""
    monkeypatch.setattr(module, "seconds_an_image", lambda *_: 60.0)
    caplog.set_level("INFO", "holotype")
    loop = world.loop("promptcal", epochs=2, settings={"affinity_epochs": 0.5})
    next(steps_of(loop))
    (line,) = said(caplog)
    assert "warm-up and affinity" in line
    assert "2 h 24 min" in line


def test_a_resumed_run_tells_what_is_left(world, monkeypatch, caplog, tmp_path):
    first = world.loop("promptcal", epochs=2, out=tmp_path)
    interrupt_after(first, 7)  # within the last of three epochs
    with pytest.raises(Stopped):
        first.fit()
    monkeypatch.setattr(module, "seconds_an_image", lambda *_: 60.0)
    caplog.set_level("INFO", "holotype")
    caplog.clear()  # another test may have let the first run speak
    world.loop("promptcal", epochs=2, out=tmp_path).fit()
    (line,) = said(caplog)
    assert "warm-up" not in line
    assert "48 min" in line


@pytest.mark.parametrize("name", ["sptnet", "promptcal"])
def test_timing_leaves_weights_gradients_and_generators_alone(world, name):
    loop = world.loop(name)
    before, state = weights(loop), torch.get_rng_state()
    for stage in loop.stages:
        if stage.needs == "images":
            assert module.seconds_an_image(loop.encoder, stage, 2, 32, 3) > 0
    assert_equal_weights(before, weights(loop))
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is None for p in loop.learnable.values())
