"""Configurations as timm, open_clip and transformers write them name the network of timm that they are of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

from holotype.errors import InputError
from holotype.models.backbone import load_network
from holotype.models.hub import from_open_clip_config, from_transformers_config
from holotype.models.weights_io import WeightsOrigin, _filter, read_state, to_timm_names
from holotype.models.zoo import model_outline

from .renamed import as_clip, as_dinov2, as_dinov3


def vision(kind: str, width: int = 768, patch: int = 16, **more: Any) -> dict[str, Any]:
    return {"model_type": kind, "hidden_size": width, "patch_size": patch, **more}


def tower(*words: Any, **more: Any) -> dict[str, Any]:
    return {"vision_config": vision(*words, **more)}


@pytest.mark.parametrize(
    ("config", "arch"),
    [
        (vision("dinov2", patch=14), "vit_base_patch14_dinov2"),
        (vision("dinov2_with_registers", 384, 14, num_register_tokens=4), "vit_small_patch14_reg4_dinov2"),
        (vision("dinov3_vit", 384), "vit_small_patch16_dinov3_qkvb"),
        (vision("dinov3_vit", 384, use_gated_mlp=True), "vit_small_plus_patch16_dinov3_qkvb"),
        (vision("dinov3_vit", 1024, query_bias=False), "vit_large_patch16_dinov3"),
        (
            {"model_type": "clip", **tower("clip_vision_model", patch=32)},
            "vit_base_patch32_clip_quickgelu_224",
        ),
        (vision("clip_vision_model", 1024, 14, hidden_act="gelu"), "vit_large_patch14_clip_224"),
        (
            {"model_type": "siglip", **tower("siglip_vision_model", image_size=384)},
            "vit_base_patch16_siglip_384",
        ),
        (vision("siglip_vision_model", 1152, 14, image_size=[224, 224]), "vit_so400m_patch14_siglip_224"),
    ],
)
def test_transformers(config: dict[str, Any], arch: str) -> None:
    found = from_transformers_config(config, {"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1]}, "repo")
    assert (found.arch, found.mean) == (arch, (0.1, 0.2, 0.3))
    assert model_outline(found.arch).embed_dim in (384, 768, 1024, 1152)


TOWER = {"image_size": 224, "width": 768, "layers": 12, "patch_size": 16}
SIGLIP = {"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "map", "image_size": 224}


@pytest.mark.parametrize(
    ("model", "arch", "settings"),
    [
        ({"vision_cfg": TOWER}, "vit_base_patch16_clip_224", {}),
        ({"vision_cfg": TOWER, "quick_gelu": True}, "vit_base_patch16_clip_quickgelu_224", {}),
        ({"vision_cfg": SIGLIP}, "vit_base_patch16_siglip_224", {"global_pool": "map"}),
    ],
)
def test_open_clip(model: dict[str, Any], arch: str, settings: dict) -> None:
    grey = {"mean": [0.5] * 3, "std": [0.5] * 3}
    found = from_open_clip_config({"model_cfg": model, "preprocess_cfg": grey}, "repo")
    assert (found.arch, found.image_size, found.std, found.settings) == (arch, 224, (0.5, 0.5, 0.5), settings)


SMALL = {"img_size": 32, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 0}
NETWORKS: dict[str, tuple[str, dict[str, Any], Callable[[dict[str, Tensor]], dict[str, Tensor]]]] = {
    "DINOv2": ("vit_small_patch14_dinov2", {"img_size": 28}, as_dinov2),
    "DINOv2 with registers": ("vit_small_patch14_reg4_dinov2", {"img_size": 28}, as_dinov2),
    "DINOv3": ("vit_small_patch16_dinov3_qkvb", {}, as_dinov3),
    "DINOv3, gated": ("vit_small_plus_patch16_dinov3_qkvb", {}, as_dinov3),
    "CLIP": ("vit_base_patch16_clip_quickgelu_224", {}, as_clip),
    "SigLIP": ("vit_base_patch16_siglip_224", {}, as_clip),
}


@pytest.mark.parametrize("wrapper", ["", "module.", "teacher.backbone."])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_transformers_is_the_one_of_timm(name: str, wrapper: str) -> None:
    arch, changes, rename = NETWORKS[name]
    torch.manual_seed(5)
    model = timm.create_model(arch, pretrained=False, **{**SMALL, **changes}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    own = model.state_dict()
    theirs = {wrapper + key: value for key, value in rename(own).items()}
    assert theirs.keys() != own.keys()
    found = _filter(model)(to_timm_names(theirs), model)
    found = {key: value for key, value in found.items() if not key.startswith("head.")}
    torch.testing.assert_close(found, dict(own))


def test_biases_of_dinov3_that_would_be_lost_are_told(tmp_path: Path) -> None:
    """As upstream saves them; timm has the network with and without biases, and drops them without a word."""
    arch, file = "vit_small_patch16_dinov3", tmp_path / "w.safetensors"
    settings = {key: SMALL[key] for key in ("embed_dim", "depth", "num_heads")}
    state = timm.create_model(arch, **SMALL).state_dict()
    state = {k.replace("gamma_", "ls").replace("reg_token", "storage_tokens"): v for k, v in state.items()}
    state = {k + ".gamma" if k.endswith(("ls1", "ls2")) else k: v for k, v in state.items()}
    for bias, fits in ((torch.zeros(144), arch), (torch.ones(144), f"{arch}_qkvb")):
        save_file(state | {f"blocks.{n}.attn.qkv.bias": bias.clone() for n in range(2)}, file)
        load_network(WeightsOrigin("w", fits, file, settings=settings), 32)
    with pytest.raises(InputError, match=f"biases .* use arch {arch}_qkvb"):
        load_network(WeightsOrigin("w", arch, file, settings=settings), 32)


def test_a_checkpoint_of_the_hub_is_read_as_tensors_alone(tmp_path: Path) -> None:
    file = tmp_path / "pytorch_model.bin"
    torch.save({"state_dict": {"a": torch.ones(2), "epoch": 3}}, file)
    assert list(read_state(file)) == ["a"]
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="delete it"):
        read_state(file)
    torch.save({"a": Path("x")}, file)  # whatever would run code
    with pytest.raises(InputError, match="no whole checkpoint of tensors"):
        read_state(file)
