"""`hf-hub:org/repo` with a server on this machine in the hub's place; nothing reaches out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from holotype.config.schema import IMAGENET_MEAN, BackboneConfig
from holotype.errors import InputError
from holotype.models.backbone import Backbone, load_backbone
from holotype.utils import torchvision_compat as _torchvision

from .hub_server import Hub, serving
from .renamed import as_dinov2

_torchvision.patch_torchvision()
import timm  # noqa: E402

SMALL = {"embed_dim": 48, "depth": 2, "num_heads": 3}
GREY = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6]}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    from huggingface_hub import constants

    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield served


def made(arch: str, size: int = 32, **settings: Any) -> Any:
    torch.manual_seed(2)
    return timm.create_model(arch, img_size=size, num_classes=0, **settings).eval()


def features(found: Backbone, x: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = found.tail(found.trunk(x))
    return result


def put(hub: Hub, name: str, state: dict[str, Tensor], **files: Any) -> None:
    """A repository: its weights as `weights`, and JSON or text files under names with a dot for two underscores."""
    kept = {key.replace("__", "."): v for key, v in files.items()}
    hub.files[name] = {
        k: v.encode() if isinstance(v, str) else json.dumps(v).encode() for k, v in kept.items()
    }
    where = "open_clip_model.safetensors" if "open_clip_config.json" in kept else "model.safetensors"
    hub.files[name][where] = save({key: value.contiguous() for key, value in state.items()})


def test_a_network_of_timm_with_settings_of_its_own(hub: Hub) -> None:
    model = made("vit_tiny_patch16_224", **SMALL)
    config = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 0,
        "model_args": {**SMALL, "img_size": 32},
        "pretrained_cfg": {"tag": "mine", "input_size": [3, 32, 32], "license": "cc-by-nc-4.0", **GREY},
    }
    put(hub, "me/net", model.state_dict(), config__json=config)
    found = load_backbone(BackboneConfig("hf-hub:me/net"))
    assert (found.name, found.image_size, found.dim) == ("hf-hub:me/net", 32, 48)
    assert (found.mean, found.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    assert (found.changes, found.licence) == ({}, "cc-by-nc-4.0")
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(features(found, x), model(x).detach(), atol=1e-5, rtol=1e-5)
    n_asked = len([one for one in hub.asked if one[0] == "GET"])
    assert load_backbone(BackboneConfig("hf-hub:me/net@main")).digest == found.digest
    assert len([one for one in hub.asked if one[0] == "GET"]) == n_asked  # it lies in the cache


@pytest.mark.parametrize(("classes", "told"), [(0, {"pool": "token"}), (7, {})])
def test_a_fine_tuned_network_keeps_the_pool_it_was_tuned_with(hub: Hub, classes: int, told: dict) -> None:
    model = made("vit_small_patch16_dinov3", **SMALL)
    config = {
        "architecture": "vit_small_patch16_dinov3",
        "num_classes": classes,
        "global_pool": "avg",
        "model_args": SMALL,
        "pretrained_cfg": {"input_size": [3, 32, 32], **GREY},
    }
    put(hub, "me/tuned", model.state_dict(), config__json=config)
    assert load_backbone(BackboneConfig("hf-hub:me/tuned")).changes == told


def test_weights_and_description_can_be_had_apart(hub: Hub) -> None:
    config = {
        "architecture": "vit_tiny_patch16_224",
        "model_args": SMALL,
        "pretrained_cfg": {"input_size": [3, 32, 32]},
    }
    put(hub, "me/net", {}, config__json=config)
    assert load_backbone(BackboneConfig("hf-hub:me/net"), fetch=False).dim == 48
    assert not [path for _, path in hub.asked if "model" in path]


def test_open_clip_with_a_network_of_timm(hub: Hub) -> None:
    """As BiomedCLIP: a tower of timm under visual.trunk, and a text tower beside it."""
    model = made("vit_tiny_patch16_224")
    state = {f"visual.trunk.{key}": value for key, value in model.state_dict().items()}
    state |= {"text.proj.weight": torch.zeros(2, 2), "logit_scale": torch.ones(1)}
    vision = {"timm_model_name": "vit_tiny_patch16_224", "timm_pool": "", "image_size": 32}
    config = {"model_cfg": {"embed_dim": 5, "vision_cfg": vision}, "preprocess_cfg": GREY}
    put(
        hub,
        "lab/clip",
        state,
        open_clip_config__json=config,
        README__md="---\nlicense: mit\ntags: [x]\n---\nA card.",
    )
    found = load_backbone(BackboneConfig("hf-hub:lab/clip"))
    assert (found.image_size, found.mean, found.licence) == (32, (0.1, 0.2, 0.3), "mit")
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(features(found, x), model(x).detach(), atol=1e-5, rtol=1e-5)


def test_transformers_dinov2(hub: Hub) -> None:
    model = made("vit_small_patch14_dinov2", 28)
    config = {"model_type": "dinov2", "hidden_size": 384, "patch_size": 14, "image_size": 518}
    put(hub, "facebook/dinov2-small", as_dinov2(model.state_dict()), config__json=config)
    found = load_backbone(BackboneConfig("hf-hub:facebook/dinov2-small", image_size=28))
    assert found.mean == IMAGENET_MEAN
    x = torch.randn(2, 3, 28, 28)
    torch.testing.assert_close(features(found, x), model(x).detach(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: mit\n---", "mit"),
        ("---\nlicense:\n- mit\nlanguage:\n- en\n---\n# Card", "mit"),
        ("---\nlicense: other\nlicense_name: dinov3-license\n---", "dinov3-license"),
        ("---\nlicense: other\n---", "other"),
        ("---\n: : [\n---", "unknown"),
        ("# Card", "unknown"),
    ],
)
def test_the_card_names_the_licence(hub: Hub, card: str, licence: str) -> None:
    cfg = {"input_size": [3, 32, 32], **GREY}
    config = {"architecture": "vit_tiny_patch16_224", "model_args": SMALL, "pretrained_cfg": cfg}
    put(hub, "me/net", {}, config__json=config, README__md=card)
    assert load_backbone(BackboneConfig("hf-hub:me/net"), fetch=False).licence == licence


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "no repository": ("hf-hub:nowhere", {}, "hf-hub:organisation/repository"),
    "unknown": ("hf-hub:no/body", {}, "no hf-hub:no/body on the hub"),
    "gated": ("hf-hub:lab/gated", {}, "accept them on https://huggingface.co/lab/gated"),
    "no configuration": ("hf-hub:me/x", {"notes__txt": "x"}, "nobody knows which"),
    "no JSON": ("hf-hub:me/x", {"config__json": "{"}, "no JSON"),
    "no weights": (
        "hf-hub:me/x",
        {"config__json": {"architecture": "vit_tiny_patch16_224"}, "weights": None},
        "no weights under any of the names model.safetensors",
    ),
    "half a configuration": ("hf-hub:me/x", {"open_clip_config__json": {"model_cfg": {}}}, "cannot be read"),
    "strange settings": (
        "hf-hub:me/x",
        {"config__json": {"architecture": "vit_tiny_patch16_224", "model_args": {"wheels": 4}}},
        "timm cannot build",
    ),
    "transformers' MAE": (
        "hf-hub:me/x",
        {"config__json": {"model_type": "vit_mae"}},
        r"timm's twin, vit_base_patch16_224\.mae",
    ),
    "no such size": (
        "hf-hub:me/x",
        {"config__json": {"model_type": "dinov2", "hidden_size": 5}},
        "timm does not have",
    ),
    "ConvNet": (
        "hf-hub:me/x",
        {"config__json": {"architecture": "resnet18"}},
        "not a plain vision transformer",
    ),
    "no normalisation": (
        "hf-hub:me/x",
        {"config__json": {"architecture": "vit_small_patch16_224"}},
        "Nothing says which mean and std",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence(case: str, hub: Hub) -> None:
    name, files, says = BAD[case]
    hub.gated.add("lab/gated")
    without = files.pop("weights", "") is None
    put(hub, "me/x", {"a": torch.zeros(1)}, **files)
    if without:
        del hub.files["me/x"]["model.safetensors"]
    with pytest.raises(InputError, match=says) as told:
        load_backbone(BackboneConfig(name))
    assert "\n" not in str(told.value)


def test_a_hub_out_of_reach_is_one_sentence(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="could not be fetched"):
        load_backbone(BackboneConfig("hf-hub:me/net"))


def test_the_command_takes_a_repository(hub: Hub, tmp_path: Path, squares_folder: Path) -> None:
    """HF_ENDPOINT is where the client looks."""
    model = made("vit_tiny_patch16_224", **SMALL)
    cfg = {"input_size": [3, 32, 32], "license": "dinov3-license", **GREY}
    config = {"architecture": "vit_tiny_patch16_224", "model_args": SMALL, "pretrained_cfg": cfg}
    put(hub, "me/net", model.state_dict(), config__json=config)
    words = [
        "embed",
        str(squares_folder),
        "--backbone",
        "hf-hub:me/net",
        "--out",
        str(tmp_path / "e"),
        "--no-progress",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "holotype", *words, "--device", "cpu"],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "48 numbers each" in done.stdout
    assert "Backbone hf-hub:me/net: Its weights are under Meta's DINOv3 licence" in done.stderr
