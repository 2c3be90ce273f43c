"""Prompts of pixels and of tokens, against the released code's numbers, and what they may and may not touch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from holotype.errors import InputError
from holotype.models.prompts import (
    LearnedPrompts,
    PixelPrompt,
    PromptedTrunk,
    TokenPrompts,
    border_mask,
    embed_patches,
    frame_width,
    patch_size,
)
from holotype.models.tail import split_backbone
from holotype.models.zoo import import_timm
from holotype.training.encoder import Unregistered

timm = import_timm()
PARITY = Path(__file__).parent.parent / "parity"
SPTNET, NETWORK, PIXELS, MORE_PIXELS = (
    dict(np.load(PARITY / f"{name}.npz", allow_pickle=False))
    for name in ("sptnet", "promptcal_network", "sptnet_pixels_48", "sptnet_pixels_42")
)
SIDES = ("up", "down", "left", "right")


def tensor(arrays: dict[str, np.ndarray], key: str) -> Tensor:
    return torch.as_tensor(arrays[key])


@pytest.mark.parametrize("case", ["prompt_img48_patch16", "prompt_img42_patch14_border2"])
def test_pixel_prompts_equal_the_released_code(case) -> None:
    def get(name: str) -> Tensor:
        return tensor(PIXELS | MORE_PIXELS, f"{case}__{name}")

    image, side, border = get("image"), int(get("patch_size")), int(get("prompt_size"))
    prompt = PixelPrompt(image.shape[-1], (side, side), frame=int(get("pad")), border=border)
    bare = PixelPrompt(image.shape[-1], (side, side), border=border)
    with torch.no_grad():
        prompt.patches.copy_(get("patch_param")[0])
        bare.patches.copy_(prompt.patches)
        for name in SIDES:
            getattr(prompt, name).copy_(get(f"pad_{name}")[0])
    torch.testing.assert_close(bare(image), get("out_patch"), rtol=1e-4, atol=2e-6)
    out = prompt(image)
    torch.testing.assert_close(out, get("out_all"), rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(out - bare(image) + image, get("out_pad"), rtol=1e-4, atol=2e-6)
    out.backward(get("upstream_grad"))
    for mine, name in ((prompt.patches, "patch_param"), (prompt.up, "pad_up"), (prompt.left, "pad_left")):
        torch.testing.assert_close(mine.grad, get(f"grad_{name}")[0], rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("case", ["layout_224_p16", "layout_224_p14"])
def test_the_layout_at_224_pixels(case) -> None:
    def get(name: str) -> Tensor:
        return tensor(SPTNET, f"{case}__{name}")

    def wave(parameter: Tensor, pace: float) -> None:
        parameter.copy_(torch.sin(pace * torch.arange(parameter.numel()).double()).view_as(parameter))

    side = int(get("patch_size"))
    mask = border_mask(224, (side, side))
    assert np.array_equal(np.packbits(mask.numpy().astype(bool)), SPTNET[f"{case}__mask_packed"])
    assert mask.sum() == get("mask_pixels_per_channel")
    assert mask[:side, :side].sum() == get("border_pixels_per_patch")
    assert frame_width(224) == get("pad")
    prompt = PixelPrompt(224, (side, side), frame=frame_width(224)).double()
    assert sum(p.numel() for p in prompt.parameters()) == get("stored_values_all") == 220_368
    assert sum(getattr(prompt, name).numel() for name in SIDES) == get("values_pad")
    with torch.no_grad():
        for pace, name in enumerate(("patches", *SIDES), start=1):
            wave(getattr(prompt, name), pace / 100)
        image = torch.cos(0.001 * torch.arange(3 * 224 * 224).double()).view(1, 3, 224, 224)
        out = prompt(image)[0]
    c, h, w = get("sample_points_chw").T
    torch.testing.assert_close(out[c, h, w], get("out_all_at_points"), rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(out.sum(), get("out_all_sum"), rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(out.square().sum(), get("out_all_sq_sum"), rtol=1e-4, atol=2e-6)


def network(dim=24, depth=3, heads=3, arch="vit_tiny_patch16_224", **changes):
    torch.manual_seed(4)
    settings = {"img_size": 32, "embed_dim": dim, "depth": depth, "num_heads": heads, **changes}
    return timm.create_model(arch, num_classes=0, **settings)


@pytest.mark.parametrize("case", ["vit_small", "vit_one_prompt_depth1"])
def test_prompted_tokens_equal_the_released_network(case) -> None:
    def get(name: str) -> Tensor:
        return tensor(NETWORK, f"{case}__{name}")

    start = f"{case}__sd_"
    state = {key.removeprefix(start): tensor(NETWORK, key) for key in NETWORK if key.startswith(start)}
    prompts, positions, n = state.pop("prompt_tokens"), state["pos_embed"], int(get("num_prompts"))
    assert not positions[:, 1 : 1 + n].any()
    state["pos_embed"] = torch.cat([positions[:, :1], positions[:, 1 + n :]], dim=1)
    model = network(int(get("dim")), int(get("depth")), int(get("heads")))
    model.load_state_dict(state)
    trunk, tail = split_backbone(model.double(), 1)
    encoder = TokenPrompts(Unregistered(trunk), tail, n).double()
    encoder.prompts.data.copy_(prompts)
    seen = []
    for block in (*trunk.blocks, *tail.trained()):
        block.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    image = get("image").double()
    torch.testing.assert_close(encoder.tokens(image), get("all_tokens_out"), rtol=1e-7, atol=1e-9)
    assert seen == get("tokens_per_block").tolist()
    features = encoder(image)
    torch.testing.assert_close(features[:, 0], get("cls"), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(features[:, 1], get("dpr_mean_first2"), rtol=1e-7, atol=1e-9)
    unit = torch.nn.functional.normalize(features, dim=-1)
    torch.testing.assert_close(unit[:, 0], get("z_cls"), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(unit[:, 1], get("z_dpr"), rtol=1e-7, atol=1e-9)


def test_the_counts_of_the_published_network() -> None:
    with torch.device("meta"):
        model = timm.create_model("vit_base_patch16_224", num_classes=0)
        trunk, tail = split_backbone(model, 1)
        encoder = TokenPrompts(Unregistered(trunk), tail)
        out = encoder.tokens(torch.zeros(1, 3, 224, 224))
    assert list(encoder.prompts.shape) == NETWORK["vit_base_shapes__prompt_shape"].tolist()
    assert encoder.prompts.numel() == NETWORK["vit_base_shapes__prompt_params"] == 46_080
    trained = sum(p.numel() for p in encoder.parameters() if p.requires_grad)
    assert trained == NETWORK["vit_base_shapes__trainable_params_prompts_plus_block11"]
    assert list(out.shape) == NETWORK["vit_base_shapes__output_shape"].tolist()


def test_prompts_stand_before_registers() -> None:
    model = network(arch="vit_small_patch14_reg4_dinov2", img_size=28)
    trunk, tail = split_backbone(model, 1)
    encoder = TokenPrompts(Unregistered(trunk), tail)
    x = embed_patches(trunk, torch.randn(1, 3, 28, 28))
    prompted = encoder.with_prompts(x, 0)
    assert torch.equal(prompted[:, 0], x[:, 0])
    assert torch.equal(prompted[0, 1:6], encoder.prompts[0])
    assert torch.equal(prompted[:, 6:], x[:, 1:])
    again = encoder.with_prompts(prompted, 1)
    assert torch.equal(again[0, 1:6], encoder.prompts[1])
    assert torch.equal(again[:, 6:], x[:, 1:])
    assert patch_size(trunk) == (14, 14)


@pytest.mark.parametrize(
    ("arch", "said"),
    [("vit_base_patch16_siglip_224", "has none"), ("vit_small_patch16_dinov3", "rotary positions")],
)
def test_networks_that_take_no_prompts_are_refused(arch, said) -> None:
    trunk, tail = split_backbone(network(arch=arch), 1)
    with pytest.raises(InputError, match=said):
        TokenPrompts(Unregistered(trunk), tail)


def test_the_teacher_of_prompts_copies_freezes_and_follows() -> None:
    trunk, tail = split_backbone(network(), 1)
    encoder = LearnedPrompts(TokenPrompts(Unregistered(trunk), tail))
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        for parameter in encoder.student.parameters():
            parameter += torch.randn_like(parameter)
        first, student = encoder.teacher(images), encoder.student(images)
        assert not torch.allclose(first, student)
        encoder.teacher.update(1.0)
        assert torch.equal(encoder.teacher(images), first)
        encoder.teacher.update(0.0)
        torch.testing.assert_close(encoder.teacher(images), student)
        encoder.student.prompts += 1
        encoder.teacher.update(0.75)
        torch.testing.assert_close(encoder.teacher[0].prompts, encoder.student.prompts - 0.75)
    names = {name for name, _ in encoder.named_parameters()}
    assert names == {f"student.{name}" for name, _ in encoder.student.named_parameters()}
    assert any("copies.0.tail.blocks" in name for name in encoder.state_dict())
    assert not any("trunk" in name for name in encoder.state_dict())


@pytest.mark.parametrize("blocks", [1, 2])
def test_pixel_prompts_learn_through_a_frozen_network_and_the_network_without_them(blocks) -> None:
    trunk, tail = split_backbone(network(), blocks)
    encoder = PromptedTrunk(Unregistered(trunk), tail, PixelPrompt(32, patch_size(trunk), frame=4))
    images = torch.randn(2, 3, 32, 32)
    learning = [p for p in tail.parameters() if p.requires_grad]
    encoder.of_prompt(images).square().sum().backward()
    assert all(p.grad.ne(0).any() for p in encoder.prompt.parameters())
    assert all(p.grad is None for p in learning)
    encoder.zero_grad()
    features = encoder.of_model(images)
    torch.testing.assert_close(features, torch.cat([tail(trunk(images)), encoder(images)]))
    features.square().sum().backward()
    assert all(p.grad is not None for p in learning)
    assert all(p.grad is None for p in encoder.prompt.parameters())
