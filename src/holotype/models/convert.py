"""Convert state dicts of other libraries to timm's names.

Wrappers (`module.`, `backbone.`, `teacher.`) are taken off; the layouts of transformers' DINOv2, DINOv3, CLIP and
SigLIP become those of the original repositories, which timm itself reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

State = dict[str, Tensor]
Rules = Sequence[tuple[str, str]]

WRAPPERS = {
    "_orig_mod", "backbone", "model", "module", "teacher",
    "clip", "dinov2", "dinov2_with_registers", "dinov3_vit", "siglip", "vision_model", "vit",
}  # fmt: skip
"""Parts of names that say where a network lay, and nothing of it; the second line is transformers'."""
LAYOUT_MARKS = {
    "patch_embed.proj.weight": "timm",
    "embeddings.patch_embeddings.projection.weight": "DINOv2",
    "embeddings.patch_embeddings.weight": "DINOv3",
    "embeddings.patch_embedding.weight": "CLIP",
}
"""The name of the first layer tells the layout."""
COMMON: Rules = (
    (r"^embeddings\.(cls_token|mask_token)$", r"\1"),
    (r"^(?:model\.|encoder\.)?layers?\.(\d+)\.", r"blocks.\1."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
)
LAYOUTS: dict[str, Rules] = {
    "DINOv2": (
        *COMMON,
        (r"^embeddings\.register_tokens$", "register_tokens"),
        (r"^embeddings\.position_embeddings$", "pos_embed"),
        (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
        (r"\.attention\.attention\.([qkv])(uery|ey|alue)\.", r".attn.\1."),
        (r"\.attention\.output\.dense\.", ".attn.proj."),
        (r"\.mlp\.weights_in\.", ".mlp.w12."),
        (r"\.mlp\.weights_out\.", ".mlp.w3."),
        (r"^layernorm\.", "norm."),
    ),
    "DINOv3": (
        *COMMON,
        (r"^embeddings\.register_tokens$", "storage_tokens"),
        (r"^embeddings\.patch_embeddings\.", "patch_embed.proj."),
        (r"\.attention\.([qkv])_proj\.", r".attn.\1."),
        (r"\.attention\.o_proj\.", ".attn.proj."),
    ),
    "CLIP": (
        *COMMON,
        (r"^embeddings\.class_embedding$", "cls_token"),
        (r"^embeddings\.position_embedding\.weight$", "pos_embed"),
        (r"^embeddings\.patch_embedding\.", "patch_embed.proj."),
        (r"^pre_layrnorm\.", "norm_pre."),
        (r"^post_layernorm\.", "norm."),
        (r"\.self_attn\.([qkv])_proj\.", r".attn.\1."),
        (r"\.self_attn\.out_proj\.", ".attn.proj."),
        (r"\.layer_norm([12])\.", r".norm\1."),
        (r"^head\.probe$", "attn_pool.latent"),
        (r"^head\.attention\.out_proj\.", "attn_pool.proj."),
        (r"^head\.layernorm\.", "attn_pool.norm."),
        (r"^head\.mlp\.", "attn_pool.mlp."),
    ),
}
"""SigLIP is CLIP without a CLS token and with an attention pool."""
DROPPED = re.compile(r"^embeddings\.position_ids$|^pooler\.|^classifier\.")
MLP = {"up_proj": "fc1", "down_proj": "fc2"}
GATED_MLP = {"gate_proj": "w1", "up_proj": "w2", "down_proj": "w3"}


def to_timm_names(state: Mapping[str, Tensor]) -> State:
    """Return the weights of one network under names that timm reads."""
    state, layout = unwrap_state(state)
    if layout == "timm" or not state:
        return state
    kept = {name: value for name, value in state.items() if not DROPPED.match(name)}
    found = _joined({_renamed(name, LAYOUTS[layout]): value for name, value in kept.items()})
    if layout == "DINOv2":
        found.setdefault("mask_token", torch.zeros(1))  # by which timm knows the layout; it drops it
    if layout == "DINOv3":
        found = _with_mlp(found)
    return _shaped(found) if layout == "CLIP" else found


def unwrap_state(state: Mapping[str, Tensor]) -> tuple[State, str]:
    """The weights without wrappers, a teacher's before others, and their layout: timm, or a key of LAYOUTS."""
    found = []
    for mark, layout in LAYOUT_MARKS.items():
        for name in state:
            prefix = name.removesuffix(mark)
            if name.endswith(mark) and set(prefix.split(".")) <= WRAPPERS | {""}:
                found.append(("teacher" not in prefix, len(prefix), prefix, layout))
    if not found:
        return dict(state), "timm"
    *_, prefix, layout = min(found)
    inside = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return inside, layout


def _renamed(name: str, rules: Rules) -> str:
    for pattern, new in rules:
        name = re.sub(pattern, new, name)
    return name


def _joined(state: State) -> State:
    """Queries, keys and values as one matrix; a bias that is missing beside others is one of zeros."""
    found: State = {name: value for name, value in state.items() if not re.search(r"\.attn\.[qkv]\.", name)}
    for name, query in state.items():
        if not name.endswith(".attn.q.weight"):
            continue
        start = name.removesuffix("q.weight")
        found[f"{start}qkv.weight"] = torch.cat([state[f"{start}{one}.weight"] for one in "qkv"])
        biases = [state.get(f"{start}{one}.bias") for one in "qkv"]
        if any(bias is not None for bias in biases):
            none = torch.zeros(len(query), dtype=query.dtype)
            found[f"{start}qkv.bias"] = torch.cat([none if bias is None else bias for bias in biases])
    return found


def _with_mlp(state: State) -> State:
    """The layers of an MLP, which are called the same with and without a gate."""
    names = GATED_MLP if any(".mlp.gate_proj." in name for name in state) else MLP
    return {
        re.sub(r"\.mlp\.(\w+_proj)\.", lambda found: f".mlp.{names[found[1]]}.", name): value
        for name, value in state.items()
    }


def _shaped(state: State) -> State:
    """Tokens and positions with a dimension for the batch, and a pool with its own matrix for queries."""
    found: State = {}
    for name, value in state.items():
        if name in ("cls_token", "pos_embed"):
            found[name] = value.reshape(1, -1, value.shape[-1])
        elif name.startswith("head.attention.in_proj_"):
            kind = name.removeprefix("head.attention.in_proj_")
            width = len(value) // 3
            found[f"attn_pool.q.{kind}"], found[f"attn_pool.kv.{kind}"] = value[:width], value[width:]
        else:
            found[name] = value
    return found
