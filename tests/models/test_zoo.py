"""Networks of timm and of the hub: what is out of reach or damaged becomes advice, and a fault stays a fault."""

import copy
import fnmatch
import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from torch import nn

from holotype.config.schema import BackboneConfig
from holotype.discovery.backbone_choice import PUBLIC_BACKBONE
from holotype.errors import InputError
from holotype.models import zoo
from holotype.models.backbone import load_backbone, state_digest
from holotype.models.hub import short_error
from holotype.models.weights_io import EMBEDDED
from holotype.models.zoo import (
    FREE_LICENCES,
    RECOMMENDED,
    USES,
    has_conditions,
    licence_of,
    licence_of_files,
    licence_terms,
    licence_text,
    measure_speed,
    model_outline,
)

TINY, DINO = "vit_tiny_patch16_224", "vit_base_patch16_224.dino"


class FakeHub:
    """timm.create_model as it behaves with a hub that answers, or one that does not."""

    def __init__(self, answer: nn.Module | Exception | Callable[[], Any]) -> None:
        self.answer, self.real, self.asked = answer, timm.create_model, {}

    def __call__(self, name: str, pretrained: bool = False, **named: Any) -> nn.Module:
        if not pretrained:
            return self.real(name, pretrained=False, **named)
        self.asked = {"name": name, **named}
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer if isinstance(self.answer, nn.Module) else self.answer()


class StrangeError(Exception):
    pass


StrangeError.__module__ = "httpx._exceptions"


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("no route"),
        StrangeError("?"),
        LocalEntryNotFoundError("nothing on this disk,\nand no network"),
        RuntimeError('invalid hash value (expected "a", got "b")'),
    ],
)
def test_a_hub_out_of_reach_becomes_advice(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(timm, "create_model", FakeHub(error))
    with pytest.raises(InputError, match=f"holotype backbones fetch {DINO}") as raised:
        load_backbone(BackboneConfig(DINO))
    assert short_error(error) in str(raised.value)
    assert "\n" not in str(raised.value)


def cut_safetensors(file: Path) -> None:
    file.write_bytes(EMBEDDED.read_bytes()[:100_000])
    load_file(file)


def cut_checkpoint(file: Path, size: int = 2000) -> None:
    torch.save({"a": torch.zeros(1000)}, file)
    file.write_bytes(file.read_bytes()[:size])
    torch.load(file, weights_only=True)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("read", [cut_safetensors, cut_checkpoint, partial(cut_checkpoint, size=0)])
def test_a_file_of_the_hub_that_was_cut_off_is_named(read, cached: bool, tmp_path: Path, monkeypatch) -> None:
    """With the errors that the readers really raise; the client keeps a file, and a link to it under its name."""
    link = tmp_path / "model.safetensors"
    link.symlink_to(tmp_path / "blob")
    there = {(f"timm/{DINO}", link.name): str(link)} if cached else {}
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *wanted: there.get(wanted))
    monkeypatch.setattr(timm, "create_model", FakeHub(lambda: read(tmp_path / "blob")))
    with pytest.raises(InputError, match=r"not fetched whole .* run the same command again\.$") as raised:
        load_backbone(BackboneConfig(DINO))
    what = str(tmp_path / "blob") if cached else f"timm/{DINO} from its cache"
    assert f"delete {what}" in str(raised.value)


def test_a_hub_that_answers_and_a_fault_in_the_code_that_is_not_blamed_on_it(monkeypatch: pytest.MonkeyPatch):
    model = timm.create_model(TINY, img_size=32, num_classes=0).eval()
    hub = FakeHub(copy.deepcopy(model))
    monkeypatch.setattr(timm, "create_model", hub)
    found = load_backbone(BackboneConfig(f"{TINY}.augreg_in21k", image_size=32))
    assert hub.asked == {"name": f"{TINY}.augreg_in21k", "num_classes": 0, "img_size": 32}
    assert (found.name, found.mean, found.caveat) == (f"{TINY}.augreg_in21k", (0.5, 0.5, 0.5), "")
    assert len(found.digest) == 64
    assert found.digest == state_digest(model.state_dict())
    with torch.no_grad():
        model.norm.bias[0] += 1
    assert found.digest != state_digest(model.state_dict())
    monkeypatch.setattr(timm, "create_model", FakeHub(ZeroDivisionError("bug")))
    with pytest.raises(ZeroDivisionError):
        load_backbone(BackboneConfig(f"{TINY}.augreg_in21k"))


def test_every_use_has_a_list_that_begins_without_strings() -> None:
    assert list(RECOMMENDED) == list(USES) == ["photos", "nature", "medical", "industrial"]
    assert not any(has_conditions(several[0].licence) for several in RECOMMENDED.values())
    assert {licence_of(name) for name in PUBLIC_BACKBONE} <= FREE_LICENCES
    assert load_backbone(BackboneConfig()).licence in FREE_LICENCES
    for one in {one for several in RECOMMENDED.values() for one in several}:  # as timm has them
        assert one.image_size % model_outline(one.arch).patch_embed.feat_ratio() == 0
        if ":" not in one.name and one.name != "embedded":
            assert one.name.partition(".")[0] == one.arch
            assert one.licence == licence_of(one.name)


@pytest.mark.parametrize(
    ("licence", "says"),
    [
        ("cc-by-nc-nd-4.0", "forbids commercial use"),
        ("fair-noncommercial-research-license", "forbids commercial use"),
        ("apple-amlr", "forbids commercial use"),
        ("dinov3-license", "Meta's DINOv3 licence"),
        ("somebody's", "terms of its own"),
        ("", "Nobody says"),
        ("unknown", "Nobody says"),
    ],
)
def test_strings_are_told(licence: str, says: str) -> None:
    assert has_conditions(licence)
    assert says in licence_terms(licence)
    assert licence_text("net", licence).startswith("Backbone net: ")


def test_a_network_that_there_is_with_strings_alone_has_them_without_its_tag(monkeypatch) -> None:
    meta, other = "dinov3-license", "fair-noncommercial-research-license"
    licences = {"new.one": meta, "both.one": meta, "both.other": other, "silent.one": None}
    licences |= {"mixed.free": "apache-2.0", "mixed.mae": "cc-by-nc-4.0"}
    made = SimpleNamespace(
        list_pretrained=lambda pattern: fnmatch.filter(licences, pattern),
        get_pretrained_cfg=lambda name: SimpleNamespace(license=licences[name]),
    )
    monkeypatch.setattr(zoo, "import_timm", lambda: made)
    assert licence_of_files("new") == "dinov3-license"
    assert licence_of_files("both") == "dinov3-license or fair-noncommercial-research-license"
    assert licence_of_files("mixed.mae") == "cc-by-nc-4.0"
    assert licence_of_files("mixed") == licence_of_files("silent") == licence_of_files("absent") == ""


def test_the_licence_of_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its metadata says it, or the tag of its arch; without either nobody does."""
    state = timm.create_model(TINY, img_size=32, num_classes=0).state_dict()
    file = tmp_path / "mine.safetensors"
    caplog.set_level("INFO", "holotype")
    config = BackboneConfig(str(file), arch=TINY, image_size=32)
    save_file(state, file)
    assert load_backbone(config).licence == "unknown"
    assert caplog.text == ""  # whoever made it knows; provenance and report say that it is unknown
    assert load_backbone(replace(config, arch=f"{TINY}.augreg_in21k")).licence == "apache-2.0"
    save_file(state, file, {"license": "cc-by-nc-4.0"})
    assert load_backbone(config).licence == "cc-by-nc-4.0"
    assert [one.levelname for one in caplog.records] == ["INFO", "WARNING"]


def test_a_network_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "ENOUGH_SECONDS", 0.0)
    state = torch.random.get_rng_state()
    found = measure_speed("test_vit", 32, torch.device("cpu"), clock=itertools.count().__next__)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert 300_000 < found.parameters < 500_000
    # the clock goes on by a second whenever it is looked at
    assert found.milliseconds == 1000 / zoo.SPEED_BATCH
