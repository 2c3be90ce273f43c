"""`--backbone auto` takes the best that can be had, and says which and why."""

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


@pytest.mark.parametrize(
    ("there", "wanted", "device", "name", "words"),
    [
        ({"cached": PUBLIC_BACKBONE}, "embedded", "cpu", "embedded", "as asked for"),
        ({"online": True}, "auto", "cuda", PUBLIC_BACKBONE[0], "from the Hugging Face hub"),
        ({"online": True}, "auto", "cpu", PUBLIC_BACKBONE[1], "public"),
        ({"cached": PUBLIC_BACKBONE[:1]}, "auto", "cpu", PUBLIC_BACKBONE[0], "local cache"),
        ({}, "auto", "cpu", "embedded", "does not answer. It is small"),
        ({"online": True, "broken": PUBLIC_BACKBONE}, "auto", "cpu", "embedded", "half a file"),
    ],
)
def test_the_best_that_can_be_had_is_taken(world, there, wanted, device, name, words) -> None:
    asked = world(**there)
    chosen = choose_backbone(BackboneConfig(wanted), device)
    assert chosen.config.name == name
    assert asked[-1] == (name, None if name == "embedded" else 224)
    assert words in chosen.words


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
