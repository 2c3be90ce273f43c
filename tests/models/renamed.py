"""Weights of timm's networks under the names that they have in transformers, written from its modelling files."""

import re

import torch
from torch import Tensor

State = dict[str, Tensor]

DINOV2 = [
    (r"^(cls_token|mask_token)$", r"embeddings.\1"),
    (r"^reg_token$", "embeddings.register_tokens"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^norm\.", "layernorm."),
    (r"^blocks\.(\d+)\.", r"encoder.layer.\1."),
    (r"\.attn\.(query|key|value)\.", r".attention.attention.\1."),
    (r"\.attn\.proj\.", ".attention.output.dense."),
    (r"\.ls([12])\.gamma", r".layer_scale\1.lambda1"),
]
DINOV3 = [
    (r"^(cls_token)$", r"embeddings.\1"),
    (r"^reg_token$", "embeddings.register_tokens"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings."),
    (r"^blocks\.(\d+)\.", r"layer.\1."),
    (r"\.attn\.(q|k|v)(uery|ey|alue)\.", r".attention.\1_proj."),
    (r"\.attn\.proj\.", ".attention.o_proj."),
    (r"\.gamma_([12])$", r".layer_scale\1.lambda1"),
    (r"\.mlp\.fc1_g\.", ".mlp.gate_proj."),
    (r"\.mlp\.fc1(_x)?\.", ".mlp.up_proj."),
    (r"\.mlp\.fc2\.", ".mlp.down_proj."),
]
CLIP = [
    (r"^cls_token$", "embeddings.class_embedding"),
    (r"^pos_embed$", "embeddings.position_embedding.weight"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embedding."),
    (r"^norm_pre\.", "pre_layrnorm."),
    (r"^norm\.", "post_layernorm."),
    (r"^blocks\.(\d+)\.", r"encoder.layers.\1."),
    (r"\.attn\.(q|k|v)(uery|ey|alue)\.", r".self_attn.\1_proj."),
    (r"\.attn\.proj\.", ".self_attn.out_proj."),
    (r"(encoder.*)\.norm([12])\.", r"\1.layer_norm\2."),
    (r"^attn_pool\.latent$", "head.probe"),
    (r"^attn_pool\.proj\.", "head.attention.out_proj."),
    (r"^attn_pool\.norm\.", "head.layernorm."),
    (r"^attn_pool\.mlp\.", "head.mlp."),
]


def separate(state: State) -> State:
    """Queries, keys and values apart, with the biases that are there."""
    found: State = {}
    for name, value in state.items():
        if ".qkv." in name:
            start, _, kind = name.rpartition(".qkv.")
            for one, part in zip(("query", "key", "value"), value.chunk(3), strict=True):
                found[f"{start}.{one}.{kind}"] = part.clone()
        elif name.endswith((".q_bias", ".v_bias")):
            found[f"{name[:-6]}{'query' if name[-6] == 'q' else 'value'}.bias"] = value
        else:
            found[name] = value
    return found


def renamed(state: State, rules: list[tuple[str, str]], prefix: str = "") -> State:
    found: State = {}
    for name, value in separate(state).items():
        for pattern, new in rules:
            name = re.sub(pattern, new, name)
        found[prefix + name] = value
    return found


def as_dinov2(state: State) -> State:
    """With registers, transformers keeps a position for CLS, as upstream does; timm adds it to the token."""
    state = dict(state)
    if "reg_token" in state:
        first = torch.full_like(state["cls_token"], 0.25)
        state["cls_token"] = state["cls_token"] - first
        state["pos_embed"] = torch.cat([first, state["pos_embed"]], dim=1)
    return renamed(state | {"mask_token": torch.zeros(1, state["cls_token"].shape[-1])}, DINOV2)


def as_dinov3(state: State) -> State:
    width = state["cls_token"].shape[-1]
    return renamed(state, DINOV3) | {"embeddings.mask_token": torch.zeros(1, 1, width)}


def as_clip(state: State) -> State:
    """CLIP or SigLIP, with parts of the text tower."""
    found = renamed(state, CLIP, "vision_model.")
    for name in ("class_embedding", "position_embedding.weight"):
        if (key := f"vision_model.embeddings.{name}") in found:
            found[key] = found[key].squeeze(0) if name != "class_embedding" else found[key].flatten()
    for kind in ("weight", "bias"):
        parts = [found.pop(f"vision_model.attn_pool.{one}.{kind}", None) for one in ("q", "kv")]
        if parts[0] is not None:
            found[f"vision_model.head.attention.in_proj_{kind}"] = torch.cat(parts)
    found["vision_model.embeddings.position_ids"] = torch.arange(5)[None]
    return found | {"text_model.final_layer_norm.weight": torch.ones(3), "logit_scale": torch.ones(())}
