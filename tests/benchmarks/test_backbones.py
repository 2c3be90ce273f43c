"""46 networks are looked at, each family; a row says what a network gets, and a refused one why."""

from __future__ import annotations

import json
from pathlib import Path

import backbones
import pytest

from holotype.models import speed
from holotype.models.networks import import_timm


def test_the_list_has_46_networks_of_timm() -> None:
    names = [name for several in backbones.NETWORKS.values() for name, _ in several]
    assert len(names) == len(set(names)) == 46
    assert set(names) <= set(import_timm().list_pretrained())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "ENOUGH", 0.0)
    networks = {
        "small": (("vit_tiny_patch16_dinov3_qkvb.eupe_lvd1689m", 2),),
        "ResNet": (("resnet50.a1_in1k", None),),
    }
    monkeypatch.setattr(backbones, "NETWORKS", networks)
    monkeypatch.setattr(backbones, "BATCH", 1)


def test_rows(quick: None, tmp_path: Path) -> None:
    out = tmp_path / "cpu.json"
    assert backbones.main(["--only", "small", "--out", str(out)]) == 0
    assert backbones.main(["--only", "ResNet", "--out", str(out)]) == 0
    first, second = json.loads(out.read_text())["rows"]
    assert (first["tail"], first["feature"], first["timm"]) == ("RotaryTail", "CLS", False)
    assert first["blocks"] == [2, 12]
    assert first["tokens"] == (first["pixels"] // 16) ** 2 + 5
    assert first["values"] < 1e-9
    assert first["gradients"] < 1e-9
    assert min(first[key] for key in ("network_ms", "tail_ms", "whole_ms")) > 0
    assert "not a plain vision transformer" in second["refused"]
