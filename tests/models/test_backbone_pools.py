"""What an identity will say of the pool is known before anything is loaded."""

from __future__ import annotations

import pytest

from holotype.config.schema import BackboneConfig
from holotype.models.backbone import expected_pool, load_backbone


@pytest.mark.parametrize("pool", ["auto", "token", "mean"])
@pytest.mark.parametrize(
    "name", ["vit_small_patch16_dinov3.lvd1689m", "vit_tiny_patch16_224.augreg_in21k", "embedded"]
)
def test_the_pool_is_foreseen_as_it_will_be_told(name: str, pool) -> None:
    config = BackboneConfig(name, image_size=32, pool=pool)
    found = load_backbone(config, fetch=False).changes.get("pool")
    assert expected_pool(config) == {"pool": found}


def test_a_file_that_may_say_anything_is_not_foreseen() -> None:
    assert expected_pool(BackboneConfig("elsewhere/mine.safetensors")) == {}
    assert expected_pool(BackboneConfig("elsewhere/mine.safetensors", pool="mean")) == {}
    assert expected_pool(BackboneConfig("elsewhere/mine.safetensors", arch="vit_base_patch16_dinov3")) == {
        "pool": "token"
    }
