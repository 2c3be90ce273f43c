"""The step: sums of terms, and what is never captured."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from holotype.training import step as module
from holotype.training.step import Step

from .stubs import OwnEncoder


def test_the_logged_terms_are_means_of_the_epoch(world, tmp_path):
    loop = world.loop("simgcd", epochs=1, out=tmp_path)
    seen = []
    loss = loop.method.loss
    loop.method.loss = lambda *given: seen.append(loss(*given)) or seen[-1]
    loop.fit()
    sums = loop.step.named_sums()
    for name in seen[0]:
        assert float(sums[name]) == pytest.approx(
            sum(float(terms[name].detach()) for terms in seen), rel=1e-5
        )


def test_a_cpu_a_wish_and_a_stage_that_says_so_keep_steps_eager(world, monkeypatch):
    def captures(loop, eager=False, **changes):
        stage = dataclasses.replace(loop.stages[0], **changes)
        modules, optimiser = loop.modules, torch.optim.SGD(loop.learnable.values())
        target = loop.rows.target
        return Step(stage, loop.source, loop.method, modules, optimiser, target, eager).captures

    loop, own = world.loop("simgcd"), world.loop(OwnEncoder)
    assert not captures(loop)
    monkeypatch.setattr(module, "can_capture", lambda device: True)
    assert captures(loop)
    assert captures(own)  # an encoder of images, too
    assert not captures(loop, eager=True)
    assert not captures(loop, capturable=False)
