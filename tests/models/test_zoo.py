"""Networks of timm and of the hub: what is out of reach or damaged becomes advice, and a fault stays a fault."""

from __future__ import annotations

import copy
import fnmatch
import itertools
from collections.abc import Callable
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
from holotype.models.hub import download_error
from holotype.models.weights_io import EMBEDDED
from holotype.models.zoo import (
    FREE_LICENCES,
    RECOMMENDED,
    USES,
    fastest_pass,
    has_conditions,
    licence_of,
    licence_of_files,
    licence_terms,
    licence_text,
    measure_speed,
    model_outline,
)

TINY = "vit_tiny_patch16_224"


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
        FileNotFoundError("not cached"),
        StrangeError("?"),
        LocalEntryNotFoundError("nothing on this disk,\nand no network"),
        OSError("Consistency check failed: file should be of size 9 but has size 5"),
        RuntimeError('invalid hash value (expected "a", got "b")'),
    ],
)
def test_a_hub_out_of_reach_becomes_advice(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(timm, "create_model", FakeHub(error))
    with pytest.raises(InputError) as raised:
        load_backbone(BackboneConfig("vit_base_patch16_224.dino"))
    said = str(raised.value)
    for phrase in ("holotype backbones fetch vit_base_patch16_224.dino", "name the file", "embedded"):
        assert phrase in said
    assert "\n" not in said
    assert download_error(error) in said


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The weights of a repository as the hub's client keeps them: a file, and a link to it under its name."""
    blob = tmp_path / "blobs" / "5f2a"
    blob.parent.mkdir()
    blob.write_bytes(EMBEDDED.read_bytes()[:100_000])
    link = tmp_path / "snapshots" / "model.safetensors"
    link.parent.mkdir()
    link.symlink_to(blob)

    def look(repository: str, name: str) -> str | None:
        return str(link) if (repository, name) == ("timm/vit_base_patch16_224.dino", link.name) else None

    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", look)
    return blob


def test_a_file_of_the_hub_that_was_cut_off_is_named(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As timm reads it, with the error that the reader really raises."""
    monkeypatch.setattr(timm, "create_model", FakeHub(lambda: load_file(kept)))
    with pytest.raises(
        InputError, match=r"were not fetched whole .* run the same command again\.$"
    ) as raised:
        load_backbone(BackboneConfig("vit_base_patch16_224.dino"))
    assert f"delete {kept}," in str(raised.value)
    assert "\n" not in str(raised.value)


def cut_checkpoint(folder: Path) -> None:
    file = folder / "model.bin"
    torch.save({"a": torch.zeros(1000)}, file)
    file.write_bytes(file.read_bytes()[:2000])
    torch.load(file, weights_only=True)


def empty_checkpoint(folder: Path) -> None:
    (folder / "model.bin").write_bytes(b"")
    torch.load(folder / "model.bin", weights_only=True)


@pytest.mark.parametrize("read", [cut_checkpoint, empty_checkpoint])
def test_other_files_that_were_cut_off_are_told_as_well(
    read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timm, "create_model", FakeHub(lambda: read(tmp_path)))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda repository, name: None)
    with pytest.raises(InputError, match=r"delete timm/vit_base_patch16_224\.dino from the hub's cache"):
        load_backbone(BackboneConfig("vit_base_patch16_224.dino"))


def test_a_fault_in_the_code_is_not_blamed_on_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "create_model", FakeHub(ZeroDivisionError("bug")))
    with pytest.raises(ZeroDivisionError):
        load_backbone(BackboneConfig(f"{TINY}.augreg_in21k"))


def test_a_hub_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_every_use_has_a_list_that_begins_without_strings() -> None:
    assert list(RECOMMENDED) == list(USES) == ["photos", "nature", "medical", "industrial"]
    assert not any(has_conditions(several[0].licence) for several in RECOMMENDED.values())


def test_networks_and_licences_are_timms() -> None:
    for one in {one for several in RECOMMENDED.values() for one in several}:
        outline = model_outline(one.arch)
        assert one.image_size % outline.patch_embed.feat_ratio() == 0
        if ":" not in one.name and one.name != "embedded":
            assert one.name.partition(".")[0] == one.arch
            assert one.licence == licence_of(one.name)


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
    assert caplog.text == ""  # whoever made it knows; provenance and report say that it is unknown
    save_file(state, file, {"license": "cc-by-nc-4.0"})
    assert load_backbone(config).licence == "cc-by-nc-4.0"
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    save_file({key: value.to(torch.float16) for key, value in state.items()}, file)
    tagged = BackboneConfig(str(file), arch="vit_tiny_patch16_224.augreg_in21k", image_size=32)
    assert load_backbone(tagged).licence == "apache-2.0"
    assert caplog.records[-1].levelname == "INFO"


def test_a_network_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "ENOUGH_SECONDS", 0.0)
    state = torch.random.get_rng_state()
    found = measure_speed("test_vit", 32, torch.device("cpu"), clock=itertools.count().__next__)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert 300_000 < found.parameters < 500_000
    # the clock goes on by a second whenever it is looked at
    assert found.milliseconds == 1000 / zoo.SPEED_BATCH


def test_the_fastest_pass_counts_and_the_first_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "ENOUGH_SECONDS", 0.5)
    passes, clock = iter([0.0, 0.3, 0.1, 0.3]), [0.0]

    def run() -> None:
        clock[0] += next(passes)

    assert fastest_pass(run, torch.device("cpu"), lambda: clock[0]) == pytest.approx(0.1)
    assert list(passes) == []  # until they have taken long enough together
