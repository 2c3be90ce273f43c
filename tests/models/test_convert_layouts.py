"""Weights under other people's names are those of the network, to the bit; what is not read is told with its twin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from holotype.errors import InputError
from holotype.models.convert import to_timm_names, unwrap_state
from holotype.models.weights_io import _filter
from holotype.utils import torchvision_compat as _torchvision

from .renamed import as_clip, as_dinov2, as_dinov3

_torchvision.patch_torchvision()
import timm  # noqa: E402

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
