"""Configurations as timm, open_clip and transformers write them name the network of timm that they are of."""

from __future__ import annotations

from typing import Any

import pytest

from holotype.errors import InputError
from holotype.models.convert import from_open_clip_config, from_timm_config, from_transformers_config
from holotype.models.zoo import model_outline

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
