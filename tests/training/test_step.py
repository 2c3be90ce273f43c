"""The step: draws that do not depend on where an epoch is entered, sums of terms, and what is never captured."""

from __future__ import annotations

import pytest
import torch

from holotype.methods import Views
from holotype.training import step as step_module
from holotype.training.step import draw_steps

from .stubs import OwnEncoder

ROWS = torch.randint(48, (37, 16), generator=torch.Generator().manual_seed(0))
KEY = (0, 0, 5)


def draws(world, first=0, method="rpc", rows=ROWS):
    loop = world.loop(method)
    views = Views(weak=2, strong=1, share="none")
    return loop, list(draw_steps(rows, first, loop.source, loop.method, views, KEY))


@pytest.mark.parametrize("first", [0, 1, 15, 16, 36])
def test_draws_do_not_depend_on_where_the_epoch_is_entered(world, first):
    loop, whole = draws(world)
    _, later = draws(world, first)
    assert len(whole) == 37
    assert len(later) == 37 - first
    for mine, theirs in zip(later, whole[first:], strict=True):
        assert mine.tensors.keys() == theirs.tensors.keys() == {"image", "random.pairing"}
        for name, value in mine.tensors.items():
            assert torch.equal(value, theirs.tensors[name]), name
        views = [loop.source.fetch(drawn.request)["inputs"] for drawn in (mine, theirs)]
        assert torch.equal(*views)


def test_every_step_has_its_own_draws(world):
    _, whole = draws(world)
    assert torch.equal(torch.stack([drawn.tensors["image"] for drawn in whole]), ROWS)
    pairing = torch.stack([drawn.tensors["random.pairing"] for drawn in whole])
    assert pairing.shape == (37, 16, 16)
    assert len(pairing.flatten(1).unique(dim=0)) == 37


def test_requests_are_announced_before_they_are_fetched(world, monkeypatch):
    loop = world.loop("simgcd")
    seen = []
    monkeypatch.setattr(loop.source, "expect", lambda request: seen.append("expect"))
    for _ in draw_steps(ROWS[:6], 0, loop.source, loop.method, Views(), KEY):
        seen.append("use")
    ahead = step_module.AHEAD
    assert seen[: ahead + 1] == ["expect"] * (ahead + 1)
    assert seen.count("expect") == seen.count("use") == 6


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


def test_a_cpu_an_encoder_of_images_and_a_wish_keep_steps_eager(world, monkeypatch):
    assert not world.loop("simgcd")._captures()
    loop = world.loop("simgcd")
    monkeypatch.setattr(loop, "device", torch.device("cuda"))
    assert loop._captures()
    loop.config.eager = True
    assert not loop._captures()
    loop.config.eager = False
    monkeypatch.setattr(type(loop.method), "capturable", False)
    assert not loop._captures()
    own = world.loop(OwnEncoder)
    monkeypatch.setattr(own, "device", torch.device("cuda"))
    assert not own._captures()
