"""The step: sums of terms, and what is never captured."""

from __future__ import annotations

import dataclasses

import pytest
import torch

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
    loop = world.loop("simgcd")
    (stage,) = loop.stages
    assert not loop._captures(stage)
    monkeypatch.setattr(loop, "device", torch.device("cuda"))
    assert loop._captures(stage)
    assert not loop._captures(dataclasses.replace(stage, capturable=False))
    loop.config.eager = True
    assert not loop._captures(stage)
    own = world.loop(OwnEncoder)
    monkeypatch.setattr(own, "device", torch.device("cuda"))
    assert own._captures(own.stages[0])  # images, too
