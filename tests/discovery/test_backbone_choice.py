"""`--backbone auto` takes the best that can be had, and says which and why."""

from __future__ import annotations

import socket

import pytest

from holotype.config.schema import BackboneConfig
from holotype.discovery import backbone_choice
from holotype.discovery.backbone_choice import (
    PUBLIC_BACKBONE,
    choose_backbone,
    hub_answers,
    is_cached,
    preview_backbone,
)
from holotype.errors import InputError


@pytest.fixture
def world(monkeypatch, tiny_backbone_file):
    """Sets what there is: names in the local cache, whether the hub answers. Loads a tiny network for any of them."""
    load = backbone_choice.load_backbone
    asked = []

    def set_up(cached=(), online=False, broken=()):
        monkeypatch.setattr(backbone_choice, "is_cached", lambda name: name in cached)
        monkeypatch.setattr(backbone_choice, "hub_answers", lambda: online)

        def fake(config, fetch=True):
            asked.append((config.name, config.image_size))
            if config.name in broken:
                raise InputError("half a file.")
            return load(BackboneConfig(str(tiny_backbone_file)))

        monkeypatch.setattr(backbone_choice, "load_backbone", fake)
        return asked

    return set_up


def test_a_name_is_taken_as_it_is(world) -> None:
    asked = world(cached=PUBLIC_BACKBONE)
    assert choose_backbone(BackboneConfig("embedded"), "cpu").config.name == "embedded"
    assert asked == [("embedded", None)]


def test_the_larger_one_on_a_gpu_and_the_smaller_one_on_a_cpu(world) -> None:
    world(online=True)
    assert choose_backbone(BackboneConfig("auto"), "cuda").config.name == PUBLIC_BACKBONE[0]
    chosen = choose_backbone(BackboneConfig("auto"), "cpu")
    assert (chosen.config.name, chosen.config.image_size) == (PUBLIC_BACKBONE[1], 224)
    assert "public" in chosen.words
    assert "hub" in chosen.words


def test_the_cache_comes_before_the_hub(world) -> None:
    world(cached=PUBLIC_BACKBONE[:1])
    chosen = choose_backbone(BackboneConfig("auto"), "cpu")
    assert chosen.config.name == PUBLIC_BACKBONE[0]
    assert "local cache" in chosen.words


@pytest.mark.parametrize("broken", [(), PUBLIC_BACKBONE])
def test_otherwise_the_embedded_one_with_what_that_means(world, broken) -> None:
    world(online=bool(broken), broken=broken)
    chosen = choose_backbone(BackboneConfig("auto"), "cpu")
    assert chosen.config.name == "embedded"
    assert "coarser categories" in chosen.words
    assert ("half a file" if broken else "does not answer") in chosen.words


@pytest.mark.parametrize(("cached", "online"), [((), True), (PUBLIC_BACKBONE[:1], False), ((), False)])
def test_what_would_be_taken_is_foreseen(world, cached, online) -> None:
    asked = world(cached, online)
    chosen = choose_backbone(BackboneConfig("auto"), "cpu")
    preview_backbone(BackboneConfig("auto"), "cpu")
    assert asked == [(chosen.config.name, chosen.config.image_size)] * 2


def test_nothing_is_fetched_to_foresee(monkeypatch) -> None:
    monkeypatch.setattr("holotype.models.backbone.load_from_hub", lambda *_: pytest.fail("fetched"))
    backbone = preview_backbone(BackboneConfig("vit_tiny_patch16_224.augreg_in21k", image_size=64), "cpu")
    assert (backbone.dim, backbone.image_size) == (192, 64)
    with pytest.raises(InputError, match="timm knows no network"):
        preview_backbone(BackboneConfig("vit_tiny_patch16_225"), "cpu")


def test_a_hub_that_is_silent_or_out_of_reach_is_given_up(monkeypatch) -> None:
    from huggingface_hub import constants

    with socket.socket() as silent:  # takes connections, and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert not hub_answers(0.05)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert not hub_answers()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert not hub_answers()
    assert not is_cached("vit_nobody_has.this")
