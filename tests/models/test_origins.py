"""What an older version wrote of a backbone means what it meant then."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from holotype.models.origins import meant_before


def told(**content: object) -> dict:
    return {"arch": None, "image_size": None, "train_blocks": 1, **content}


def test_settings_of_today_are_left_alone() -> None:
    content = told(name="vit_small_patch16_dinov3.lvd1689m", pool="auto")
    assert meant_before(content) is content
    assert meant_before(None) is None


@pytest.mark.parametrize(
    ("content", "added"),
    [
        ({"name": "vit_small_patch16_dinov3.lvd1689m"}, {"pool": "mean"}),
        ({"name": "vit_small_patch14_dinov2.lvd142m"}, {"pool": "auto", "image_size": 518}),
        ({"name": "vit_small_patch14_dinov2.lvd142m", "image_size": 224}, {"pool": "auto"}),
        ({"name": "vit_base_patch16_224.dino"}, {"pool": "auto"}),
        ({"name": "embedded"}, {"pool": "auto"}),
    ],
)
def test_names_of_timm(content: dict, added: dict) -> None:
    assert meant_before(told(**content)) == told(**content) | added


def test_files(tmp_path: Path) -> None:
    plain, said = tmp_path / "plain.safetensors", tmp_path / "said.safetensors"
    save_file({"x": torch.zeros(1)}, plain)
    save_file(
        {"x": torch.zeros(1)}, said, {"timm": "vit_small_patch16_dinov3", "mean": "0,0,0", "std": "1,1,1"}
    )
    untagged = told(name=str(plain), arch="vit_base_patch16_224")
    half = [0.5, 0.5, 0.5]
    assert meant_before(untagged) == untagged | {"pool": "auto", "mean": half, "std": half}
    assert meant_before(told(name=str(said))) == told(name=str(said), pool="mean")
    tagged = told(name=str(plain), arch="vit_base_patch16_224.dino")
    assert meant_before(tagged) == tagged | {"pool": "auto"}
    gone = told(name=str(tmp_path / "gone.safetensors"))
    assert meant_before(gone) == gone | {"pool": "auto"}  # whoever loads it will be told
