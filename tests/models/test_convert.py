"""Configurations as timm, open_clip and transformers write them name the network of timm that they are of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor

from holotype.errors import InputError
from holotype.models.convert import (
    from_open_clip_config,
    from_timm_config,
    from_transformers_config,
    to_timm_names,
    unwrap_state,
)
from holotype.models.weights_io import _filter
from holotype.models.zoo import model_outline

from .renamed import as_clip, as_dinov2, as_dinov3

VISION = {"image_size": 224, "width": 768, "layers": 12, "patch_size": 16}


@pytest.mark.parametrize(
    ("config", "arch"),
    [
        ({"model_type": "dinov2", "hidden_size": 768, "patch_size": 14}, "vit_base_patch14_dinov2"),
        (
            {
                "model_type": "dinov2_with_registers",
                "hidden_size": 384,
                "patch_size": 14,
                "num_register_tokens": 4,
            },
            "vit_small_patch14_reg4_dinov2",
        ),
        ({"model_type": "dinov3_vit", "hidden_size": 384, "patch_size": 16}, "vit_small_patch16_dinov3_qkvb"),
        (
            {"model_type": "dinov3_vit", "hidden_size": 384, "patch_size": 16, "use_gated_mlp": True},
            "vit_small_plus_patch16_dinov3_qkvb",
        ),
        (
            {"model_type": "dinov3_vit", "hidden_size": 1024, "patch_size": 16, "query_bias": False},
            "vit_large_patch16_dinov3",
        ),
        (
            {"model_type": "clip", "vision_config": {"model_type": "clip_vision_model", "patch_size": 32}},
            "vit_base_patch32_clip_quickgelu_224",
        ),
        (
            {"model_type": "clip_vision_model", "hidden_size": 1024, "patch_size": 14, "hidden_act": "gelu"},
            "vit_large_patch14_clip_224",
        ),
        (
            {
                "model_type": "siglip",
                "vision_config": {"model_type": "siglip_vision_model", "image_size": 384},
            },
            "vit_base_patch16_siglip_384",
        ),
        (
            {"model_type": "siglip_vision_model", "hidden_size": 1152, "patch_size": 14, "image_size": 224},
            "vit_so400m_patch14_siglip_224",
        ),
    ],
)
def test_transformers(config: dict[str, Any], arch: str) -> None:
    found = from_transformers_config(config, {"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1]}, "repo")
    assert (found.arch, found.mean) == (arch, (0.1, 0.2, 0.3))
    assert model_outline(found.arch).embed_dim in (384, 768, 1024, 1152)


@pytest.mark.parametrize(
    ("model", "arch", "settings"),
    [
        ({"vision_cfg": VISION}, "vit_base_patch16_clip_224", {}),
        ({"vision_cfg": VISION, "quick_gelu": True}, "vit_base_patch16_clip_quickgelu_224", {}),
        (
            {
                "vision_cfg": {
                    "timm_model_name": "vit_base_patch16_siglip_224",
                    "timm_pool": "map",
                    "image_size": 224,
                }
            },
            "vit_base_patch16_siglip_224",
            {"global_pool": "map"},
        ),
    ],
)
def test_open_clip(model: dict[str, Any], arch: str, settings: dict) -> None:
    found = from_open_clip_config(
        {"model_cfg": model, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}, "repo"
    )
    assert (found.arch, found.image_size, found.std, found.settings) == (arch, 224, (0.5, 0.5, 0.5), settings)


def test_timm() -> None:
    content = {
        "architecture": "vit_small_patch16_224",
        "num_classes": 3,
        "global_pool": "avg",
        "pretrained_cfg": {"tag": "dino", "input_size": [3, 96, 96], "license": "mit"},
    }
    found = from_timm_config(content)
    assert (found.arch, found.image_size, found.own_pool) == ("vit_small_patch16_224.dino", 96, True)
    assert (found.settings, found.licence) == ({"global_pool": "avg"}, "mit")
    assert from_timm_config(content | {"pretrained_cfg": {"tag": "mine"}}).arch == "vit_small_patch16_224"


@pytest.mark.parametrize("kind", ["beit", "vit", "swin", "dinov3_convnext"])
def test_what_is_not_read_is_told_with_what_to_take(kind: str) -> None:
    with pytest.raises(InputError, match="timm's twin, vit_base") as told:
        from_transformers_config({"model_type": kind}, {}, "hf-hub:a/b")
    assert "\n" not in str(told.value)


SMALL = {"img_size": 32, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 0}
NETWORKS: dict[str, tuple[str, dict[str, Any], Callable[[dict[str, Tensor]], dict[str, Tensor]]]] = {
    "DINOv2": ("vit_small_patch14_dinov2", {"img_size": 28}, as_dinov2),
    "DINOv2 with registers": ("vit_small_patch14_reg4_dinov2", {"img_size": 28}, as_dinov2),
    "DINOv3": ("vit_small_patch16_dinov3_qkvb", {}, as_dinov3),
    "DINOv3, gated": ("vit_small_plus_patch16_dinov3_qkvb", {}, as_dinov3),
    "CLIP": ("vit_base_patch16_clip_quickgelu_224", {}, as_clip),
    "SigLIP": ("vit_base_patch16_siglip_224", {}, as_clip),
}


def network(name: str) -> Any:
    arch, changes, _ = NETWORKS[name]
    torch.manual_seed(5)
    model = timm.create_model(arch, pretrained=False, **{**SMALL, **changes}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.mark.parametrize("wrapper", ["", "module.", "teacher.backbone."])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_transformers_is_the_one_of_timm(name: str, wrapper: str) -> None:
    model = network(name)
    own = model.state_dict()
    theirs = {wrapper + key: value for key, value in NETWORKS[name][2](own).items()}
    assert theirs.keys() != own.keys()
    found = _filter(model)(to_timm_names(theirs, "file"), model)
    found = {key: value for key, value in found.items() if not key.startswith("head.")}
    assert found.keys() == own.keys()
    for key, value in own.items():
        torch.testing.assert_close(found[key], value, msg=key)
    x = torch.randn(2, 3, *model.patch_embed.img_size)
    with torch.no_grad():
        expected = model(x)
        model.load_state_dict(found)
        torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize(
    "wrapper", ["module.", "backbone.", "teacher.", "teacher.backbone.", "module.model."]
)
def test_wrappers_are_taken_off_and_a_teacher_comes_first(wrapper: str) -> None:
    state = {f"{wrapper}patch_embed.proj.weight": torch.ones(1), f"{wrapper}norm.bias": torch.ones(1)}
    student = {"student.backbone.patch_embed.proj.weight": torch.zeros(1), "head.weight": torch.zeros(1)}
    found, layout = unwrap_state(state | student)
    assert (set(found), layout) == ({"patch_embed.proj.weight", "norm.bias"}, "timm")
    both = {f"module.{key.removeprefix(wrapper)}": value * 0 for key, value in state.items()}
    if "teacher" in wrapper:
        assert all(value.all() for value in unwrap_state(both | state)[0].values())


def test_names_of_timm_and_unknown_ones_stay() -> None:
    for names in (["patch_embed.proj.weight", "surprise"], ["visual.trunk.patch_embed.proj.weight"], ["x.y"]):
        state = {name: torch.zeros(1) for name in names}
        assert set(to_timm_names(state, "file")) == set(names)


def test_transformers_vit_is_told_with_its_twin() -> None:
    names = ["embeddings.patch_embeddings.projection.weight", "encoder.layer.0.layernorm_before.weight"]
    with pytest.raises(InputError, match=r"transformers' ViT.*vit_base_patch16_224\.dino") as told:
        to_timm_names({f"vit.{name}": torch.zeros(1) for name in names}, "file")
    assert "\n" not in str(told.value)
