"""Counts of parameters and their groups, as in the reference."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from holotype.models.heads import CompactOVA, CosineClassifier, Projector
from holotype.models.tail import split_backbone
from holotype.utils import torchvision_compat as _torchvision

_torchvision.patch_torchvision()
import timm  # noqa: E402

PUBLISHED_HEADS = True

GROUPS = dict(np.load(Path(__file__).parent.parent / "parity" / "param_groups.npz", allow_pickle=False))


def count(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def vit_b16() -> Any:
    with torch.device("meta"):
        return timm.create_model("vit_base_patch16_224", num_classes=0)


def test_parameter_counts_of_the_reference() -> None:
    model = vit_b16()
    assert count(model) == int(GROUPS["counts.backbone"]) == 85_798_656
    assert count(model.blocks[11]) == int(GROUPS["counts.block"]) == 7_087_872
    trunk, tail = split_backbone(model, 1)
    assert count(trunk, tail) == 85_798_656
    with torch.device("meta"):
        projector, classifier, ova = Projector(768), CosineClassifier(768, 200), CompactOVA(768, 100)
    assert count(projector) == int(GROUPS["counts.projector"]) == 6_295_808
    simgcd = count(trunk, tail, projector, classifier)
    assert simgcd == 92_248_064 == int(GROUPS["counts.total"]) - 200  # less the reference's frozen gains
    assert simgcd + count(ova) == 93_540_580
    learns = [p for m in (trunk, tail, projector, classifier) for p in m.parameters() if p.requires_grad]
    assert sum(p.numel() for p in learns) == int(GROUPS["counts.trainable"])


def test_names_fall_into_the_references_groups() -> None:
    """Matrices are decayed, biases and one-dimensional tensors are not, the rest is frozen: as in SimGCD."""
    trunk, tail = split_backbone(vit_b16(), 1)
    with torch.device("meta"):
        projector, classifier = Projector(768), CosineClassifier(768, 200)
    named = {f"0.{name}": p for module in (trunk, tail) for name, p in module.named_parameters()}
    named |= {f"1.{name}": p for name, p in projector.named_parameters()} | {
        "1.last_layer.weight_v": classifier.v
    }
    decay = {name for name, p in named.items() if p.requires_grad and p.ndim > 1}
    no_decay = {name for name, p in named.items() if p.requires_grad and p.ndim == 1}
    assert decay == set(GROUPS["groups.decay"].tolist())
    assert no_decay == set(GROUPS["groups.no_decay"].tolist())
    assert named.keys() - decay - no_decay == set(GROUPS["groups.frozen"].tolist()) - {
        "1.last_layer.weight_g"
    }
