"""Mean and std may come as text or as numbers, and what they cannot be is one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from holotype.config.schema import BackboneConfig, as_rgb, requested_backbone, resolved_backbone
from holotype.errors import InputError


@pytest.mark.parametrize(
    "value", ["0.1,0.2,0.3", "[0.1, 0.2, 0.3]", [0.1, 0.2, 0.3], np.array([0.1, 0.2, 0.3])]
)
def test_three_numbers(value: object) -> None:
    assert as_rgb("mean", value) == (0.1, 0.2, 0.3)


@pytest.mark.parametrize(
    "value", ["grey", "0.5", "1,2", 7, [0.5, 0.5], "0.1,0.2,nan", [0.5, 0.5, 1.5], "-0.1,0,0"]
)
def test_anything_else_is_told(value: object) -> None:
    with pytest.raises(InputError, match=r"^mean is") as told:
        as_rgb("mean", value)
    assert "\n" not in str(told.value)


def test_mean_and_std_go_together() -> None:
    assert requested_backbone(BackboneConfig()) == (None, None)
    assert requested_backbone(BackboneConfig(mean=(0, 0, 0), std=(1, 1, 1))) == ((0, 0, 0), (1, 1, 1))
    with pytest.raises(InputError, match="std is given without mean"):
        requested_backbone(BackboneConfig(std=(1, 1, 1)))


def test_a_file_is_known_by_its_absolute_path_and_all_else_by_its_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("own.safetensors", "embedded"):
        (tmp_path / name).touch()
    assert resolved_backbone(BackboneConfig("own.safetensors", "vit", 96)) == BackboneConfig(
        str(tmp_path / "own.safetensors"), "vit", 96
    )
    for name in ("embedded", "auto", "vit_base_patch16_224.dino", "gone.safetensors"):
        assert resolved_backbone(BackboneConfig(name)) == BackboneConfig(name)
