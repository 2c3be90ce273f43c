"""A backbone in one file: it is what its name meant, and needs no network. The hub is a server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from holotype.config.schema import BackboneConfig
from holotype.errors import InputError
from holotype.models import hub as fetched
from holotype.models.backbone import load_backbone
from holotype.models.hub import download_backbone
from holotype.models.weights_io import read_metadata
from holotype.models.zoo import RECOMMENDED, RecommendedBackbone

from .hub_server import Hub, serving
from .test_hub import GREY, SMALL, features, made, put


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", served.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield served


def offline(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the hub nor its cache is there any more."""
    from huggingface_hub import constants

    hub.files.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))


def put_net(hub: Hub, **more: Any) -> None:
    cfg = {"tag": "mine", "input_size": [3, 32, 32], "license": "cc-by-nc-4.0", **GREY}
    config = {"architecture": "vit_small_patch16_dinov3", "model_args": SMALL, "pretrained_cfg": cfg, **more}
    put(hub, "me/net", made("vit_small_patch16_dinov3", **SMALL).state_dict(), config__json=config)


@pytest.mark.parametrize("classes", [0, 7])
def test_a_repository_is_the_same_from_the_file(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int
) -> None:
    """Settings of its own, normalisation, licence, and the pool: a fine-tuned network keeps its own."""
    put_net(hub, num_classes=classes, global_pool="avg")
    before = load_backbone(BackboneConfig("hf-hub:me/net"))
    done = download_backbone("hf-hub:me/net", tmp_path / "laptop")
    assert done.file == tmp_path / "laptop" / "me-net.safetensors"
    assert done.nbytes == done.file.stat().st_size
    offline(hub, tmp_path, monkeypatch)
    after = load_backbone(BackboneConfig(str(done.file)))
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(features(after, x), features(before, x), atol=0, rtol=0)
    assert (after.mean, after.std, after.image_size) == (before.mean, before.std, 32)
    assert (after.licence, after.changes) == ("cc-by-nc-4.0", before.changes)
    assert after.changes == ({} if classes else {"pool": "token"})
    assert read_metadata(done.file)["source"] == "hf-hub:me/net"


def test_weights_of_timm_keep_their_pixels_and_their_tag(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """timm's test_vit, whose weights timm itself asks the hub for."""
    name = "test_vit.r160_in1k"
    state = dict(made("test_vit", 160).state_dict())
    state |= {"head.weight": torch.zeros(1000, 64), "head.bias": torch.zeros(1000)}
    hub.files[f"timm/{name}"] = {"model.safetensors": save(state)}
    before = load_backbone(BackboneConfig(name))
    done = download_backbone(name, tmp_path)
    assert done.file.name == f"{name}.safetensors"
    assert done.tags["timm"] == name
    assert (done.tags["image_size"], done.tags["pool"]) == ("160", "auto")
    offline(hub, tmp_path, monkeypatch)
    for size in (None, 96):
        after = load_backbone(BackboneConfig(str(done.file), image_size=size))
        assert (after.mean, after.std, after.licence) == (before.mean, before.std, before.licence)
        assert (after.name, after.image_size) == (name, size or 160)
    x = torch.randn(2, 3, 160, 160)
    torch.testing.assert_close(
        features(load_backbone(BackboneConfig(str(done.file))), x), features(before, x), atol=0, rtol=0
    )


def test_a_list_stands_for_its_first_choice(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_net(hub)
    first = RecommendedBackbone("hf-hub:me/net", "vit_small_patch16_dinov3", "mit", "words")
    monkeypatch.setitem(RECOMMENDED, "nature", (first, *RECOMMENDED["nature"]))
    assert download_backbone("nature", tmp_path).tags["source"] == "hf-hub:me/net"


BAD = {
    "vit_small_patch16_224.dinno": "did you mean .*vit_small_patch16_224.dino",
    "resnet18.a1_in1k": "not a plain vision transformer",
    "embedded": "comes with the package",
    "auto": "names no network",
    "imageomics/bioclip": "write hf-hub:imageomics/bioclip",
    "mine.safetensors": "is a file",
    "hf-hub:no/body": "no hf-hub:no/body on the hub",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_names_are_one_sentence(name: str, hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=BAD[name]) as told:
        download_backbone(name, tmp_path / "to")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "to").exists()


def test_nothing_is_overwritten_and_nothing_fetched_first(hub: Hub, tmp_path: Path) -> None:
    put_net(hub)
    there = tmp_path / "me-net.safetensors"
    there.write_text("mine")
    with pytest.raises(InputError, match="there already"):
        download_backbone("hf-hub:me/net", tmp_path)
    with pytest.raises(InputError, match="is a file; name a folder"):
        download_backbone("hf-hub:me/net", there)
    assert there.read_text() == "mine"
    assert hub.asked == []


def test_without_a_network_it_is_one_sentence(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline(hub, tmp_path, monkeypatch)
    for name in ("hf-hub:me/net", "test_vit.r160_in1k"):
        with pytest.raises(InputError, match="could not be fetched from the Hugging Face hub") as told:
            download_backbone(name, tmp_path / "to")
        assert "\n" not in str(told.value)


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import safetensors.torch
    from safetensors import SafetensorError

    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("Error while serializing: No space left on device")

    put_net(hub)
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(InputError, match=r"could not be written \(.*No space left") as told:
        download_backbone("hf-hub:me/net", tmp_path / "to")
    assert "\n" not in str(told.value)
    assert list((tmp_path / "to").iterdir()) == []


def test_settings_that_are_no_settings_are_told(tmp_path: Path) -> None:
    file = tmp_path / "odd.safetensors"
    file.write_bytes(save({"a": torch.zeros(1)}, metadata={"timm": "test_vit", "settings": "[1"}))
    with pytest.raises(InputError, match="settings"):
        load_backbone(BackboneConfig(str(file)))


def test_names_become_names_of_files() -> None:
    assert fetched.backbone_file_name("hf-hub:imageomics/bioclip@v1.0/x") == "imageomics-bioclip-v1.0-x"
