"""Convert hub configurations and state dicts of timm, open_clip and transformers to timm's names.

Wrappers (`module.`, `backbone.`, `teacher.`) are taken off; the layouts of transformers' DINOv2, DINOv3, CLIP and
SigLIP become those of the original repositories, which timm itself reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from holotype.config.schema import RGB, as_rgb
from holotype.errors import InputError
from holotype.models.zoo import check_name, import_timm

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
VIT_KEYS = "encoder.layer.0.layernorm_before.weight"
"""In transformers' ViT, which begins like DINOv2."""

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


def to_timm_names(state: Mapping[str, Tensor], where: str) -> State:
    """The weights of one network under names that timm reads. where: the file, for the sentence."""
    state, layout = unwrap_state(state)
    if layout == "timm" or not state:
        return state
    if VIT_KEYS in state:
        raise InputError(
            f"The weights in {where} have the names of transformers' ViT, which are not read here: take timm's twin of "
            "the network (vit_base_patch16_224.augreg_in21k, or vit_base_patch16_224.dino for facebook/dino-vitb16)."
        )
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


Config = Mapping[str, Any]

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
CLIP_WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin", *WEIGHTS)
DINOV2_SIZES = {384: "small", 768: "base", 1024: "large", 1536: "giant"}
DINOV3_SIZES = {384: "small", 768: "base", 1024: "large", 1280: "huge_plus", 4096: "7b"}
CLIP_SIZES = {768: "base", 1024: "large", 1280: "huge", 1408: "giant", 1664: "gigantic"}
SIGLIP_SIZES = {768: "base", 1024: "large", 1152: "so400m", 1536: "giantopt"}
"""Width of a network to its name in timm."""
TWINS = {
    "beit": "vit_base_patch16_224.augreg_in21k",
    "convnext": "vit_base_patch14_dinov2.lvd142m",
    "dinov3_convnext": "vit_base_patch16_dinov3.lvd1689m",
    "swin": "vit_base_patch14_dinov2.lvd142m",
    "vit": "vit_base_patch16_224.augreg_in21k, or vit_base_patch16_224.dino for facebook/dino-vitb16",
    "vit_mae": "vit_base_patch16_224.mae",
}
"""Kinds of transformers' networks that are not read, and what to take in their place."""


@dataclass(frozen=True)
class HubModel:
    """A network as its repository describes it."""

    arch: str
    files: tuple[str, ...] = WEIGHTS
    """Names that its weights may have, the best first."""
    image_size: int | None = None
    mean: RGB | None = None
    std: RGB | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    own_pool: bool = False
    licence: str = ""


def from_timm_config(content: Config) -> HubModel:
    """config.json as timm writes it."""
    cfg, settings = content.get("pretrained_cfg") or {}, dict(content.get("model_args") or {})
    base = str(content["architecture"]).partition(".")[0]
    tagged = f"{base}.{cfg.get('tag')}"
    arch = tagged if tagged in import_timm().list_pretrained() else base
    check_name(arch, with_weights=False)
    shape = cfg.get("input_size") or content.get("input_size") or [None]
    size = settings.pop("img_size", None) or shape[-1]
    settings.pop("num_classes", None)
    if content.get("global_pool") in ("token", "avg", "map"):
        settings.setdefault("global_pool", content["global_pool"])
    mean, std = (as_rgb(key, cfg[key]) if cfg.get(key) else None for key in ("mean", "std"))
    own = int(content.get("num_classes") or 0) > 0
    licence = str(cfg.get("license") or "")
    return HubModel(arch, WEIGHTS, _image_side(size), mean, std, settings, own, licence)


def from_open_clip_config(content: Config, where: str) -> HubModel:
    """open_clip_config.json: the tower for images, a network of timm or open_clip's own."""
    model, preprocess = content["model_cfg"], content.get("preprocess_cfg") or {}
    vision = model["vision_cfg"]
    settings: dict[str, Any] = {}
    if name := vision.get("timm_model_name"):
        arch = str(name)
        if vision.get("timm_pool") in ("token", "avg", "map"):
            settings["global_pool"] = vision["timm_pool"]
        check_name(arch, with_weights=False)
    else:
        quick = model.get("quick_gelu", False)
        arch = _clip(vision.get("width"), vision.get("patch_size"), quick, vision.get("image_size"), where)
    mean, std = (as_rgb(key, preprocess[key]) if key in preprocess else None for key in ("mean", "std"))
    return HubModel(arch, CLIP_WEIGHTS, _image_side(vision.get("image_size")), mean, std, settings)


def from_transformers_config(content: Config, preprocess: Config, where: str) -> HubModel:
    """config.json and preprocessor_config.json as transformers writes them."""
    vision = content.get("vision_config") or content
    kind = str(vision.get("model_type") or content.get("model_type") or "").removesuffix("_vision_model")
    width, patch = vision.get("hidden_size", 768), vision.get("patch_size", 16)
    size = vision.get("image_size")
    if kind in ("dinov2", "dinov2_with_registers"):
        registers = f"_reg{vision.get('num_register_tokens', 4)}" if kind != "dinov2" else ""
        arch = f"vit_{DINOV2_SIZES.get(width)}_patch{patch}{registers}_dinov2"
    elif kind == "dinov3_vit":
        plus = "_plus" if vision.get("use_gated_mlp") and width == 384 else ""
        biased = "_qkvb" if vision.get("query_bias", True) and width != 4096 else ""
        arch, size = f"vit_{DINOV3_SIZES.get(width)}{plus}_patch{patch}_dinov3{biased}", 256
    elif kind == "clip":
        quick = vision.get("hidden_act", "quick_gelu") == "quick_gelu"
        arch = _clip(width, patch, quick, size, where)
    elif kind == "siglip":
        arch = _nearest(f"vit_{SIGLIP_SIZES.get(width)}_patch{patch}_siglip", size)
    else:
        advice = (
            f"take timm's twin, {TWINS[kind]}" if kind in TWINS else "choose a vision transformer of timm"
        )
        raise InputError(
            f"{where} holds a network of transformers' kind {kind or 'unknown'}, not read here: {advice}."
        )
    _check_exists(arch, where)
    mean, std = (
        as_rgb(k, preprocess[f"image_{k}"]) if f"image_{k}" in preprocess else None for k in ("mean", "std")
    )
    return HubModel(arch, WEIGHTS, _image_side(size), mean, std)


def _clip(width: Any, patch: Any, quick: bool, size: Any, where: str) -> str:
    arch = _nearest(f"vit_{CLIP_SIZES.get(width)}_patch{patch}_clip{'_quickgelu' if quick else ''}", size)
    _check_exists(arch, where)
    return arch


def _nearest(start: str, size: Any) -> str:
    """timm's name for an image size, or that for another: positions are resampled."""
    found = import_timm().list_models(f"{start}_*")
    return f"{start}_{size}" if f"{start}_{size}" in found else next(iter(found), start)


def _check_exists(arch: str, where: str) -> None:
    if not import_timm().is_model(arch):
        raise InputError(
            f"{where} describes a network that timm does not have ({arch}): choose a vision transformer of timm, or "
            "convert the weights into a .safetensors file of one."
        )


def _image_side(size: Any) -> int | None:
    """Of a square, from a number or a pair."""
    if isinstance(size, list | tuple):
        size = size[-1]
    return int(size) if size else None
