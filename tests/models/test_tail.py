"""Tails against the whole model: trunk + tail = model(x), values and gradients, for each timm family."""

import copy
from typing import Any

import pytest
import timm
import torch
from timm.layers import RmsNorm
from torch import Tensor, nn

from holotype.errors import InputError
from holotype.models import tail as row_tails
from holotype.models.tail import (
    AbsorbedTail,
    PoolTail,
    RotaryTail,
    WholeTail,
    place_trunk,
    rotary_positions,
    split_backbone,
)

SMALL = {"img_size": 32, "embed_dim": 48, "depth": 3, "num_heads": 3}
TOKEN = {"global_pool": "token"}
NORMED = {**TOKEN, "qk_norm": True, "scale_attn_inner": True}
# family -> (timm's name, what is overridden, the tail it must get)
FAMILIES: dict[str, tuple[str, dict[str, Any], type[WholeTail]]] = {
    "plain": ("vit_tiny_patch16_224", {"img_size": 48}, AbsorbedTail),
    "layer scale": ("vit_small_patch14_dinov2", {"img_size": 42}, AbsorbedTail),
    "registers": ("vit_small_patch14_reg4_dinov2", {"img_size": 42}, AbsorbedTail),
    "SwiGLU": ("vit_giant_patch14_dinov2", {"img_size": 28}, AbsorbedTail),
    "CLIP": ("vit_base_patch16_clip_quickgelu_224", {}, AbsorbedTail),
    "no qkv bias": ("vit_tiny_patch16_224", {"qkv_bias": False}, AbsorbedTail),
    "RMS norm": ("vit_tiny_patch16_224", {"norm_layer": "rmsnorm"}, AbsorbedTail),
    "scaled": ("vit_tiny_patch16_224", {"scale_attn_norm": True, "scale_mlp_norm": True}, AbsorbedTail),
    "fc norm on the token": ("vit_tiny_patch16_224", {"fc_norm": True}, AbsorbedTail),
    "q/k norm": ("vit_tiny_patch16_224", {"qk_norm": True}, RotaryTail),
    "q/k norm, no bias": ("vit_tiny_patch16_224", {"qk_norm": True, "qkv_bias": False}, RotaryTail),
    "drop path": ("vit_tiny_patch16_224", {"drop_path_rate": 0.1}, WholeTail),
    "MAE, mean pool": ("vit_base_patch16_224", {"global_pool": "avg"}, WholeTail),
    "SigLIP, attention pool": ("vit_base_patch16_siglip_224", {}, PoolTail),
    "pool and registers": ("vit_base_patch16_siglip_224", {"class_token": True, "reg_tokens": 2}, PoolTail),
    "DINOv3, mean": ("vit_small_patch16_dinov3", {}, WholeTail),
    "DINOv3": ("vit_small_patch16_dinov3", {"global_pool": "token"}, RotaryTail),
    "DINOv3 with biases": ("vit_small_patch16_dinov3_qkvb", {"global_pool": "token"}, RotaryTail),
    "DINOv3, SwiGLU": ("vit_huge_plus_patch16_dinov3", {"global_pool": "token"}, RotaryTail),
    "EVA02, mean": ("eva02_tiny_patch14_224", {"img_size": 28}, WholeTail),
    "EVA02": ("eva02_base_patch14_224", {"img_size": 28, "global_pool": "token"}, RotaryTail),
    "EVA02 CLIP": ("eva02_base_patch16_clip_224", {}, RotaryTail),
    "rotary, q/k norm": ("vit_small_patch16_dinov3", NORMED, RotaryTail),
    "rotary, RMS norm": ("vit_small_patch16_dinov3", {**TOKEN, "norm_layer": RmsNorm}, RotaryTail),
    "axial rotary": ("vit_small_patch16_rope_224", {"global_pool": "token"}, RotaryTail),
    "mixed rotary, mean": ("vit_small_patch16_rope_mixed_224", {"global_pool": "avg"}, WholeTail),
    "mixed rotary": ("vit_small_patch16_rope_mixed_224", {"global_pool": "token"}, RotaryTail),
    "EVA, no rotary": ("eva_giant_patch14_clip_224", {"img_size": 28}, AbsorbedTail),
    "EVA, no rotary, q/k norm": ("eva_giant_patch14_clip_224", {"img_size": 28, "qk_norm": True}, RotaryTail),
    "Perception Encoder": ("vit_pe_core_tiny_patch16_384", {}, PoolTail),
    "grouped keys": ("vit_base_patch16_sapiens2", {"global_pool": "token", "num_kv_heads": 1}, WholeTail),
}
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)


def small(family: str) -> nn.Module:
    """A tiny model of the family, every parameter random so that none is hidden by its start value."""
    name, changes, _ = FAMILIES[family]
    torch.manual_seed(3)
    model = timm.create_model(name, pretrained=False, num_classes=0, **{**SMALL, **changes}).eval()
    if not family.startswith("mixed rotary"):  # timm computes its positions in float32 only
        model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def pictures(model: Any, n: int = 3) -> Tensor:
    return torch.randn(n, 3, *model.patch_embed.img_size, dtype=next(model.parameters()).dtype)


def close(ours: Tensor, theirs: Tensor, what: str = "") -> None:
    tolerance = 1e-9 if theirs.dtype == torch.float64 else 1e-4
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance, msg=lambda m: f"{what}: {m}")


def whole(model: Any, tokens: Tensor, first: int) -> Tensor:
    """The plain way: all rows of blocks `first` .. end, then timm's own norm and head."""
    rope, x = rotary_positions(model), tokens
    for i, block in enumerate(model.blocks):
        if i >= first:
            x = block(x) if rope is None else block(x, rope=rope[i] if model.rope_mixed else rope)
    return model.forward_head(model.norm(x))


@EVERY_FAMILY
@pytest.mark.parametrize("train_blocks", [1, 3])
def test_trunk_and_tail_are_the_model(family: str, train_blocks: int) -> None:
    model = small(family)
    x = pictures(model)
    with torch.no_grad():
        expected = model(x)
        names = set(model.state_dict())
        trunk, tail = split_backbone(model, train_blocks)
        tokens = trunk(x)
        close(tail(tokens), expected)
    assert type(tail) is FAMILIES[family][2]
    assert tokens.ndim == 3
    assert expected.std() > 1e-3
    assert not any(p.requires_grad for p in trunk.parameters())
    last = tuple(f"blocks.{n}." for n in range(3 - train_blocks, 3))
    assert all(p.requires_grad == name.startswith(last) for name, p in tail.named_parameters())
    trunk_names, tail_names = set(trunk.state_dict()), set(tail.state_dict())
    assert trunk_names | tail_names == names  # timm's own names, each in one place
    assert not trunk_names & tail_names


@EVERY_FAMILY
@pytest.mark.parametrize("train_blocks", [1, 2])
def test_a_prepared_token_gives_the_same_feature_and_gradients(family: str, train_blocks: int) -> None:
    """prepare() holds nothing that learns, so a cache of it stays valid while every parameter moves."""
    trunk, tail = split_backbone(small(family), train_blocks)
    with torch.no_grad():
        tokens = trunk(pictures(trunk))
        prepared = tail.prepare(tokens)
        for parameter in tail.parameters():  # an optimiser step
            parameter.add_(0.1 * torch.randn_like(parameter))
    learning = [p for p in tail.parameters() if p.requires_grad]
    out, expected = tail(prepared), tail(tokens)
    close(out, expected)
    cotangent = torch.randn_like(out)
    ours = torch.autograd.grad(out, learning, cotangent, allow_unused=True)
    theirs = torch.autograd.grad(expected, learning, cotangent, allow_unused=True)
    for mine, reference in zip(ours, theirs, strict=True):
        assert (mine is None) == (reference is None)
        if mine is not None:
            close(mine, reference)


@EVERY_FAMILY
@pytest.mark.parametrize("train_blocks", [1, 2])
def test_every_gradient_equals_the_whole_blocks(family: str, train_blocks: int) -> None:
    reference: Any = small(family)
    _, tail = split_backbone(copy.deepcopy(reference), train_blocks)
    first = 3 - train_blocks
    n_tokens = reference.patch_embed.num_patches + reference.num_prefix_tokens
    tokens = torch.randn(3, n_tokens, 48, dtype=next(tail.parameters()).dtype)
    ours, theirs = tokens.clone().requires_grad_(), tokens.clone().requires_grad_()
    out, expected = tail(ours), whole(reference, theirs, first)
    close(out, expected)
    cotangent = torch.randn_like(out)
    out.backward(cotangent)
    expected.backward(cotangent)
    close(ours.grad, theirs.grad, "tokens")
    expected_gradients = dict(reference.named_parameters())
    for name, parameter in tail.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            close(parameter.grad, expected_gradients[name].grad, name)


def test_frozen_tokens_keep_no_graph_and_the_aligned_pool_of_a_gpu_is_the_plain_one() -> None:
    """What makes the absorbed form cheap in memory: of size (B, N, D) only the normalised tokens are kept."""
    _, tail = split_backbone(small("plain"), 1)
    tokens = torch.randn(2, 10, 48, dtype=torch.float64)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        tail(tokens)
    large = {t.untyped_storage().data_ptr() for t in kept if t.untyped_storage().nbytes() >= tokens.nbytes}
    parameters = {p.untyped_storage().data_ptr() for p in tail.parameters()}
    assert len(large - parameters) <= 1  # the standardised tokens, once
    torch.manual_seed(0)
    x = torch.randn(4, 13, 6, dtype=torch.float64, requires_grad=True)
    query = torch.randn(4, 3, 6, dtype=torch.float64, requires_grad=True)
    expected = (query @ x.mT).softmax(dim=-1) @ x
    padded = torch.nn.functional.pad(query, (0, 0, 0, 5))
    found = row_tails._AlignedPool.apply(padded, x)[:, :3]
    close(found, expected)
    cotangent = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad(out, [query, x], cotangent) for out in (found, expected))
    for mine, plain in zip(ours, theirs, strict=True):
        close(mine, plain)


@pytest.mark.parametrize("train_blocks", [-1, 0, 4])
def test_train_blocks_out_of_range(train_blocks: int) -> None:
    with pytest.raises(InputError, match=f"train_blocks is {train_blocks}.* use 1 to 3"):
        split_backbone(small("plain"), train_blocks)


@pytest.mark.parametrize("family", ["DINOv3", "EVA02", "axial rotary"])
def test_rotary_positions_keep_their_digits_in_a_trunk_of_16_bits(family: str) -> None:
    model: Any = small(family).float()
    x = pictures(model)
    exact, _ = split_backbone(copy.deepcopy(model), 1)
    trunk, _ = split_backbone(model, 1)
    angles = rotary_positions(exact)
    place_trunk(trunk, torch.device("cpu"), torch.bfloat16)
    assert {p.dtype for p in trunk.blocks.parameters()} == {torch.bfloat16}
    assert torch.equal(rotary_positions(trunk), angles)
    with torch.no_grad():
        rough = trunk(x.bfloat16())
    assert rough.dtype == torch.bfloat16
    place_trunk(trunk, torch.device("cpu"), torch.float64)
    assert rotary_positions(trunk).dtype == torch.float64


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@EVERY_FAMILY
@pytest.mark.parametrize("train_blocks", [1, 2])
def test_tails_on_a_gpu_equal_those_on_a_cpu(family: str, train_blocks: int) -> None:
    trunk, tail = split_backbone(small(family), train_blocks)
    tokens = trunk(pictures(trunk, 5)).detach()
    on_gpu = copy.deepcopy(tail).cuda()
    out, found = tail(tokens), on_gpu(tokens.cuda())
    close(found.cpu(), out)
    cotangent = torch.randn_like(out)
    ours = torch.autograd.grad(found, [p for p in on_gpu.parameters() if p.requires_grad], cotangent.cuda())
    theirs = torch.autograd.grad(out, [p for p in tail.parameters() if p.requires_grad], cotangent)
    for mine, reference in zip(ours, theirs, strict=True):
        close(mine.cpu(), reference)
