"""What is said of a licence, and that nothing with strings attached is taken unasked."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from holotype.config.schema import BackboneConfig
from holotype.discovery.backbone_choice import PUBLIC_BACKBONE
from holotype.models import zoo
from holotype.models.backbone import load_backbone
from holotype.models.licences import FREE_LICENCES, has_conditions, licence_terms, licence_text
from holotype.models.zoo import licence_of, licence_of_files
from holotype.utils import torchvision_compat as _torchvision

_torchvision.patch_torchvision()
import timm  # noqa: E402


@pytest.mark.parametrize(
    ("licence", "says"),
    [
        ("cc-by-nc-4.0", "forbids commercial use"),
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


def test_free_licences_are_named_and_no_more() -> None:
    assert licence_text("net", "apache-2.0") == "Backbone net: licence apache-2.0."
    assert {licence_terms(licence) for licence in FREE_LICENCES} == {""}


def test_no_default_has_strings_attached() -> None:
    assert {licence_of(name) for name in PUBLIC_BACKBONE} <= FREE_LICENCES
    assert load_backbone(BackboneConfig()).licence in FREE_LICENCES


def test_every_licence_of_timms_vision_transformers_is_told() -> None:
    """Whatever this timm lists: a licence that comes later has terms of its own, and so has none at all."""
    licences = {licence_of(name) for name in timm.list_pretrained(["vit_*", "eva*", "deit3_*"])}
    assert {"apache-2.0", "cc-by-nc-4.0"} <= licences
    assert {licence for licence in licences if not licence_terms(licence)} <= FREE_LICENCES


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timm that knows these weights, and their licences."""
    licences = {
        "new.one": "dinov3-license",
        "both.one": "dinov3-license",
        "both.other": "fair-noncommercial-research-license",
        "mixed.free": "apache-2.0",
        "mixed.mae": "cc-by-nc-4.0",
        "silent.one": None,
    }
    made = SimpleNamespace(
        list_pretrained=lambda pattern: fnmatch.filter(licences, pattern),
        get_pretrained_cfg=lambda name: SimpleNamespace(license=licences[name]),
    )
    monkeypatch.setattr(zoo, "import_timm", lambda: made)


@pytest.mark.usefixtures("registry")
def test_a_network_that_there_is_with_strings_alone_has_them_without_its_tag() -> None:
    assert licence_of_files("new") == "dinov3-license"
    assert "Meta's DINOv3 licence" in licence_terms("dinov3-license")
    both = licence_of_files("both")
    assert both == "dinov3-license or fair-noncommercial-research-license"
    assert both in licence_terms(both)
    assert licence_of_files("mixed.mae") == "cc-by-nc-4.0"
    assert licence_of_files("mixed") == licence_of_files("silent") == licence_of_files("absent") == ""


def test_the_licence_of_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its metadata says it, or the tag of its arch; without either nobody does."""
    state = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, num_classes=0, pretrained=False
    ).state_dict()
    file = tmp_path / "mine.safetensors"
    caplog.set_level("INFO", "holotype")
    config = BackboneConfig(str(file), arch="vit_tiny_patch16_224", image_size=32)
    save_file(state, file)
    assert load_backbone(config).licence == "unknown"
    assert (
        caplog.text == ""
    )  # whose it is, is known to who made it; provenance and report say that it is unknown
    save_file(state, file, {"license": "cc-by-nc-4.0"})
    assert load_backbone(config).licence == "cc-by-nc-4.0"
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    save_file({key: value.to(torch.float16) for key, value in state.items()}, file)
    tagged = BackboneConfig(str(file), arch="vit_tiny_patch16_224.augreg_in21k", image_size=32)
    assert load_backbone(tagged).licence == "apache-2.0"
    assert caplog.records[-1].levelname == "INFO"
