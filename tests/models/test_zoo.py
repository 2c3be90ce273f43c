"""Networks of timm and of the hub: what is out of reach or damaged becomes advice, and a fault stays a fault."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file
from torch import nn

from holotype.config.schema import BackboneConfig
from holotype.errors import InputError
from holotype.models.backbone import load_backbone, state_digest
from holotype.models.hub_client import download_error
from holotype.models.weights_io import EMBEDDED
from holotype.utils import torchvision_compat as _torchvision

_torchvision.patch_torchvision()
import timm  # noqa: E402

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
